import assert from 'node:assert/strict';
import { test } from 'node:test';

import type { Config } from '../../src/config/config.ts';
import { appliedConfig, diffConfigs, isEmptyDiff } from '../../src/config/diff.ts';
import { diffLines } from '../../src/config/diff-text.ts';
import { loadText } from '../support/config-file.ts';

const REMOTE = 'url: https://example.com/mcp';
const LOCAL = 'command: node, args: [server.js]';

/** Returns the config of a file in one place, so that its state directory does not depend on the test. */
function configOf(servers: string, gateway = ''): Config {
  const { config } = loadText(
    `mcpServers: {${servers}}\ngateway: {stateDir: /state${gateway === '' ? '' : `, ${gateway}`}}\n`,
  );
  return { ...config, file: '/config.yaml' };
}

function idsOf(changed: readonly { readonly config: { readonly id: string } }[]): readonly string[] {
  return changed.map(({ config }) => config.id);
}

interface Case {
  readonly name: string;
  readonly before: string;
  readonly after: string;
  readonly outcome: 'kept' | 'replaced' | 'updated';
}

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
  { name: 'its transport', before: LOCAL, after: REMOTE, outcome: 'replaced' },
  { name: 'url', before: REMOTE, after: 'url: https://example.com/other', outcome: 'replaced' },
  { name: 'isolation', before: LOCAL, after: `${LOCAL}, isolation: shared`, outcome: 'replaced' },
  { name: 'era', before: REMOTE, after: `${REMOTE}, era: modern`, outcome: 'replaced' },
  { name: 'clientFeatures', before: LOCAL, after: `${LOCAL}, clientFeatures: [roots]`, outcome: 'replaced' },
  { name: 'timeouts.connect', before: REMOTE, after: `${REMOTE}, timeouts: {connect: 1s}`, outcome: 'replaced' },
  { name: 'headers', before: REMOTE, after: `${REMOTE}, headers: {Authorization: Bearer a}`, outcome: 'updated' },
  { name: 'timeouts.call', before: REMOTE, after: `${REMOTE}, timeouts: {call: 5s}`, outcome: 'updated' },
  { name: 'concurrency', before: LOCAL, after: `${LOCAL}, concurrency: 3`, outcome: 'updated' },
  { name: 'maxConnections', before: LOCAL, after: `${LOCAL}, maxConnections: 3`, outcome: 'updated' },
  { name: 'idle', before: LOCAL, after: `${LOCAL}, idle: 5s`, outcome: 'updated' },
  { name: 'prefix', before: LOCAL, after: `${LOCAL}, prefix: b_`, outcome: 'updated' },
  { name: 'includeTools', before: LOCAL, after: `${LOCAL}, includeTools: [a]`, outcome: 'updated' },
  { name: 'required', before: LOCAL, after: `${LOCAL}, required: true`, outcome: 'updated' },
  { name: 'start', before: LOCAL, after: `${LOCAL}, start: eager, required: true`, outcome: 'updated' },
];

for (const { name, before, after, outcome } of upstreams) {
  test(`an upstream is ${outcome} if this changes: ${name}`, () => {
    const diff = diffConfigs(configOf(`a: {${before}}`), configOf(`a: {${after}}`));
    const found = { kept: diff.kept, replaced: idsOf(diff.replaced), updated: idsOf(diff.updated) };
    assert.deepEqual(found, { kept: [], replaced: [], updated: [], [outcome]: ['a'] });
    assert.equal(isEmptyDiff(diff), outcome === 'kept');
  });
}

test('an added upstream is new, and a removed one takes its endpoint with it', () => {
  const diff = diffConfigs(configOf(`a: {${LOCAL}}, b: {${LOCAL}}`), configOf(`b: {${LOCAL}}, c: {${REMOTE}}`));
  assert.deepEqual(
    [diff.added.map(({ id }) => id), diff.removed, diff.kept, diff.removedEndpoints],
    [['c'], ['a'], ['b'], ['a']],
  );
});

test('a renamed upstream is another one', () => {
  const diff = diffConfigs(configOf(`a: {${LOCAL}}`), configOf(`b: {${LOCAL}}`));
  assert.deepEqual([diff.added.map(({ id }) => id), diff.removed], [['b'], ['a']]);
});

test('another order of upstreams changes nothing for each of them', () => {
  const diff = diffConfigs(configOf(`a: {${LOCAL}}, b: {${REMOTE}}`), configOf(`b: {${REMOTE}}, a: {${LOCAL}}`));
  assert.deepEqual(diff.kept, ['b', 'a']);
});

const settings: readonly { readonly gateway: string; readonly path: string; readonly atRestart?: true }[] = [
  { gateway: 'limits: {processes: 7}', path: 'gateway.limits.processes' },
  { gateway: 'limits: {body: 1MiB}', path: 'gateway.limits.body' },
  { gateway: 'sessions: {idle: 1m}', path: 'gateway.sessions.idle' },
  { gateway: 'listen: 127.0.0.1:4000', path: 'gateway.listen.port' },
  { gateway: 'allowedHosts: [a.example]', path: 'gateway.allowedHosts' },
  { gateway: 'lists: {wait: 1s}', path: 'gateway.lists.wait' },
  { gateway: 'reload: {drain: 1s}', path: 'gateway.reload.drain' },
  { gateway: 'logLevel: debug', path: 'gateway.logLevel' },
  { gateway: 'sessions: {events: 1}', path: 'gateway.sessions.events', atRestart: true },
  { gateway: 'limits: {bodyTotal: 64MiB}', path: 'gateway.limits.bodyTotal', atRestart: true },
  { gateway: 'tracing: {sampling: 0.5}', path: 'gateway.tracing', atRestart: true },
];

for (const { gateway, path, atRestart } of settings) {
  test(`${path} takes effect ${atRestart === true ? 'at the next start' : 'at once'}`, () => {
    const [before, after] = [configOf(`a: {${LOCAL}}`), configOf(`a: {${LOCAL}}`, gateway)];
    const diff = diffConfigs(before, after);
    const found = atRestart === true ? diff.atRestart : diff.settings;
    assert.deepEqual([found.map((change) => change.path), diff.kept], [[path], ['a']]);
    assert.equal(diff.settings.length + diff.atRestart.length, 1);
    const rest = diffConfigs(appliedConfig(before, after), after);
    assert.deepEqual(rest.atRestart, diff.atRestart, 'a setting that is not applied stays a difference');
    assert.equal(rest.settings.length, 0);
  });
}

test('a changed profile is a setting, and a removed one an endpoint', () => {
  const profiles = (text: string) => configOf(`a: {${LOCAL}}`, `profiles: {${text}}`);
  const diff = diffConfigs(profiles('p: {}, q: {}'), profiles('p: {excludeTools: [x]}'));
  assert.deepEqual(diff.removedEndpoints, ['q']);
  assert.deepEqual(
    diff.settings.map(({ path }) => path),
    ['gateway.profiles.p.excludeTools', 'gateway.profiles.q'],
  );
});

test('no line of a difference shows a secret', () => {
  const secrets = (n: number) =>
    configOf(
      `a: {command: node, args: ['--key', secret-${n}], env: {TOKEN: secret-${n}}}, ` +
        `b: {url: 'https://example.com/secret-${n}/mcp?key=secret-${n}', headers: {Authorization: Bearer secret-${n}}}`,
      `auth: {apiKeys: [{name: ci, sha256: "${String(n).repeat(64)}"}]}, ` +
        `operatorKeys: [{name: ops, sha256: "${String(n).repeat(64)}"}], ` +
        `tracing: {endpoint: 'https://example.com/secret-${n}'}`,
    );
  const lines = diffLines(diffConfigs(secrets(1), secrets(2)));
  const text = lines.join('\n');
  assert.equal(lines.length, 7);
  assert.doesNotMatch(text, /secret|1111|2222/);
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
  test(`a URL that becomes ${to} shows which hidden parts of it changed`, () => {
    const lines = diffLines(diffConfigs(configOf(`a: {${REMOTE}}`), configOf(`a: {url: '${to}'}`)));
    assert.deepEqual(lines, [`~ mcpServers.a.url: ${line}, in a new connection`]);
  });
}

test('a line of a difference shows the values before and after', () => {
  const lines = diffLines(
    diffConfigs(
      configOf(`a: {${LOCAL}}`),
      configOf(`a: {${LOCAL}, concurrency: 3}, b: {${REMOTE}}`, 'limits: {processes: 7}'),
    ),
  );
  assert.deepEqual(lines, [
    '+ mcpServers.b (http)',
    '~ mcpServers.a.concurrency: 32 → 3',
    '~ mcpServers.a.queue: 64 → 6',
    '~ gateway.limits.processes: 128 → 7',
  ]);
});
