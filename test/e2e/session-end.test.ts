import assert from 'node:assert/strict';
import { test } from 'node:test';
import { fileURLToPath } from 'node:url';
import { initialize, postForEvents, rpc, send } from '../downstream/client.ts';
import { startGateway } from '../support/gateway.ts';

const SERVER = fileURLToPath(new URL('../fixtures/servers/pid-stdio.ts', import.meta.url));

test('a call on an event stream is answered when its session ends', { timeout: 120_000 }, async () => {
  await using gateway = await startGateway({ mcpServers: { local: { command: process.execPath, args: [SERVER] } } });
  const url = gateway.endpoint();
  const session = await initialize(url);
  // The head of the stream arrives while the call waits.
  const call = await postForEvents(url, rpc(7, 'tools/call', { name: 'local__wait', arguments: {} }), session);
  await send(url, { method: 'DELETE', headers: { 'mcp-session-id': session } });
  await call.ended();
  const answer = call.messages.find(({ id }) => id === 7);
  assert.match(JSON.stringify(answer?.error), /Cancelled/);
});
