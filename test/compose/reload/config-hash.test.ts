import assert from 'node:assert/strict';
import { randomBytes } from 'node:crypto';
import { mkdir, mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { test } from 'node:test';
import { configHash } from '../../../src/compose/reload/config-hash.ts';
import { loadConfig } from '../../../src/config/load.ts';

const BASE = `
mcpServers:
  a: { command: node, cwd: servers, sandbox: { read: [data], write: [out] } }
gateway:
  listen: 127.0.0.1:PORT
  auth: { keyFile: keys.yaml }
  audit: { file: audit.log }
  lock: { file: pins.lock }
  redis: { url: "rediss://redis.example", caFile: ca.pem, wrappingKeys: [${randomBytes(32).toString('base64')}] }
  access:
    roles:
      reader: { upstreams: [a], deny: [{ tools: [write] }] }
    grants: [{ keys: [ann], roles: [reader] }]
`;
const PINS = '{ "version": 1, "upstreams": {} }';

/** Returns the hash of a config in a folder of its own. */
async function hashOf(text: string): Promise<string> {
  const dir = await mkdtemp(join(tmpdir(), 'linkspan-config-hash-'));
  try {
    await mkdir(join(dir, 'servers'));
    await writeFile(join(dir, 'keys.yaml'), 'keys: []\n', { mode: 0o600 });
    await writeFile(join(dir, 'pins.lock'), PINS);
    await writeFile(join(dir, 'linkspan.yaml'), text);
    const { config } = await loadConfig(join(dir, 'linkspan.yaml'), { env: {} });
    assert.deepEqual([config.access?.roles.length, config.lock === undefined], [1, false]);
    return configHash(config);
  } finally {
    await rm(dir, { recursive: true, force: true });
  }
}

test('configs of replicas have one hash, whatever their addresses, paths and lines', async () => {
  const first = await hashOf(BASE.replace('PORT', '9001'));
  assert.equal(await hashOf(`# At another machine.\n${BASE.replace('PORT', '9002')}`), first);
});

const CHANGES = [
  { what: 'another deny rule', from: 'tools: [write]', to: 'tools: [remove]' },
  { what: 'another allow rule', from: 'upstreams: [a]', to: 'upstreams: ["*"]' },
  { what: 'no cwd', from: 'cwd: servers, ', to: '' },
  { what: 'no caFile', from: 'caFile: ca.pem, ', to: '' },
  { what: 'another reaction to the lock', from: 'pins.lock }', to: 'pins.lock, onChange: refuse }' },
];

for (const { what, from, to } of CHANGES) {
  test(`a config with ${what} has another hash`, async () => {
    const text = BASE.replace('PORT', '9001');
    assert.notEqual(await hashOf(text.replace(from, to)), await hashOf(text));
  });
}
