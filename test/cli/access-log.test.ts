import assert from 'node:assert/strict';
import { fileURLToPath } from 'node:url';
import { test } from 'node:test';
import { Client, StreamableHTTPClientTransport } from '@modelcontextprotocol/client';
import { startGateway } from '../support/gateway.ts';

const MEMORY = fileURLToPath(
  new URL('../../node_modules/@modelcontextprotocol/server-memory/dist/index.js', import.meta.url),
);
const BOUNDED = { timeout: 30_000 };

/** The methods of the request lines after one listing that succeeds and one call that fails. */
async function requestLines(gateway: Readonly<Record<string, unknown>>): Promise<readonly string[]> {
  const memory = { command: process.execPath, args: [MEMORY], env: { MEMORY_FILE_PATH: '/nowhere/memory' } };
  const running = await startGateway({ mcpServers: { memory }, gateway });
  try {
    const client = new Client({ name: 'reader', version: '1' });
    await client.connect(new StreamableHTTPClientTransport(new URL(running.endpoint())));
    await client.listTools();
    await assert.rejects(client.callTool({ name: 'no-such-tool', arguments: {} }));
    await client.close();
  } finally {
    await running.stop();
  }
  return running
    .logs()
    .split('\n')
    .flatMap((line) => /"method":"(tools\/[a-z]+)".*"msg":"request"/.exec(line)?.[1] ?? []);
}

test('N-49 on loopback the log has a line for each failed request and no others', BOUNDED, async () => {
  assert.deepEqual(await requestLines({}), ['tools/call']);
});

test('N-49 accessLog: all, and a public URL, give every request a line', BOUNDED, async () => {
  assert.deepEqual(await requestLines({ accessLog: 'all' }), ['tools/list', 'tools/call']);
  assert.deepEqual(await requestLines({ publicUrl: 'https://mcp.example.com' }), ['tools/list', 'tools/call']);
});
