import assert from 'node:assert/strict';
import { test } from 'node:test';
import { loadText } from '../support/config-file.ts';

/** Returns the listed settings of an entry, by their names in it. */
async function settingsOfEntry(entry: object, map = 'mcpServers') {
  const { settings } = await loadText(JSON.stringify({ [map]: { a: entry, b: { command: 'node' } } }), {
    name: 'linkspan.json',
  });
  const listed = settings().filter(({ key, origin }) => origin === 'file' && key.startsWith(`${map}.a`));
  return Object.fromEntries(listed.map(({ key, value }) => [key.slice(map.length + 3), value]));
}

const SECRET = 'ghp_canary';

const rows: readonly {
  readonly name: string;
  readonly entry: object;
  readonly map?: string;
  readonly shown: object;
}[] = [
  {
    name: 'an unknown key',
    entry: { command: 'node', apiToken: SECRET, oauth: { secret: SECRET } },
    shown: { command: 'node' },
  },
  {
    name: 'the settings of an extension of Zed',
    entry: { command: 'node', settings: { github_personal_access_token: SECRET }, dev: { a: SECRET } },
    map: 'context_servers',
    shown: { command: 'node', settings: '[redacted]', dev: '[redacted]' },
  },
  {
    name: 'an unknown key inside a map',
    entry: { url: 'https://a.example/mcp', auth: { kind: 'clientCredentials', clientId: 'c', clientSecrt: SECRET } },
    shown: { url: 'https://a.example/…', auth: { kind: 'clientCredentials', clientId: 'c' } },
  },
  {
    name: 'other options of Continue',
    entry: { url: 'https://a.example/', requestOptions: { headers: { A: SECRET }, extra: SECRET, tls: { b: SECRET } } },
    shown: { url: 'https://a.example', requestOptions: { headers: { A: '[redacted]' } } },
  },
  {
    name: 'settings of single tools of Codex, and other ignored maps',
    entry: { command: 'node', tools: { t: { token: SECRET } }, source: { token: SECRET } },
    shown: { command: 'node', tools: {}, source: {} },
  },
  {
    name: 'variables and a URL in a wrong form',
    entry: { command: 'node', env: [`TOKEN=${SECRET}`], headers: SECRET, url: [SECRET] },
    shown: { command: 'node', env: '[redacted]', headers: '[redacted]', url: '[redacted]' },
  },
  {
    name: 'the value in a name without one',
    entry: { url: 'https://a.example/', headers: { [`A: ${SECRET}`]: null, B: SECRET }, env: { [`C=${SECRET}`]: '' } },
    shown: {
      url: 'https://a.example',
      headers: { 'A:…': '[redacted]', B: '[redacted]' },
      env: { 'C=…': '[redacted]' },
    },
  },
  {
    name: 'the arguments in a command',
    entry: { command: `npx -y x --token=${SECRET}` },
    shown: { command: 'npx …' },
  },
  {
    name: 'the arguments in the command of Zed',
    entry: { command: { path: `node x.js ${SECRET}`, args: [SECRET] } },
    shown: { command: { path: 'node …', args: '[redacted]' } },
  },
  {
    name: 'no setting that holds none',
    entry: {
      command: ['node', SECRET],
      env_http_headers: { A: 'B' },
      env_vars: [{ name: 'C' }],
      timeouts: { call: '5s' },
    },
    shown: {
      command: ['node', '[redacted]'],
      env_http_headers: { A: 'B' },
      env_vars: [{ name: 'C' }],
      'timeouts.call': '5s',
    },
  },
];

for (const { name, entry, map, shown } of rows) {
  test(`the list of settings hides ${name}`, async () => {
    assert.deepEqual(await settingsOfEntry(entry, map), shown);
  });
}

test('the list of settings shows access rules without the values of variables', async () => {
  const when = 'args.pin == "${PIN}"';
  const test = { as: { claims: { pin: '${PIN}' } }, upstream: 'a', tool: 't', expect: 'deny' };
  const access = { roles: { r: { when } }, grants: [{ roles: ['r'], keys: ['${PIN}'] }], tests: [test] };
  const gateway = {
    access,
    listen: '127.0.0.1:${PORT}',
    auth: { apiKeys: [{ name: SECRET, sha256: '1'.repeat(64) }] },
  };
  const text = JSON.stringify({ gateway, mcpServers: { a: { command: 'node' } } });
  const { settings } = await loadText(text, { name: 'linkspan.json', env: { PIN: SECRET, PORT: '4000' } });
  const listed = new Map(settings().map(({ key, value }) => [key, value]));
  assert.deepEqual(listed.get('gateway.access.roles'), access.roles);
  assert.deepEqual(listed.get('gateway.access.grants'), access.grants);
  assert.deepEqual(listed.get('gateway.access.tests'), access.tests);
  assert.equal(listed.get('gateway.listen'), '127.0.0.1:4000');
});
