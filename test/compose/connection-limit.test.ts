import assert from 'node:assert/strict';
import { once } from 'node:events';
import { connect, type Socket } from 'node:net';
import { test } from 'node:test';
import { connectionLimit, openFileLimit } from '../../src/compose/connection-limit.ts';
import { Listener } from '../../src/compose/listener.ts';

const cases = [
  { openFiles: 256, connections: 64 },
  { openFiles: 1_024, connections: 512 },
  { openFiles: 20_000, connections: 15_000 },
];
for (const { openFiles, connections } of cases) {
  // N-26
  test(`a process with ${openFiles} descriptors takes ${connections} connections`, () => {
    assert.equal(connectionLimit(openFiles), connections);
  });
}

// N-26
test('the limit on open files can be read on this system', () => {
  assert.ok((openFileLimit() ?? Infinity) > 64);
});

// N-26
test('a connection beyond the limit is closed and counted; others stay open', { timeout: 120_000 }, async (t) => {
  let dropped = 0;
  const handler = {
    app: { fetch: () => new Response('here') },
    drain: () => undefined,
    onConnectionDropped: () => dropped++,
  };
  const listener = await Listener.open({ host: '127.0.0.1', port: 0 }, 'test', () => handler, { connections: 2 });
  t.after(() => listener.close());
  const port = Number(new URL(listener.origin).port);
  const open = async (): Promise<Socket> => {
    const socket = connect(port, '127.0.0.1');
    await once(socket, 'connect');
    return socket;
  };
  const [first, second] = [await open(), await open()];
  const third = await open();
  third.resume();
  await once(third, 'close');
  assert.equal(dropped, 1);
  first.write('GET / HTTP/1.1\r\nHost: a\r\n\r\n');
  const [chunk] = await once(first, 'data');
  assert.match(String(chunk), /^HTTP\/1\.1 200 /);
  for (const socket of [first, second]) socket.destroy();
});
