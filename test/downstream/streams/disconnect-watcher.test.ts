import assert from 'node:assert/strict';
import { once } from 'node:events';
import { connect, createServer, type Socket } from 'node:net';
import { test } from 'node:test';
import { DisconnectWatcher } from '../../../src/downstream/streams/disconnect-watcher.ts';

const LIMIT = { timeout: 120_000 };

/** Returns the server's side of a connection, and a function that closes the client's side. */
async function connection(): Promise<AsyncDisposable & { readonly socket: Socket; disconnect(): Promise<void> }> {
  const server = createServer().listen(0, '127.0.0.1');
  await once(server, 'listening');
  const address = server.address();
  assert.ok(typeof address === 'object' && address !== null);
  const client = connect(address.port, '127.0.0.1');
  const [[socket]]: [Socket[], unknown] = await Promise.all([once(server, 'connection'), once(client, 'connect')]);
  assert.ok(socket);
  return {
    socket,
    disconnect: async () => {
      const closed = once(socket, 'close');
      client.destroy();
      socket.resume();
      await closed;
    },
    [Symbol.asyncDispose]: async () => {
      client.destroy();
      socket.destroy();
      server.close();
      await once(server, 'close');
    },
  };
}

// T-020
test('a disconnect reaches each request in flight, and none that was answered', LIMIT, async () => {
  await using line = await connection();
  const watcher = new DisconnectWatcher();
  const disconnected: string[] = [];
  const request = (name: string) => ({ onDisconnect: () => void disconnected.push(name) });
  const answered = request('answered');
  watcher.watch(line.socket, request('first'));
  watcher.watch(line.socket, answered).delete(answered);
  watcher.watch(line.socket, request('second'));
  assert.equal(line.socket.listenerCount('close'), 1, 'one listener per connection');
  await line.disconnect();
  assert.deepEqual(disconnected, ['first', 'second']);
});

// T-020
test('a request on a closed connection is told at once', LIMIT, async () => {
  await using line = await connection();
  const watcher = new DisconnectWatcher();
  await line.disconnect();
  let count = 0;
  watcher.watch(line.socket, { onDisconnect: () => count++ });
  assert.equal(count, 1);
});
