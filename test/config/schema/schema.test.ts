import assert from 'node:assert/strict';
import { randomBytes } from 'node:crypto';
import { readFileSync } from 'node:fs';
import { after, test } from 'node:test';
import { fileURLToPath } from 'node:url';

import { Ajv2020 } from 'ajv/dist/2020.js';
import { parse } from 'yaml';

import { schemaText } from '../../../src/cli/schema.ts';
import { loadConfig } from '../../../src/config/load.ts';
import { FOREIGN_KEYS, OWN_KEYS } from '../../../src/config/schema/upstream-schema.ts';
import { makeCertificate } from '../../support/certificate.ts';

const CONFIG = new URL('../../../config/', import.meta.url);
const CLIENTS = ['claude-code.json', 'cursor.json', 'copilot.json', 'windsurf.json', 'cline.json', 'codex.yaml'];

interface Schema {
  readonly default?: unknown;
  readonly properties?: Readonly<Record<string, Schema>>;
  readonly additionalProperties?: boolean | Schema;
  readonly items?: Schema;
  readonly description?: string;
  readonly not?: object;
  readonly $defs?: Readonly<Record<string, Schema>>;
}

const schema: Schema = JSON.parse(schemaText());
const validate = new Ajv2020({ strict: false }).compile(Object(schema));

function read(file: URL): unknown {
  return parse(readFileSync(file, 'utf8'));
}

function member(value: unknown, key: string): unknown {
  return typeof value === 'object' && value !== null
    ? Object.entries(value).find(([name]) => name === key)?.[1]
    : undefined;
}

test('config/linkspan.schema.json is what `npm run schema` writes', () => {
  assert.equal(readFileSync(new URL('linkspan.schema.json', CONFIG), 'utf8'), schemaText());
});

const made = await makeCertificate();
after(() => made[Symbol.asyncDispose]());

for (const name of ['example.yaml', 'reference.yaml']) {
  test(`config/${name} is valid to an editor and to the gateway`, async () => {
    assert.ok(validate(read(new URL(name, CONFIG))), JSON.stringify(validate.errors));
    const LINKSPAN_WRAPPING_KEY = randomBytes(32).toString('base64');
    const tls = { EXAMPLE_CERT: made.cert, EXAMPLE_KEY: made.key };
    const env = { HOME: '/home/me', EXAMPLE_TOKEN: 'x', REDIS_PASSWORD: 'x', LINKSPAN_WRAPPING_KEY, ...tls };
    const { warnings } = await loadConfig(fileURLToPath(new URL(name, CONFIG)), { env });
    // The reference names a lock file, and there is none beside it.
    assert.deepEqual(
      warnings.filter((warning) => !/there is no lock file/.test(warning)),
      [],
    );
  });
}

for (const name of CLIENTS) {
  test(`an editor accepts ${name} with the JSON schema`, () => {
    const file: unknown = read(new URL(`../../fixtures/config/${name}`, import.meta.url));
    const passes = validate(file);
    const unknown = (validate.errors ?? []).map(({ params }) => String(params['additionalProperty']));
    assert.ok(passes || (name === 'claude-code.json' && unknown.join() === 'oauth'), JSON.stringify(validate.errors));
  });
}

for (const [what, entry] of Object.entries({
  'a bare number as a duration': { command: 'x', timeouts: { call: 30 } },
  'an unknown key': { command: 'x', isolaton: 'shared' },
  'an unknown isolation': { command: 'x', isolation: 'own' },
})) {
  test(`an editor marks ${what}`, () => assert.equal(validate({ mcpServers: { a: entry } }), false));
}

test('an editor takes a variable for any value', () => {
  const entry = {
    command: 'x',
    concurrency: '${N}',
    required: '${R:-true}',
    timeouts: { call: '${T}' },
    isolation: '${I}',
    startup_timeout_sec: '${S}',
  };
  const gateway = { listen: '${L}', operator: '${O}', tracing: { sampling: '${S:-0.1}' } };
  assert.ok(validate({ mcpServers: { a: entry }, gateway }));
});

const referenceText = readFileSync(new URL('reference.yaml', CONFIG), 'utf8');
/** Settings that cannot stand beside others, which are comments in the reference. */
const COMMENTED = /^( {4})# ((?:otlp| +(?:endpoint|headers|tls|ca|cert|key)):)/gm;
const reference: unknown = parse(referenceText.replaceAll(COMMENTED, '$1$2'));

/** Returns the members of two items of a list, those of the second one first. Maps in them are merged too. */
function merged(later: unknown, item: unknown): unknown {
  const isMap = (value: unknown) => typeof value === 'object' && value !== null && !Array.isArray(value);
  if (!isMap(later) || !isMap(item)) return item;
  const members = Object.entries(Object(item)).map(([key, value]) => [key, merged(member(later, key), value)]);
  return { ...Object(later), ...Object.fromEntries(members) };
}

/** Returns every key below a schema with the sample value of the reference. */
function* keysOf(
  at: Schema,
  value: unknown,
  path: string,
): Generator<{ path: string; schema: Schema; value: unknown }> {
  for (const [key, below] of Object.entries(at.properties ?? {})) {
    if (below.not !== undefined) continue;
    const inside = member(value, key);
    yield { path: `${path}.${key}`, schema: below, value: inside };
    yield* keysOf(below, inside, `${path}.${key}`);
  }
  if (at.items?.properties !== undefined)
    yield* keysOf(at.items, Array.isArray(value) ? value.reduceRight(merged, {}) : undefined, `${path}[]`);
  if (typeof at.additionalProperties === 'object' && at.additionalProperties.properties !== undefined) {
    const [first] = typeof value === 'object' && value !== null ? Object.values(value) : [];
    yield* keysOf(at.additionalProperties, first, `${path}.*`);
  }
}

const gatewayKeys = [...keysOf(schema.properties?.['gateway'] ?? {}, member(reference, 'gateway'), 'gateway')];

test('the reference lists every gateway key, and the schema describes each', () => {
  assert.ok(gatewayKeys.length > 35);
  assert.deepEqual(
    gatewayKeys.filter(({ value }) => value === undefined).map(({ path }) => path),
    [],
  );
  assert.deepEqual(
    gatewayKeys.filter(({ schema }) => schema.description === undefined).map(({ path }) => path),
    [],
  );
});

/** Keys whose value in the reference is an example, not the default. */
const EXAMPLES =
  /^gateway\.(?:auth(?:\.jwt|\.introspection|\.apiKeys)?|operatorKeys|profiles(?:\..*)?|access(?:\..*)?|audit\.otlp\.headers|rates(?:\[\]\..*)?)$/;

test('the gateway values in the reference are the defaults', () => {
  for (const { path, schema, value } of gatewayKeys) {
    if (schema.default === undefined || schema.properties !== undefined || EXAMPLES.test(path)) continue;
    assert.deepEqual(value, schema.default, path);
  }
});

test('the reference lists every upstream key, its default and clients’ spellings', () => {
  const upstream = schema.$defs?.['upstream'] ?? {};
  const servers = member(reference, 'mcpServers');
  const all = Object.values(Object(servers));
  const auth = Object.assign({}, ...all.map((server) => member(server, 'auth')));
  const sample = Object.assign({}, member(servers, 'remote'), member(servers, 'local'), { auth });
  const keys = [
    ...keysOf(
      { ...upstream, properties: Object.fromEntries(OWN_KEYS.map((key) => [key, upstream.properties?.[key] ?? {}])) },
      sample,
      'upstream',
    ),
  ];
  assert.deepEqual(
    keys.filter(({ value }) => value === undefined).map(({ path }) => path),
    [],
  );
  for (const { path, schema, value } of keys) {
    if (schema.default !== undefined && schema.properties === undefined) assert.deepEqual(value, schema.default, path);
  }
  const comments = referenceText
    .split('\n')
    .filter((line) => line.startsWith('#'))
    .join('\n');
  assert.deepEqual(
    FOREIGN_KEYS.filter((key) => !new RegExp(`\\b${key}\\b`).test(comments)),
    [],
  );
});
