import assert from 'node:assert/strict';
import { globSync, readFileSync } from 'node:fs';
import { basename, join } from 'node:path';
import { test } from 'node:test';
import { gatewaySchema } from '../../../src/config/schema/gateway-schema.ts';
import { loadText, problemsOf } from '../../support/config-file.ts';
import { shortened } from '../../support/test-name.ts';

const FOLDER = join(import.meta.dirname, '../../fixtures/config');
const SETTINGS = Object.keys(gatewaySchema.shape);
const URL_ENTRY = '{"url": "https://x"}';

/** Returns a word with its first two letters in the other order. */
function misspelled(word: string): string {
  return `${word.slice(1, 2)}${word.slice(0, 1)}${word.slice(2)}`;
}

/** Files without a mistake, to which a key is added in the second line. */
const files = [
  {
    what: 'beside gateway',
    name: 'config.yaml',
    isOwn: true,
    text: (line: string) => `gateway: {}\n${line}: {}\nmcpServers: {a: ${URL_ENTRY}}\n`,
  },
  {
    what: 'in YAML',
    name: 'config.yaml',
    isOwn: true,
    text: (line: string) => `mcpServers: {a: ${URL_ENTRY}}\n${line}: {}\n`,
  },
  {
    what: 'in TOML',
    name: 'config.toml',
    isOwn: true,
    text: (line: string) => `mcpServers.a = {url = "https://x"}\n${line} = {}\n`,
  },
  {
    what: 'in our JSON',
    name: 'config.json',
    isOwn: true,
    text: (line: string) => `{"gateway": {},\n"${line}": {}, "mcpServers": {"a": ${URL_ENTRY}}}`,
  },
  {
    what: 'beside servers',
    name: 'mcp.json',
    isOwn: true,
    text: (line: string) => `{"gateway": {},\n"${line}": {}, "servers": {"a": ${URL_ENTRY}}}`,
  },
  {
    what: 'in JSON',
    name: 'mcp.json',
    isOwn: false,
    text: (line: string) => `{"mcpServers": {"a": ${URL_ENTRY}},\n"${line}": {}}`,
  },
  {
    what: 'in the file of Codex',
    name: 'config.toml',
    isOwn: false,
    text: (line: string) => `mcp_servers.a = {url = "https://x"}\n${line} = {}\n`,
  },
];

/** Settings of ours that are settings of that client too. */
const CLIENTS_OWN = ['instructions', 'profiles'];

for (const { what, name, isOwn, text } of files) {
  // N-82
  test(`each setting of the gateway ${what} is refused with its place`, async () => {
    assert.ok(SETTINGS.length > 25);
    for (const key of SETTINGS) {
      const problem = `${name}:2:1 ${key}: belongs under "gateway", as gateway.${key}`;
      const isClients = name === 'config.toml' && !isOwn && CLIENTS_OWN.includes(key);
      assert.deepEqual(await problemsOf(text(key), { name }), isClients ? [] : [problem]);
    }
  });

  // N-82
  test(`a misspelled setting of the gateway ${what} is ${isOwn ? 'refused' : "that client's own"}`, async () => {
    for (const key of SETTINGS) {
      const wrong = misspelled(key);
      const problem = `${name}:2:1 ${wrong}: unknown key (did you mean "gateway.${key}"?)`;
      assert.deepEqual(await problemsOf(text(wrong), { name }), isOwn ? [problem] : []);
    }
  });

  // N-82
  test(`a misspelled "gateway" ${what} is refused`, async () => {
    for (const wrong of ['gatway', 'Gateway', 'gateways']) {
      const problem = `${name}:2:1 ${wrong}: unknown key (did you mean "gateway"?)`;
      assert.deepEqual(await problemsOf(text(wrong), { name }), [problem]);
    }
  });
}

// N-82
test('a section "gateway" among the upstreams is refused', async () => {
  const text = `mcpServers:\n  a: ${URL_ENTRY}\n  gateway: {auth: {keyFile: keys.json}, lists: {}}\n`;
  const problem =
    'config.yaml:3:3 mcpServers.gateway: belongs at the top level of the file, beside the map of upstreams';
  assert.deepEqual(await problemsOf(text), [problem]);
});

// N-82
test('an upstream may have the name "gateway"', async () => {
  const text = `mcpServers: {gateway: {url: "https://x", auht: {}}, a: ${URL_ENTRY}}\n`;
  const { config } = await loadText(text);
  assert.match(config.upstreams[0]?.problem ?? '', /unknown key \(did you mean "auth"\?\)/);
});

const others = [
  { key: '$shcema', value: 'x', message: 'unknown key (did you mean "$schema"?)' },
  { key: 'input', value: '[]', message: 'unknown key (did you mean "inputs"?)' },
  { key: 'mcpserver', value: URL_ENTRY, message: 'unknown key (did you mean "mcpServers"?)' },
  { key: 'github', value: '{command: npx}', message: 'unknown key; an upstream belongs under "mcpServers"' },
  {
    key: 'colour',
    value: 'red',
    message: 'unknown key; known are $schema, mcpServers, inputs, gateway, and names of your own that begin with "x-"',
  },
];

for (const { key, value, message } of others) {
  // N-82
  test(shortened(`the key ${key} of our own file is refused: ${message}`, 75), async () => {
    const text = `mcpServers: {a: ${URL_ENTRY}}\n${key}: ${value}\n`;
    assert.deepEqual(await problemsOf(text), [`config.yaml:2:1 ${key}: ${message}`]);
  });
}

// N-82
test('keys that begin with x- are for templates of the operator', async () => {
  const text = `x-remote: &remote {url: "https://x"}\nmcpServers: {a: *remote}\n`;
  assert.deepEqual((await loadText(text)).warnings, []);
});

const clientFiles = globSync('{*.json,*.yaml,*/*}', { cwd: FOLDER }).filter((file) => !file.startsWith('wrong'));
assert.ok(clientFiles.length > 14);

for (const file of clientFiles) {
  const name = basename(file);
  const text = readFileSync(join(FOLDER, file), 'utf8');
  // N-82
  test(`${file} may have keys of its client, and none of "auth"`, async () => {
    assert.deepEqual(
      await problemsOf(text, { name, env: { GITHUB_PAT: 'x', USER_NAME: 'me', INPUT_API_KEY: 'x' } }),
      [],
    );
    const add = (key: string): string => {
      if (name.endsWith('.toml')) return `${key} = {}\n${text}`;
      return name.endsWith('.yaml') ? `${key}: {}\n${text}` : text.replace('{', `{"${key}": {},`);
    };
    assert.deepEqual(await problemsOf(add('colour'), { name }), []);
    assert.match((await problemsOf(add('auth'), { name })).join(), /auth: belongs under "gateway", as gateway\.auth$/);
  });
}

// N-82
test('a file of Claude Desktop with "gateway" keeps the keys of that client', async () => {
  const text = `{"mcpServers": {"a": ${URL_ENTRY}}, "globalShortcut": "", "scale": 1, "gateway": {}}`;
  assert.deepEqual(await problemsOf(text, { name: 'claude_desktop_config.json' }), []);
});
