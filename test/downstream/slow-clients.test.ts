import assert from 'node:assert/strict';
import { once } from 'node:events';
import { connect, type Socket } from 'node:net';
import { test } from 'node:test';
import { initialize, post, rpc } from './client.ts';
import { startEdge } from './edge.ts';

const CLIENTS = 100;
const DRIP_MS = 500;
/** The deadline of a head is 10 s, and is checked each 5 s. Twice that is less than the minute that Node gives. */
const MOST_DRIPS = (2 * 15_000) / DRIP_MS;

interface Drip {
  /** All that the server has said. */
  readonly received: string;
  /** The bytes that it has let the client send. */
  readonly drips: number;
}

/** Sends the head of a request byte by byte. Resolves once the server has closed the connection. */
async function drip(port: number): Promise<Drip> {
  const socket: Socket = connect(port, '127.0.0.1');
  let received = '';
  socket.setEncoding('latin1').on('data', (chunk) => {
    received += String(chunk);
  });
  socket.on('error', () => undefined);
  await once(socket, 'connect');
  socket.write('POST /mcp HTTP/1.1\r\nhost: 127.0.0.1\r\nx-slow: ');
  let drips = 0;
  const timer = setInterval(() => {
    drips++;
    socket.write('a');
  }, DRIP_MS);
  await once(socket, 'close');
  clearInterval(timer);
  return { received, drips };
}

// Without a deadline of ours they would last for a minute.
// SEC-21
test('heads that arrive in drips end, and others are served meanwhile', { timeout: 120_000 }, async () => {
  await using edge = await startEdge();
  const url = `${edge.url}/mcp`;
  const session = await initialize(url);
  const ended: Drip[] = [];
  const drips = Array.from({ length: CLIENTS }, async () => ended.push(await drip(edge.port)));
  const all = Promise.all(drips);
  while (ended.length < CLIENTS) {
    assert.equal((await post(url, rpc(1, 'ping'), session)).status, 200);
    await Promise.race([all, new Promise((resolve) => setTimeout(resolve, DRIP_MS))]);
  }
  for (const { received, drips } of ended) {
    assert.match(received, /^(?:HTTP\/1\.1 408 |$)/);
    // The gateway runs in this process, so a slow machine makes no more drips.
    assert.ok(drips < MOST_DRIPS, `${drips} drips`); // subject
  }
});
