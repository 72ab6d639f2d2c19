import assert from 'node:assert/strict';
import { once } from 'node:events';
import { connect, type Socket } from 'node:net';
import { test } from 'node:test';
import { initialize, post, rpc } from './client.ts';
import { startEdge } from './edge.ts';

const CLIENTS = 100;
const DRIP_MS = 500;

/** Sends the head of a request byte by byte. Resolves with all that the server has said, once it has closed the connection. */
async function drip(port: number): Promise<string> {
  const socket: Socket = connect(port, '127.0.0.1');
  let received = '';
  socket.setEncoding('latin1').on('data', (chunk) => {
    received += String(chunk);
  });
  socket.on('error', () => undefined);
  await once(socket, 'connect');
  socket.write('POST /mcp HTTP/1.1\r\nhost: 127.0.0.1\r\nx-slow: ');
  const timer = setInterval(() => socket.write('a'), DRIP_MS);
  await once(socket, 'close');
  clearInterval(timer);
  return received;
}

// Without a deadline of ours they would last for a minute.
// SEC-21
test('heads that arrive in drips end, and others are served meanwhile', { timeout: 120_000 }, async () => {
  await using edge = await startEdge();
  const url = `${edge.url}/mcp`;
  const session = await initialize(url);
  const ended: string[] = [];
  const drips = Array.from({ length: CLIENTS }, async () => ended.push(await drip(edge.port)));
  const all = Promise.all(drips);
  while (ended.length < CLIENTS) {
    assert.equal((await post(url, rpc(1, 'ping'), session)).status, 200);
    await Promise.race([all, new Promise((resolve) => setTimeout(resolve, DRIP_MS))]);
  }
  for (const received of ended) assert.match(received, /^(?:HTTP\/1\.1 408 |$)/);
});
