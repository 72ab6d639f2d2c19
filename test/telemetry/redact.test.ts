import assert from 'node:assert/strict';
import { test } from 'node:test';
import * as fc from '../support/fast-check.ts';
import { gatewaySchema } from '../../src/config/schema/gateway-schema.ts';
import { SECRET_FIELDS } from '../../src/config/schema/secret-fields.ts';
import { upstreamSchema } from '../../src/config/schema/upstream-schema.ts';
import { createLogger } from '../../src/telemetry/log.ts';
import { z } from 'zod';

/** Collects the keys of a JSON Schema at all depths. */
function keysOf(schema: unknown, keys = new Set<string>()): Set<string> {
  if (Array.isArray(schema)) for (const item of schema) keysOf(item, keys);
  if (typeof schema !== 'object' || schema === null || Array.isArray(schema)) return keys;
  for (const [name, value] of Object.entries(schema)) {
    if (name === 'properties') for (const key of Object.keys(Object(value))) keys.add(key);
    keysOf(value, keys);
  }
  return keys;
}

/** The settings that hold no secret. A new setting belongs here or in `SECRET_FIELDS`. */
const PUBLIC: ReadonlySet<string> = new Set(
  (
    'listen operator publicUrl allowedHosts allowedOrigins trustedProxies stateDir auth jwt issuer audiences algorithms requiredScopes advertisedScopes scopesOnDemand scope advertised types leeway apiKeys groups introspection clientId tokenPrefix keyFile keysInRedis name ' +
    'operatorKeys limits body message processes sessions sessionsPerPrincipal parkedPerPrincipal parkedPerUpstream inFlightPerSession ' +
    'streamsPerPrincipal bodyTotal messageTotal unsentTotal sessions required idle park maxAge keepAlive events eventBytes eventBytesTotal jsonAnswers legacySse logLevel ' +
    'rates to anyone groups scopes subjects issuers clients claims endpoints per limit window repeats overload loopDelay memory idempotency keep exceptTools inFlightPerPrincipal ' +
    'audit file stdout otlp maxSize maxFiles arguments sync recordSize accessLog tracing sampling workers redis caFile tls cert ca internal advertise names maxChars instructions lists wait reload watch drain profiles upstreams includeTools excludeTools renames ' +
    'type path cwd processLimits openFiles cpuTime sandbox read write network disabled enabled prefix rawUris isolation era clientFeatures elicitationHosts samplingBudget start required timeouts connect firstByte call ' +
    'max concurrency queue queueWait maxConnections env_keys env_vars requestOptions env_http_headers bearer_token_env_var ' +
    'timeout startup_timeout_sec startup_timeout_ms connectionTimeout tool_timeout_sec enabled_tools disabled_tools disabledTools ' +
    'access claims groupClaims roles weight grants tests external prompts resources readOnly hints when deny destructive idempotent openWorld anyone keys groups scopes subjects issuers ' +
    'clients endpoints as upstream tool prompt resource at expect subject client ' +
    'kind keyId method resource stepUpScopes audience lifetime egress noProxy privateNetworks ' +
    'lock file onChange available_tools tools trust display_name description bundled version gallery icon source autoApprove alwaysAllow'
  ).split(' '),
);

test('each setting of the schema is known to hold a secret or to hold none', () => {
  const keys = [gatewaySchema, upstreamSchema].flatMap((schema) => [
    ...keysOf(z.toJSONSchema(schema, { io: 'input' })),
  ]);
  assert.deepEqual(
    keys.filter((key) => PUBLIC.has(key) === SECRET_FIELDS.has(key)),
    [],
  );
  assert.deepEqual(
    [...SECRET_FIELDS.keys()].filter((key) => !keys.includes(key)),
    [],
  );
});

const SECRET = 'hunter2-hunter2';

/** A value of a secret setting, in each form that the file allows. */
function valueFor(secrecy: string): fc.Arbitrary<unknown> {
  if (secrecy === 'url') {
    const host = 'https://example.com';
    return fc.constantFrom(`${host}/${SECRET}`, `${host}/?key=${SECRET}`, `https://me:${SECRET}@example.com/`);
  }
  if (secrecy === 'command') return fc.constantFrom<unknown>(`npx --token=${SECRET}`, ['npx', SECRET], { a: SECRET });
  if (secrecy === 'map') return fc.constantFrom<unknown>({ NAME: SECRET }, [SECRET], SECRET);
  return fc.constantFrom<unknown>(SECRET, [SECRET, '--token', SECRET], { deep: SECRET });
}

/** A log record that has a secret setting at some depth, in maps, lists or errors. */
const record = fc
  .constantFrom(...SECRET_FIELDS)
  .chain(([name, secrecy]) => valueFor(secrecy).map((value): unknown => ({ [name]: value, note: 'x' })))
  .chain((fields) =>
    fc.array(fc.constantFrom('map', 'list', 'error', 'cause'), { minLength: 1, maxLength: 6 }).map((layers) => {
      let value: unknown = fields;
      for (const layer of layers) {
        if (layer === 'list') value = [value];
        else if (layer === 'map') value = { target: value };
        else if (layer === 'error') value = Object.assign(new TypeError('failed'), value);
        else value = { err: new TypeError('failed', { cause: Object.assign(new Error('inner'), value) }) };
      }
      return { config: value, err: value instanceof Error ? value : undefined };
    }),
  );

for (const level of ['info', 'trace'] as const) {
  test(`no secret of the config is in a log line of level ${level}, at any depth`, () => {
    fc.assert(
      fc.property(record, (fields) => {
        const lines: string[] = [];
        createLogger(level, { write: (line) => void lines.push(line) }).warn(fields, 'text');
        assert.equal(lines.length, 1);
        assert.ok(!lines.join('').includes(SECRET), lines.join(''));
      }),
      { numRuns: 300 },
    );
  });
}

test('names of headers and variables stay, and of a URL its origin', () => {
  const lines: string[] = [];
  const log = createLogger('info', { write: (line) => void lines.push(line) });
  log.info(
    { target: { url: 'https://example.com/mcp?k=1', headers: { 'X-Key': SECRET } }, url: 'http://a/mcp' },
    'text',
  );
  assert.match(
    lines.join(''),
    /"target":\{"url":"https:\/\/example\.com\/…","headers":\{"X-Key":"\[redacted\]"\}\},"url":"http:\/\/a\/mcp"/,
  );
});

test('a record that contains itself is logged', () => {
  const lines: string[] = [];
  const loop: Record<string, unknown> = { name: 'x' };
  loop['self'] = loop;
  createLogger('info', { write: (line) => void lines.push(line) }).info({ loop }, 'text');
  assert.equal(lines.length, 1);
});
