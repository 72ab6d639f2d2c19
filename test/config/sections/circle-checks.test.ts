import assert from 'node:assert/strict';
import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { test } from 'node:test';
import { loadConfig } from '../../../src/config/load.ts';
import { loadText } from '../../support/config-file.ts';
import { quote } from '../../support/test-name.ts';

const OTHER = 'other: {url: https://example.com/mcp}';

/** Returns the problem of an upstream `self` with this URL; undefined if it has none. */
async function problemOf(url: string, gateway = ''): Promise<string | undefined> {
  const { config, problems } = await loadText(`gateway: {${gateway}}\nmcpServers: {self: {url: "${url}"}, ${OTHER}}\n`);
  const self = config.upstreams.find(({ id }) => id === 'self');
  assert.equal(problems.length, self?.problem === undefined ? 0 : 1);
  for (const { line, key } of problems) assert.deepEqual([line, key], [2, 'mcpServers.self']);
  return self?.problem;
}

const OPEN = 'auth: {apiKeys: [{name: a, sha256: ' + 'a'.repeat(64) + '}]}';
const PROFILE = 'profiles: {mine: {upstreams: [self]}, others: {upstreams: [other]}}';

for (const [url, gateway] of [
  ['http://127.0.0.1:3000/mcp', ''],
  ['http://localhost:3000/mcp/', ''],
  ['http://127.0.0.1:3000/mcp/self', ''],
  ['http://127.0.0.1:3000/sse', ''],
  ['http://[::1]:8080/mcp', 'listen: "[::1]:8080"'],
  ['http://127.0.0.1:8080/mcp', `listen: "0.0.0.0:8080", ${OPEN}`],
  ['http://127.0.0.1:3000/mcp/mine', PROFILE],
  ['https://mcp.example.com/mcp', 'publicUrl: https://mcp.example.com'],
] as const) {
  test(`an upstream at ${quote(url)} is the gateway itself: ${quote(gateway.slice(0, 30))}`, async () => {
    assert.match(
      (await problemOf(url, gateway)) ?? '',
      /this is the gateway itself, which listens there with "linkspan run".*remove this entry/,
    );
  });
}

for (const [url, gateway] of [
  ['http://127.0.0.1:3001/mcp', ''],
  ['https://127.0.0.1:3000/mcp', ''],
  ['http://127.0.0.1:3000/other/mcp', ''],
  ['http://127.0.0.1:3000/mcp/other', ''],
  ['http://127.0.0.1:3000/mcp/others', PROFILE],
  ['http://[::1]:3000/mcp', ''],
  ['http://127.0.0.1:3000/mcp', 'listen: "127.0.0.1:0"'],
  ['https://example.com:8080/mcp', `listen: "0.0.0.0:8080", ${OPEN}`],
  ['https://mcp.example.com/tools/mcp', 'publicUrl: https://mcp.example.com'],
] as const) {
  test(`an upstream at ${quote(url)} is another server: ${quote(gateway.slice(0, 30))}`, async () => {
    assert.equal(await problemOf(url, gateway), undefined);
  });
}

test('a gateway over stdio may have the server at the default address', async () => {
  const text = 'mcpServers: {self: {url: "http://127.0.0.1:3000/mcp"}}\n';
  const { problems, config } = await loadText(text, { listens: false });
  assert.deepEqual([problems, config.upstreams[0]?.problem], [[], undefined]);
});

test('of a client’s file, the entry of the gateway itself is left out', async () => {
  const dir = await mkdtemp(join(tmpdir(), 'linkspan-circle-'));
  try {
    const file = join(dir, 'claude_desktop_config.json');
    const other = { command: 'npx', args: ['linkspan', 'stdio', '--config', join(dir, 'another.yaml')] };
    for (const linkspan of [
      { url: 'http://127.0.0.1:3000/mcp' },
      { command: 'linkspan', args: ['stdio', '--config', file] },
      { command: 'npx', args: ['-y', 'linkspan', 'stdio', `--config=${file}`] },
      { command: 'linkspan', args: ['stdio'], env: { LINKSPAN_CONFIG: file } },
    ]) {
      await writeFile(file, JSON.stringify({ mcpServers: { linkspan, other } }));
      const { config, problems, warnings, disabled } = await loadConfig(file, { env: {} });
      assert.deepEqual([config.upstreams.map(({ id }) => id), problems, disabled], [['other'], [], ['linkspan']]);
      assert.match(
        warnings.join(),
        /mcpServers\.linkspan: this is the gateway itself(, which listens there with "linkspan run")?; left out/,
      );
    }
  } finally {
    await rm(dir, { recursive: true });
  }
});
