import assert from 'node:assert/strict';
import { hash, randomBytes } from 'node:crypto';
import { after, test } from 'node:test';
import { isDeepStrictEqual } from 'node:util';

import { z } from 'zod';

import type { Config } from '../../../src/config/values/config.ts';
import { appliedConfig, diffConfigs, isEmptyDiff } from '../../../src/config/changes/diff.ts';
import { diffLines } from '../../../src/config/changes/diff-text.ts';
import { gatewaySchema } from '../../../src/config/schema/gateway-schema.ts';
import { SECRET_FIELDS } from '../../../src/config/schema/secret-fields.ts';
import { upstreamSchema } from '../../../src/config/schema/upstream-schema.ts';
import { isRecord } from '../../../src/json/record.ts';
import { makeCertificate } from '../../support/certificate.ts';
import { loadText } from '../../support/config-file.ts';

const REMOTE = 'url: https://example.com/mcp';
const SHA256 = '1'.repeat(64);
const LOCAL = 'command: node, args: [server.js]';

const made = await makeCertificate();
const other = await makeCertificate();
after(() => Promise.all([made, other].map((certificate) => certificate[Symbol.asyncDispose]())));
const file = (path: string) => `"\${file:${path}}"`;

/** Returns the config of a file in one place, so that its state directory does not depend on the test. */
async function configOf(servers: string, gateway = '', stateDir = '/state'): Promise<Config> {
  const { config } = await loadText(
    `mcpServers: {${servers}}\ngateway: {stateDir: ${stateDir}${gateway === '' ? '' : `, ${gateway}`}}\n`,
  );
  return { ...config, file: '/config.yaml' };
}

function idsOf(changed: readonly { readonly config: { readonly id: string } }[]): readonly string[] {
  return changed.map(({ config }) => config.id);
}

function changedIn({ replaced, updated }: ReturnType<typeof diffConfigs>): readonly string[] {
  return idsOf([...replaced, ...updated]);
}

interface Case {
  readonly name: string;
  readonly before: string;
  readonly after: string;
  /** Its name afterwards. */
  readonly title?: string;
  readonly outcome: 'kept' | 'replaced' | 'updated';
}

const auth = (secret: string, client = 'linkspan') =>
  `auth: {kind: clientCredentials, issuer: 'https://id.example.com', clientId: ${client}, clientSecret: ${secret}}`;

const upstreams: readonly Case[] = [
  { name: 'nothing', before: LOCAL, after: LOCAL, outcome: 'kept' },
  { name: 'the order of its keys', before: `${LOCAL}, start: lazy`, after: `start: lazy, ${LOCAL}`, outcome: 'kept' },
  { name: 'a default that is written out', before: LOCAL, after: `${LOCAL}, required: false`, outcome: 'kept' },
  { name: 'command', before: LOCAL, after: 'command: deno, args: [server.js]', outcome: 'replaced' },
  { name: 'args', before: LOCAL, after: 'command: node, args: [other.js]', outcome: 'replaced' },
  { name: 'env', before: LOCAL, after: `${LOCAL}, env: {A: b}`, outcome: 'replaced' },
  {
    name: 'the value of a variable',
    before: `${LOCAL}, env: {A: a}`,
    after: `${LOCAL}, env: {A: b}`,
    outcome: 'replaced',
  },
  { name: 'cwd', before: LOCAL, after: `${LOCAL}, cwd: /tmp`, outcome: 'replaced' },
  { name: 'processLimits', before: LOCAL, after: `${LOCAL}, processLimits: {openFiles: 64}`, outcome: 'replaced' },
  { name: 'sandbox', before: LOCAL, after: `${LOCAL}, sandbox: {}`, outcome: 'replaced' },
  { name: 'its transport', before: LOCAL, after: REMOTE, outcome: 'replaced' },
  { name: 'url', before: REMOTE, after: 'url: https://example.com/other', outcome: 'replaced' },
  { name: 'isolation', before: LOCAL, after: `${LOCAL}, isolation: shared`, outcome: 'replaced' },
  { name: 'era', before: REMOTE, after: `${REMOTE}, era: modern`, outcome: 'replaced' },
  { name: 'clientFeatures', before: LOCAL, after: `${LOCAL}, clientFeatures: [roots]`, outcome: 'replaced' },
  { name: 'elicitationHosts', before: LOCAL, after: `${LOCAL}, elicitationHosts: [a.example]`, outcome: 'updated' },
  { name: 'samplingBudget', before: LOCAL, after: `${LOCAL}, samplingBudget: 9`, outcome: 'updated' },
  { name: 'timeouts.connect', before: REMOTE, after: `${REMOTE}, timeouts: {connect: 1s}`, outcome: 'replaced' },
  {
    name: 'timeouts.connect of a program, which has no connection',
    before: LOCAL,
    after: `${LOCAL}, timeouts: {connect: 1s}`,
    outcome: 'updated',
  },
  {
    name: 'timeouts.connect and the transport',
    before: REMOTE,
    after: `${LOCAL}, timeouts: {connect: 1s}`,
    outcome: 'replaced',
  },
  { name: 'headers', before: REMOTE, after: `${REMOTE}, headers: {Authorization: Bearer a}`, outcome: 'updated' },
  { name: 'the kind of its credentials', before: REMOTE, after: `${REMOTE}, ${auth('a')}`, outcome: 'replaced' },
  {
    name: 'a secret of its credentials',
    before: `${REMOTE}, ${auth('a')}`,
    after: `${REMOTE}, ${auth('b')}`,
    outcome: 'updated',
  },
  {
    name: 'the client id of its credentials',
    before: `${REMOTE}, ${auth('a')}`,
    after: `${REMOTE}, ${auth('a', 'other')}`,
    outcome: 'replaced',
  },
  {
    name: 'the scopes for step-up',
    before: `${REMOTE}, ${auth('a').replace('}', ', scopes: [a]}')}`,
    after: `${REMOTE}, ${auth('a').replace('}', ', scopes: [a], stepUpScopes: [b]}')}`,
    outcome: 'replaced',
  },
  { name: 'tls', before: REMOTE, after: `${REMOTE}, tls: {ca: ${file(made.certFile)}}`, outcome: 'replaced' },
  { name: 'timeouts.call', before: REMOTE, after: `${REMOTE}, timeouts: {call: 5s}`, outcome: 'updated' },
  { name: 'concurrency', before: LOCAL, after: `${LOCAL}, concurrency: 3`, outcome: 'updated' },
  { name: 'maxConnections', before: LOCAL, after: `${LOCAL}, maxConnections: 3`, outcome: 'updated' },
  { name: 'idle', before: LOCAL, after: `${LOCAL}, idle: 5s`, outcome: 'updated' },
  { name: 'prefix', before: LOCAL, after: `${LOCAL}, prefix: b_`, outcome: 'updated' },
  { name: 'includeTools', before: LOCAL, after: `${LOCAL}, includeTools: [a]`, outcome: 'updated' },
  { name: 'required', before: LOCAL, after: `${LOCAL}, required: true`, outcome: 'updated' },
  { name: 'start', before: LOCAL, after: `${LOCAL}, start: eager, required: true`, outcome: 'updated' },
  { name: 'the spelling of its name', before: LOCAL, after: LOCAL, title: 'A', outcome: 'updated' },
  { name: 'rawUris', before: LOCAL, after: `${LOCAL}, rawUris: true`, outcome: 'updated' },
  { name: 'timeouts.start', before: LOCAL, after: `${LOCAL}, timeouts: {start: 5s}`, outcome: 'updated' },
  { name: 'timeouts.firstByte', before: REMOTE, after: `${REMOTE}, timeouts: {firstByte: 5s}`, outcome: 'updated' },
  { name: 'timeouts.max', before: LOCAL, after: `${LOCAL}, timeouts: {max: 5m}`, outcome: 'updated' },
  { name: 'queue', before: LOCAL, after: `${LOCAL}, queue: 3`, outcome: 'updated' },
  { name: 'queueWait', before: LOCAL, after: `${LOCAL}, queueWait: 3s`, outcome: 'updated' },
  { name: 'excludeTools', before: LOCAL, after: `${LOCAL}, excludeTools: [a]`, outcome: 'updated' },
  { name: 'an unset variable', before: LOCAL, after: 'command: node, args: ["${NOT_SET}"]', outcome: 'replaced' },
];

const upstreamConfigs = async ({ before, after, title = 'a' }: Case) =>
  [await configOf(`a: {${before}}`), await configOf(`${title}: {${after}}`)] as const;

for (const row of upstreams) {
  const { name, outcome } = row;
  test(`an upstream is ${outcome} if this changes: ${name}`, async () => {
    const diff = diffConfigs(...(await upstreamConfigs(row)));
    const found = { kept: [], replaced: idsOf(diff.replaced), updated: idsOf(diff.updated) };
    assert.deepEqual(found, { kept: [], replaced: [], updated: [], [outcome]: outcome === 'kept' ? [] : ['a'] });
    assert.equal(isEmptyDiff(diff), outcome === 'kept');
  });
}

for (const [call, after] of [
  ['5s', 5_000],
  ['60s', 60_000],
  ['90s', 90_000],
] as const) {
  test(`a diff has one change for timeouts.call: ${call}`, async () => {
    const row = { name: '', outcome: 'updated', before: LOCAL, after: `${LOCAL}, timeouts: {call: ${call}}` } as const;
    const [updated] = diffConfigs(...(await upstreamConfigs(row))).updated;
    const path = 'mcpServers.a.timeouts.call';
    assert.deepEqual(updated?.changes, [{ path, before: 300_000, after, secrecy: undefined }]);
  });
}

// N-88
test('an upstream whose mistake moves to another line is updated, and not replaced', async () => {
  const servers = `a: {${LOCAL}, concurrency: many}, b: {${LOCAL}}`;
  const [before, after] = [await configOf(servers), await configOf(`\n  ${servers}`)];
  assert.match(before.upstreams[0]?.problem ?? '', /config\.yaml:1:/);
  const diff = diffConfigs(before, after);
  assert.deepEqual([idsOf(diff.replaced), idsOf(diff.updated)], [[], ['a']]);
});

test('an added upstream is new, and a removed one takes its endpoint with it', async () => {
  const diff = diffConfigs(
    await configOf(`a: {${LOCAL}}, b: {${LOCAL}}`),
    await configOf(`b: {${LOCAL}}, c: {${REMOTE}}`),
  );
  assert.deepEqual(
    [diff.added.map(({ id }) => id), diff.removed, changedIn(diff), diff.removedEndpoints],
    [['c'], ['a'], [], ['a']],
  );
});

test('a renamed upstream is another one', async () => {
  const diff = diffConfigs(await configOf(`a: {${LOCAL}}`), await configOf(`b: {${LOCAL}}`));
  assert.deepEqual([diff.added.map(({ id }) => id), diff.removed], [['b'], ['a']]);
});

test('another order of upstreams is a change, and changes nothing for each of them', async () => {
  const [a, b, c, d] = [`a: {${LOCAL}}`, `b: {${REMOTE}}`, `'C c': {${LOCAL}}`, `d: {${LOCAL}}`];
  const moved = diffConfigs(await configOf([a, b, c, d].join()), await configOf([a, c, b, d].join()));
  assert.deepEqual(changedIn(moved), []);
  assert.deepEqual(
    [isEmptyDiff(moved), diffLines(moved)],
    [false, ['~ order of mcpServers: ["b","C c"] → ["C c","b"]']],
  );
  const others = diffConfigs(await configOf([a, b, c].join()), await configOf([d, b, c].join()));
  assert.deepEqual([changedIn(others), others.settings], [[], []]);
});

interface SettingCase {
  readonly gateway: string;
  readonly stateDir?: string;
  readonly path: string;
  readonly atRestart?: true;
}

const settings: readonly SettingCase[] = [
  { gateway: 'limits: {processes: 7}', path: 'gateway.limits.processes' },
  { gateway: 'limits: {body: 1MiB}', path: 'gateway.limits.body' },
  { gateway: 'sessions: {idle: 1m}', path: 'gateway.sessions.idle' },
  { gateway: 'listen: 127.0.0.1:4000', path: 'gateway.listen.port' },
  { gateway: 'allowedHosts: [a.example]', path: 'gateway.allowedHosts' },
  { gateway: 'lists: {wait: 1s}', path: 'gateway.lists.wait' },
  { gateway: 'reload: {drain: 1s}', path: 'gateway.reload.drain' },
  { gateway: 'logLevel: debug', path: 'gateway.logLevel' },
  { gateway: 'listen: 127.0.0.2:3000', path: 'gateway.listen.host' },
  { gateway: 'operator: 127.0.0.1:4001', path: 'gateway.operator.port' },
  { gateway: 'operator: 127.0.0.2:3001', path: 'gateway.operator.host' },
  { gateway: 'publicUrl: "https://a.example"', path: 'gateway.publicUrl' },
  { gateway: `tls: {cert: ${file(made.certFile)}, key: ${file(made.keyFile)}}`, path: 'gateway.tls' },
  { gateway: 'allowedOrigins: ["https://a.example"]', path: 'gateway.allowedOrigins' },
  { gateway: 'trustedProxies: [10.0.0.0/8]', path: 'gateway.trustedProxies' },
  { gateway: `auth: {apiKeys: [{name: a, sha256: "${SHA256}"}]}`, path: 'gateway.auth.apiKeys' },
  {
    gateway: 'auth: {jwt: [{issuer: "https://a.example", jwksUrl: "https://a.example/keys"}]}',
    path: 'gateway.auth.jwt',
  },
  {
    gateway:
      'auth: {jwt: [{issuer: "https://a.example", jwksUrl: "https://a.example/keys", scopesOnDemand: [{scope: w, advertised: "api://w"}]}]}',
    path: 'gateway.auth.jwt',
  },
  {
    gateway:
      'auth: {introspection: [{issuer: "https://a.example", endpoint: "https://a.example/i", clientId: g, clientSecret: s3cr3t}]}',
    path: 'gateway.auth.introspection',
  },
  { gateway: 'auth: {keyFile: keys.json}', path: 'gateway.auth.keyFile' },
  { gateway: `operatorKeys: [{name: a, sha256: "${SHA256}"}]`, path: 'gateway.operatorKeys' },
  { gateway: 'limits: {message: 1MiB}', path: 'gateway.limits.message' },
  { gateway: 'limits: {sessions: 7}', path: 'gateway.limits.sessions' },
  { gateway: 'limits: {sessionsPerPrincipal: 7}', path: 'gateway.limits.sessionsPerPrincipal' },
  { gateway: 'limits: {parkedPerPrincipal: 7}', path: 'gateway.limits.parkedPerPrincipal' },
  { gateway: 'limits: {parkedPerUpstream: 7}', path: 'gateway.limits.parkedPerUpstream' },
  { gateway: 'limits: {inFlightPerSession: 7}', path: 'gateway.limits.inFlightPerSession' },
  { gateway: 'limits: {streamsPerPrincipal: 7}', path: 'gateway.limits.streamsPerPrincipal' },
  { gateway: 'sessions: {maxAge: 1d}', path: 'gateway.sessions.maxAge' },
  { gateway: 'sessions: {park: 1m}', path: 'gateway.sessions.park' },
  { gateway: 'sessions: {required: false}', path: 'gateway.sessions.required' },
  { gateway: 'jsonAnswers: [/mcp]', path: 'gateway.jsonAnswers' },
  { gateway: 'legacySse: false', path: 'gateway.legacySse' },
  { gateway: 'names: {maxChars: 40}', path: 'gateway.names.maxChars' },
  { gateway: 'instructions: {maxChars: 40}', path: 'gateway.instructions.maxChars' },
  { gateway: 'reload: {watch: false}', path: 'gateway.reload.watch' },
  { stateDir: '/other', gateway: '', path: 'gateway.stateDir', atRestart: true },
  { gateway: 'accessLog: none', path: 'gateway.accessLog', atRestart: true },
  { gateway: 'sessions: {keepAlive: 1s}', path: 'gateway.sessions.keepAlive', atRestart: true },
  { gateway: 'sessions: {eventBytes: 1MiB}', path: 'gateway.sessions.eventBytes', atRestart: true },
  { gateway: 'sessions: {eventBytesTotal: 64MiB}', path: 'gateway.sessions.eventBytesTotal', atRestart: true },
  { gateway: 'limits: {unsentTotal: 64MiB}', path: 'gateway.limits.unsentTotal', atRestart: true },
  { gateway: 'limits: {messageTotal: 64MiB}', path: 'gateway.limits.messageTotal', atRestart: true },
  { gateway: 'sessions: {events: 1}', path: 'gateway.sessions.events', atRestart: true },
  { gateway: 'limits: {bodyTotal: 64MiB}', path: 'gateway.limits.bodyTotal' },
  { gateway: 'egress: {privateNetworks: [10.0.0.0/8]}', path: 'gateway.egress', atRestart: true },
  { gateway: 'workers: 2', path: 'gateway.workers', atRestart: true },
  { gateway: 'tracing: {sampling: 0.5}', path: 'gateway.tracing', atRestart: true },
  { gateway: 'audit: {stdout: true}', path: 'gateway.audit', atRestart: true },
  { gateway: 'rates: [{name: a, to: {anyone: true}, limit: 1, window: 1m}]', path: 'gateway.rates' },
  { gateway: 'repeats: {limit: 3, window: 1m}', path: 'gateway.repeats' },
  { gateway: 'overload: {loopDelay: false}', path: 'gateway.overload.loopDelay' },
  { gateway: 'overload: {memory: 1GiB}', path: 'gateway.overload.memory' },
  { gateway: 'idempotency: {keep: 1h}', path: 'gateway.idempotency.keep' },
  { gateway: 'limits: {inFlightPerPrincipal: 7}', path: 'gateway.limits.inFlightPerPrincipal' },
];

const gatewayConfigs = async ({ gateway, stateDir }: SettingCase) =>
  [await configOf(`a: {${LOCAL}}`), await configOf(`a: {${LOCAL}}`, gateway, stateDir)] as const;

for (const row of settings) {
  const { path, atRestart } = row;
  test(`${path} takes effect ${atRestart === true ? 'at the next start' : 'at once'}`, async () => {
    const [before, after] = await gatewayConfigs(row);
    const diff = diffConfigs(before, after);
    const found = atRestart === true ? diff.atRestart : diff.settings;
    assert.deepEqual([found.map((change) => change.path), changedIn(diff)], [[path], []]);
    assert.equal(diff.settings.length + diff.atRestart.length, 1);
    const rest = diffConfigs(appliedConfig(before, after), after);
    assert.deepEqual(rest.atRestart, diff.atRestart, 'a setting that is not applied stays a difference');
    assert.equal(rest.settings.length, 0);
  });
}

// P-012
test('a change of the decision point takes effect at once, and shows no secret', async () => {
  const accessOf = (external: string) =>
    `access: {roles: {}, grants: [], external: {url: "https://a.example"${external}}}`;
  const before = await configOf(`a: {${LOCAL}}`, accessOf(''));
  for (const [changed, path] of [
    [', timeout: 1s', 'timeout'], // subject
    [', upstreams: [a]', 'upstreams'],
    [', arguments: true', 'arguments'],
    [', headers: {Authorization: canary}', 'headers.Authorization'],
  ]) {
    const diff = diffConfigs(before, await configOf(`a: {${LOCAL}}`, accessOf(changed ?? '')));
    assert.deepEqual(
      [diff.settings.map((one) => one.path), changedIn(diff)],
      [[`gateway.access.external.${path}`], []],
    );
    assert.doesNotMatch(diffLines(diff).join('\n'), /canary/);
  }
});

/** Returns the settings at which two groups of settings differ, as `limits.processes`; all below a group that only one has. */
function differences(before: unknown, after: unknown, at = ''): readonly string[] {
  if (isDeepStrictEqual(before, after)) return [];
  const [one, other] = [membersOf(before), membersOf(after)];
  const keys = new Set([...Object.keys(one), ...Object.keys(other)]);
  if (keys.size === 0) return [at];
  return [...keys].flatMap((key) => differences(one[key], other[key], at === '' ? key : `${at}.${key}`));
}

function membersOf(value: unknown): Readonly<Record<string, unknown>> {
  return typeof value === 'object' && value !== null && !Array.isArray(value) ? { ...value } : {};
}

/** Returns the settings of a group, as {@link differences} names them. */
function settingsIn(group: object): readonly string[] {
  return differences(group, undefined);
}

test('every setting of an upstream has a row in the table of outcomes', async () => {
  const changed: string[] = [];
  for (const row of upstreams) {
    const [before, after] = await upstreamConfigs(row);
    changed.push(...differences(before.upstreams[0], after.upstreams[0]));
  }
  const { upstreams: found } = await configOf(`a: {${LOCAL}, cwd: /tmp}, b: {${REMOTE}}`);
  const names = new Set(found.flatMap((upstream) => settingsIn(upstream)));
  // The upstream is found by its id.
  names.delete('id');
  assert.deepEqual(
    [...names].filter((name) => !changed.some((other) => `${other}.`.startsWith(`${name}.`))),
    [],
  );
});

test('every setting of the gateway has a row in the table of effects', async () => {
  const changed: string[] = [];
  for (const row of settings) changed.push(...differences(...(await gatewayConfigs(row))));
  const {
    file: _file,
    operatorMayMove: _moves,
    upstreams: _upstreams,
    profiles: _profiles,
    ...rest
  } = await configOf('');
  assert.deepEqual(
    settingsIn(rest).filter((name) => !changed.some((other) => `${other}.`.startsWith(`${name}.`))),
    [],
  );
});

test('a changed profile is a setting, and a removed one an endpoint', async () => {
  const profiles = async (text: string) => await configOf(`a: {${LOCAL}}`, `profiles: {${text}}`);
  const diff = diffConfigs(await profiles('p: {}, q: {}'), await profiles('p: {excludeTools: [x]}'));
  assert.deepEqual(diff.removedEndpoints, ['q']);
  assert.deepEqual(
    diff.settings.map(({ path }) => path),
    ['gateway.profiles.p.excludeTools', 'gateway.profiles.q'],
  );
});

test('no line of a difference shows a secret', async () => {
  const secrets = async (n: number) =>
    await configOf(
      `a: {command: node, args: ['--key', secret-${n}], env: {TOKEN: secret-${n}}}, ` +
        `b: {url: 'https://example.com/secret-${n}/mcp?key=secret-${n}', headers: {Authorization: Bearer secret-${n}}}`,
      `auth: {apiKeys: [{name: ci, sha256: "${String(n).repeat(64)}"}]}, ` +
        `operatorKeys: [{name: ops, sha256: "${String(n).repeat(64)}"}], ` +
        `tracing: {endpoint: 'https://example.com/secret-${n}'}`,
    );
  const lines = diffLines(diffConfigs(await secrets(1), await secrets(2)));
  const text = lines.join('\n');
  assert.equal(lines.length, 7);
  assert.doesNotMatch(text, /secret|1111|2222/);
  assert.match(
    text,
    /tracing\.endpoint: https:\/\/example\.com\/… → https:\/\/example\.com\/… \(changed, not shown: path\)/,
  );
  for (const path of [
    'a.args',
    'a.env.TOKEN',
    'b.url',
    'b.headers.Authorization',
    'gateway.auth.apiKeys',
    'gateway.operatorKeys',
    'gateway.tracing.endpoint',
  ]) {
    assert.ok(text.includes(`${path}:`), `${path} is named`);
  }
});

/** Returns a random key that differs for each number. */
const keyOf = (n: number) => hash('sha256', `key ${n}`, 'base64');

const hidden: readonly {
  readonly name: string;
  readonly before: string;
  readonly after: string;
  readonly line: string;
}[] = [
  {
    name: 'other keys of the audit log',
    before: `audit: {file: a.log, chainKeys: ["${keyOf(1)}"]}`,
    after: `audit: {file: a.log, chainKeys: ["${keyOf(2)}", "${keyOf(1)}"]}`,
    line: '~ gateway.audit.chainKeys: set → set (not shown), after a restart',
  },
  {
    name: 'headers of a receiver of the audit log',
    before: 'audit: {file: a.log}',
    after: 'audit: {otlp: {endpoint: "http://127.0.0.1:1", headers: {Authorization: canary}}}',
    line: '~ gateway.audit.otlp: unset → set (not shown), after a restart',
  },
  {
    name: 'a proxy with a password, where there was none',
    before: '',
    after: 'egress: {proxy: "http://u:canary@p:1"}',
    line: '~ gateway.egress: unset → set (not shown), after a restart',
  },
  {
    name: 'another password of a proxy',
    before: 'egress: {proxy: "http://u:canary1@p:1"}',
    after: 'egress: {proxy: "http://u:canary2@p:1"}',
    line: '~ gateway.egress.proxy: http://p:1 → http://p:1 (changed, not shown: password), after a restart',
  },
  {
    name: 'another password of Redis',
    before: `redis: {url: "redis://u:canary1@h", wrappingKeys: ["${keyOf(1)}"]}`,
    after: `redis: {url: "redis://u:canary2@h", wrappingKeys: ["${keyOf(1)}"]}`,
    line: '~ gateway.redis.url: set → set (not shown), after a restart',
  },
];

for (const row of hidden) {
  test(`the line of a difference hides ${row.name}`, async () => {
    const lines = diffLines(diffConfigs(await configOf('', row.before), await configOf('', row.after)));
    assert.ok(lines.includes(row.line), lines.join('\n'));
    assert.doesNotMatch(lines.join('\n'), /canary/);
  });
}

/** Returns the places of settings with secrets in a JSON Schema; `*` is any key of a map. */
function secretPlaces(schema: unknown, at: readonly string[] = []): readonly (readonly string[])[] {
  if (!isRecord(schema)) return [];
  const { properties, items, additionalProperties, anyOf, oneOf, allOf } = schema;
  const same = [items, anyOf, oneOf, allOf].flat().flatMap((inner) => secretPlaces(inner, at));
  const members = Object.entries(isRecord(properties) ? properties : {}).flatMap(([key, member]) => {
    // Keys that only have an explanation accept nothing.
    if (isRecord(member) && 'not' in member) return [];
    return SECRET_FIELDS.has(key) ? [[...at, key]] : secretPlaces(member, [...at, key]);
  });
  return [...same, ...members, ...secretPlaces(additionalProperties, [...at, '*'])];
}

function hasPlace(value: unknown, place: readonly string[]): boolean {
  const [step, ...rest] = place;
  if (step === undefined) return value !== undefined;
  if (Array.isArray(value)) return value.some((item: unknown) => hasPlace(item, place));
  if (!isRecord(value)) return false;
  return step === '*' ? Object.values(value).some((member) => hasPlace(member, rest)) : hasPlace(value[step], rest);
}

/** Returns settings with a secret at each place that may have one. Those of two numbers differ. */
function settingsWithSecrets(n: number) {
  const { certFile, keyFile, key } = n === 1 ? made : other;
  const tls = { cert: `\${file:${certFile}}`, key: `\${file:${keyFile}}` };
  const canary = `canary-${n}`;
  const url = `https://example.com/${canary}?key=${canary}`;
  const sha256 = hash('sha256', canary);
  const tokens = { kind: 'clientCredentials', clientId: 'c', tokenUrl: url, parameters: { a: canary } };
  const gateway = {
    stateDir: '/state',
    publicUrl: 'https://gateway.example.com',
    tls,
    auth: {
      jwt: [{ issuer: 'https://id.example.com', jwksUrl: url }],
      introspection: [{ issuer: 'https://other.example.com', clientId: 'c', endpoint: url, clientSecret: canary }],
      apiKeys: [{ name: 'a', sha256 }],
    },
    operatorKeys: [{ name: 'o', sha256: hash('sha256', `operator ${canary}`) }],
    access: { roles: {}, grants: [], external: { url, headers: { A: canary } } },
    tracing: { endpoint: url },
    audit: { otlp: { endpoint: url, headers: { Authorization: canary }, tls }, chainKeys: [keyOf(n)] },
    egress: { proxy: `http://${canary}:${canary}@p:1` },
    redis: { url: `redis://u:${canary}@h`, wrappingKeys: [keyOf(-n)] },
  };
  const upstreams = {
    a: { command: 'node', args: [canary], env: { A: canary }, envFile: `\${ENV_FILE}` },
    b: { command: { path: `node ${canary}`, args: [canary], env: { A: canary } } },
    c: { command: 'node', environment: { A: canary }, settings: { a: canary }, dev: { a: canary } },
    d: { cmd: `node --token=${canary}`, envs: { A: canary } },
    e: { url, headers: { A: canary }, tls, auth: { ...tokens, clientSecret: canary } },
    f: { url, auth: { ...tokens, privateKey: tls.key } },
    g: { serverUrl: url, http_headers: { A: canary } },
    h: { httpUrl: url },
    i: { uri: url, requestOptions: { headers: { A: canary } } },
  };
  const secrets = [canary, sha256, gateway.operatorKeys[0]?.sha256, keyOf(n), keyOf(-n), key.split('\n')[1]];
  return { gateway, upstreams, secrets: secrets.map((secret = '') => secret.slice(0, 12)) };
}

test('a difference shows the first word of a command', async () => {
  const [before, after] = [await configOf('a: {command: npx -y x --token=s}'), await configOf('a: {command: npx}')];
  assert.deepEqual(diffLines(diffConfigs(before, after)), [
    '~ mcpServers.a.command: "npx …" → "npx", in a new connection',
  ]);
});

test('no line of a difference shows a secret, whichever setting comes, changes or goes', async () => {
  const load = async (settings: { readonly gateway: object; readonly upstreams: object }) => {
    const text = JSON.stringify({ mcpServers: settings.upstreams, gateway: settings.gateway });
    const { config, problems } = await loadText(text, { env: { ENV_FILE: made.certFile } });
    assert.deepEqual(problems, []);
    return { ...config, file: '/config.yaml' };
  };
  const [one, two] = [settingsWithSecrets(1), settingsWithSecrets(2)];
  const upstream = z.toJSONSchema(upstreamSchema, { io: 'input' });
  const places = [
    ...secretPlaces(z.toJSONSchema(gatewaySchema, { io: 'input' }), ['gateway']),
    ...secretPlaces(upstream.$defs?.['upstream'] ?? upstream, ['upstreams', '*']),
  ];
  assert.ok(places.length > 30, `${places.length} places`);
  assert.deepEqual(
    // Tests of access rules are no part of a config that runs.
    places.filter((place) => !hasPlace(one, place) && !place.join('.').startsWith('gateway.access.tests.')),
    [],
    'each secret setting needs a value in settingsWithSecrets',
  );
  const bare = {
    gateway: { stateDir: '/state' },
    upstreams: Object.fromEntries(Object.keys(one.upstreams).map((id) => [id, { command: 'deno' }])),
  };
  const configs = [await load(bare), await load(one), await load(two), await load(bare)];
  for (const [index, after] of configs.slice(1).entries()) {
    const before = configs[index];
    assert.ok(before !== undefined);
    const lines = diffLines(diffConfigs(before, after)).join('\n');
    const shown = [...one.secrets, ...two.secrets].filter((secret) => lines.includes(secret));
    assert.deepEqual(shown, [], lines);
  }
});

test('names of upstreams and profiles do not hide their settings', async () => {
  const lines = diffLines(
    diffConfigs(
      await configOf(`args: {${LOCAL}}, env: {${LOCAL}}`, 'profiles: {key: {excludeTools: [a]}}'),
      await configOf(
        `args: {${LOCAL}, idle: 5s}, env: {${LOCAL}, queueWait: 1s}`,
        'profiles: {key: {excludeTools: [b]}}',
      ),
    ),
  );
  assert.deepEqual(lines, [
    '~ mcpServers.args.idle: 600000 → 5000',
    '~ mcpServers.env.queueWait: 5000 → 1000',
    '~ gateway.profiles.key.excludeTools: ["a"] → ["b"]',
  ]);
});

const urls: readonly { readonly to: string; readonly line: string }[] = [
  { to: 'https://example.com/other', line: 'https://example.com/… → https://example.com/… (changed, not shown: path)' },
  {
    to: 'https://example.com/mcp?k=1',
    line: 'https://example.com/… → https://example.com/… (changed, not shown: query)',
  },
  { to: 'https://example.com/', line: 'https://example.com/… → https://example.com (changed, not shown: path)' },
  { to: 'https://example.net/mcp', line: 'https://example.com/… → https://example.net/…' },
  {
    to: 'https://example.net/a?b#c',
    line: 'https://example.com/… → https://example.net/… (changed, not shown: path, query, fragment)',
  },
];

for (const { to, line } of urls) {
  test(`a URL that becomes ${to} shows which hidden parts differ`, async () => {
    const lines = diffLines(diffConfigs(await configOf(`a: {${REMOTE}}`), await configOf(`a: {url: '${to}'}`)));
    assert.deepEqual(lines, [`~ mcpServers.a.url: ${line}, in a new connection`]);
  });
}

test('a line of a difference shows the values before and after', async () => {
  const lines = diffLines(
    diffConfigs(
      await configOf(`a: {${LOCAL}}`),
      await configOf(`a: {${LOCAL}, concurrency: 3}, b: {${REMOTE}}`, 'limits: {processes: 7}'),
    ),
  );
  assert.deepEqual(lines, [
    '+ mcpServers.b (http)',
    '~ mcpServers.a.concurrency: 32 → 3',
    '~ mcpServers.a.queue: 64 → 6',
    '~ gateway.limits.processes: 128 → 7',
  ]);
});

test('a change of gateway.redis waits for a restart, and shows no secret', async () => {
  const key = () => randomBytes(32).toString('base64');
  const redis = (password: string) => `redis: {url: "redis://u:${password}@h", wrappingKeys: ["${key()}"]}`;
  const [before, after] = [
    await configOf(`a: {${LOCAL}}`, redis('canary1')),
    await configOf(`a: {${LOCAL}}`, redis('canary2')),
  ];
  const diff = diffConfigs(before, after);
  assert.deepEqual(diff.settings, []);
  assert.ok(diff.atRestart.length > 0);
  assert.equal(appliedConfig(before, after).redis, before.redis);
  const lines = diffLines(diff).join('\n');
  const secrets = ['canary', ...(before.redis?.wrappingKeys ?? []), ...(after.redis?.wrappingKeys ?? [])];
  assert.deepEqual(
    secrets.filter((secret) => lines.includes(secret)),
    [],
  );
});
