import assert from 'node:assert/strict';
import { once } from 'node:events';
import { connect, type Socket } from 'node:net';
import { join } from 'node:path';
import { test } from 'node:test';
import { openFileLimit } from '../../src/compose/connection-limit.ts';
import { initialize, post, rpc, send } from '../downstream/client.ts';
import { startGateway } from '../support/gateway.ts';
import { waitUntil } from '../support/wait-until.ts';

const CLIENTS = 2_000;
const AT_ONCE = 250;
const hasRoom = (openFileLimit() ?? Infinity) > 2 * CLIENTS;
const OPTIONS = { timeout: 120_000, ...(hasRoom ? {} : { skip: `needs ${2 * CLIENTS} open files` }) };
const PID = { command: process.execPath, args: [join(import.meta.dirname, '../fixtures/servers/pid-stdio.ts')] };
const CALL = { name: 'pid__pid', arguments: {} };

// R21 REL-34
test('2 000 clients and 1 024 open files: upstreams start, and room is used again', OPTIONS, async () => {
  const via = ['sh', '-c', 'ulimit -n 1024; exec "$0" "$@"'];
  await using gateway = await startGateway({ mcpServers: { pid: PID } }, { via });
  const url = gateway.endpoint();
  const { port } = new URL(url);
  const sockets = new Set<Socket>();
  const errors = new Set<string>();
  const open = async () => {
    const socket = connect(Number(port), '127.0.0.1');
    sockets.add(socket);
    socket.on('error', ({ message }) => errors.add(message));
    socket.once('close', () => sockets.delete(socket));
    socket.resume();
    await Promise.race([once(socket, 'connect'), once(socket, 'close')]);
  };
  // No more at once than the queue of a listening socket holds.
  for (let opened = 0; opened < CLIENTS; opened += AT_ONCE) {
    await Promise.allSettled(Array.from({ length: AT_ONCE }, open));
  }
  const countShed = async () => {
    const { text } = await send(`${gateway.operatorUrl}/metrics`, { method: 'GET' });
    return Number(/^linkspan_shed_total\{reason="connections"\} (\d+)$/m.exec(text)?.[1] ?? 0);
  };
  // Those beyond the limit are closed.
  await waitUntil(() => sockets.size <= 512);
  const shed = await countShed();
  assert.ok(shed >= 1_400 && shed < 1_500, `closed ${shed}; errors at the client: ${[...errors].join(', ')}`);
  // One place for a client that starts a process of an upstream.
  const [first] = sockets;
  first?.destroy();
  let session = '';
  await waitUntil(async () => {
    session = await initialize(url).catch(() => '');
    return session !== '';
  });
  await waitUntil(async () => {
    const called = await post(url, rpc(1, 'tools/call', CALL), session).catch(() => undefined);
    return called?.status === 200 && called.text.includes('"content"');
  });
  for (const socket of sockets) socket.destroy();
  await waitUntil(async () => {
    const sessions = await Promise.allSettled(Array.from({ length: 20 }, () => initialize(url)));
    return sessions.every(({ status }) => status === 'fulfilled');
  });
  assert.ok(gateway.isRunning);
});
