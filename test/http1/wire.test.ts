import assert from 'node:assert/strict';
import { lookup } from 'node:dns/promises';
import { networkInterfaces } from 'node:os';
import { test } from 'node:test';

import { WirePool } from '../../src/http1/pool.ts';
import { LIMITS } from '../../src/limits.ts';
import { PATIENCE_MS } from '../support/patience.ts';
import { ask, closed, holds, line, neverAccepting, NO_HOST, ok, wireTo } from '../support/wire.ts';
import { stopTime } from '../support/stopped-time.ts';
import { quote } from '../support/test-name.ts';

const LIMIT = { timeout: 120_000 };

function assertCode(error: Error, code: string): void {
  assert.equal('code' in error ? error.code : undefined, code, String(error));
}

test('a request is written in one piece, and response events arrive in order', LIMIT, async () => {
  await using to = await line((socket) => socket.write(ok('hello', 'X-One: a', 'x-one: b')));
  const asked = to.ask({ headers: ['x-test', 'y'], body: '{"ä":1}' });
  const { status, headers, body } = await asked.answer;
  assert.equal(status, 200);
  assert.deepEqual(headers['x-one'], ['a', 'b']);
  assert.equal(body.toString(), 'hello');
  assert.deepEqual(asked.events, ['start', 'response 200', 'data', 'end']);
  const lines = [
    'POST /mcp HTTP/1.1',
    'host: test.example',
    'connection: keep-alive',
    'x-test: y',
    'content-length: 8',
  ];
  assert.equal(to.received[0], `${lines.join('\r\n')}\r\n\r\n${Buffer.from('{"ä":1}').toString('latin1')}`);
});

test('successive requests share a socket; simultaneous requests each have their own', LIMIT, async () => {
  await using to = await line((socket) => socket.write(ok('x')));
  for (let n = 0; n < 3; n++) await to.ask().answer;
  assert.equal(to.sockets.length, 1);
  await Promise.all([to.ask(), to.ask(), to.ask()].map(({ answer }) => answer));
  assert.equal(to.sockets.length, 3);
  await Promise.all([to.ask(), to.ask(), to.ask()].map(({ answer }) => answer));
  assert.equal(to.sockets.length, 3);
});

test('a request sent inside onResponseEnd of another gets a socket of its own', LIMIT, async () => {
  await using to = await line((socket, soFar) => socket.write(ok(String(soFar.split('POST ').length - 1))));
  const bodies = await new Promise<string[]>((resolve) => {
    const got: string[] = [];
    const next = (): void => {
      let body = '';
      to.ask({
        on: {
          onResponseData: (_controller, chunk) => {
            body += chunk.toString();
          },
          onResponseEnd: () => {
            if (got.push(body) === 3) resolve(got);
            else next();
          },
        },
      });
    };
    next();
  });
  assert.deepEqual(bodies, ['1', '1', '2']);
  assert.equal(to.sockets.length, 2);
});

test('a response of 10 MB arrives complete', LIMIT, async () => {
  const big = Buffer.alloc(10_000_000, 'abcdefghijklmnopqrstuvwxyz-');
  await using to = await line((socket) => {
    socket.write(`HTTP/1.1 200 OK\r\ncontent-length: ${big.length}\r\n\r\n`);
    socket.write(big);
  });
  const { body } = await to.ask().answer;
  assert.ok(body.equals(big));
});

test('a request of 10 MB is sent completely', LIMIT, async () => {
  const big = 'x'.repeat(10_000_000);
  let bytes = 0;
  await using to = await line(() => undefined);
  to.server.on('connection', (socket) => {
    socket.on('data', (chunk) => {
      bytes += chunk.length;
      if (chunk.at(-1) === 0x21) socket.write(ok('x'));
    });
  });
  await to.ask({ body: `${big}!` }).answer;
  assert.ok(bytes > big.length);
});

for (const [name, head, then] of [
  ['connection: close', ok('x', 'Connection: close'), ''],
  ['HTTP/1.0', 'HTTP/1.0 200 OK\r\ncontent-length: 1\r\n\r\nx', ''],
  ['keep-alive: timeout=1', ok('x', 'Keep-Alive: timeout=1'), ''],
  ['bytes that belong to nothing', ok('x'), ok('smuggled')],
] as const) {
  test(`after a response with ${name} the socket is closed`, LIMIT, async () => {
    await using to = await line((socket) => socket.write(head + then));
    const first = to.ask();
    assert.equal((await first.answer).body.toString(), 'x');
    const second = to.ask();
    assert.equal((await second.answer).body.toString(), 'x');
    assert.equal(to.sockets.length, 2);
    await Promise.all(to.sockets.map(closed));
  });
}

test('a socket that received bytes while idle is not reused', LIMIT, async () => {
  await using to = await line((socket, _soFar, index) => socket.write(ok(String(index))));
  await to.ask().answer;
  const [idle = assert.fail()] = to.sockets;
  idle.write(ok('smuggled'));
  await closed(idle);
  assert.equal((await to.ask().answer).body.toString(), '1');
});

// N-76
test('requests that are not written when a stray byte comes get new sockets', LIMIT, async () => {
  await using to = await line((socket, _soFar, index) => socket.write(ok(String(index))));
  await Promise.all([to.ask(), to.ask()].map(({ answer }) => answer));
  to.sockets[0]?.write('x');
  const asked = [to.ask(), to.ask()];
  const bodies = await Promise.all(asked.map(async ({ answer }) => (await answer).body.toString()));
  assert.deepEqual(new Set(bodies), new Set(['2', '3']));
  assert.ok(to.received.every((text) => holds(text, 1)));
});

test('a socket that the server closed while idle is not reused', LIMIT, async () => {
  await using to = await line((socket, _soFar, index) => socket.write(ok(String(index))));
  await to.ask().answer;
  const [idle = assert.fail()] = to.sockets;
  idle.end();
  // The server's side closes when the client has closed its own.
  await closed(idle);
  assert.equal((await to.ask().answer).body.toString(), '1');
});

test('we close an idle socket before the timeout that the server named', LIMIT, async () => {
  await using to = await line((socket) => socket.write(ok('x', 'Keep-Alive: timeout=2')));
  await to.ask().answer;
  await closed(to.sockets[0] ?? assert.fail());
  await to.ask().answer;
  assert.equal(to.sockets.length, 2);
});

test('a body that ends with the connection is read completely', LIMIT, async () => {
  await using to = await line((socket) => socket.write('HTTP/1.1 200 OK\r\n\r\nhe'));
  for (let n = 0; n < 2; n++) {
    const asked = to.ask();
    await asked.until('data');
    to.sockets[n]?.end('llo');
    assert.equal((await asked.answer).body.toString(), 'hello');
  }
});

test('a body that ends with the connection fails on a reset', LIMIT, async () => {
  await using to = await line((socket) => socket.write('HTTP/1.1 200 OK\r\n\r\nhe'));
  const asked = to.ask();
  await asked.until('data');
  to.sockets[0]?.resetAndDestroy();
  await asked.failure;
  assert.deepEqual(asked.events, ['start', 'response 200', 'data', 'error']);
});

test('interim responses are ignored', LIMIT, async () => {
  await using to = await line((socket) => socket.write(`HTTP/1.1 103 Early Hints\r\nlink: x\r\n\r\n${ok('x')}`));
  const asked = to.ask();
  await asked.answer;
  assert.deepEqual(asked.events, ['start', 'response 200', 'data', 'end']);
});

for (const [name, text, events] of [
  ['a word of its answer', '', ['start', 'error']],
  ['the end of the head', 'HTTP/1.1 200 OK\r\ncont', ['start', 'error']],
  ['the body', 'HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\n', ['start', 'response 200', 'error']],
  [
    'the body was complete',
    'HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\nhe',
    ['start', 'response 200', 'data', 'error'],
  ],
  [
    'the last chunk',
    'HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n2\r\nhe\r\n',
    ['start', 'response 200', 'data', 'error'],
  ],
] as const) {
  test(`a close before ${name} fails the request; no repetition`, LIMIT, async () => {
    await using to = await line((socket) => socket.end(text));
    const asked = to.ask();
    assertCode(await asked.failure, 'closed');
    assert.deepEqual(asked.events, events);
    // A repetition would have connected before this request.
    await to.ask().failure;
    assert.equal(to.sockets.length, 2);
  });
}

for (const text of [
  'SSH-2.0-OpenSSH_9\r\n',
  'HTTP/1.1 200 OK\r\ncontent-length: 1\r\ncontent-length: 2\r\n\r\nx',
  'HTTP/1.1 200 OK\r\ncontent-length: 3\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n',
  `HTTP/1.1 200 OK\r\nx: ${'y'.repeat(70_000)}`,
]) {
  // SEC-18
  test(`${quote(text, 55)} closes the socket`, LIMIT, async () => {
    await using to = await line((socket) => socket.write(text));
    const asked = to.ask();
    assertCode(await asked.failure, 'not-http');
    assert.deepEqual(asked.events, ['start', 'error']);
    await closed(to.sockets[0] ?? assert.fail());
  });
}

test('a response before the request was read completely counts; no reuse of its socket', LIMIT, async () => {
  await using to = await line(() => undefined);
  to.server.on('connection', (socket) => {
    socket.removeAllListeners('data');
    socket.pause();
    socket.write(ok('early'));
  });
  const asked = to.ask({ body: 'x'.repeat(20_000_000) });
  assert.equal((await asked.answer).body.toString(), 'early');
  assert.equal((await to.ask().answer).body.toString(), 'early');
  assert.equal(to.sockets.length, 2);
});

test('an abort closes the socket at once, and no event follows', LIMIT, async () => {
  for (const [text, last] of [
    ['', 'start'],
    ['HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\n', 'response 200'],
    ['HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\nhe', 'data'],
  ] as const) {
    const { promise: received, resolve } = Promise.withResolvers<void>();
    await using to = await line((socket) => {
      socket.write(text);
      resolve();
    });
    const asked = to.ask();
    await received;
    await asked.until(last);
    const before = [...asked.events];
    asked.abort();
    await closed(to.sockets[0] ?? assert.fail());
    assert.deepEqual(asked.events, before);
  }
});

test('a request can be aborted from each of its callbacks', LIMIT, async () => {
  for (const at of ['onRequestStart', 'onResponseStart', 'onResponseData'] as const) {
    await using to = await line((socket) => socket.write(ok('hello')));
    const { promise: aborted, resolve } = Promise.withResolvers<void>();
    const asked = to.ask({
      on: {
        [at]: (controller: { abort(reason: Error): void }) => {
          controller.abort(new Error('enough'));
          resolve();
        },
      },
    });
    await aborted;
    assert.equal((await to.ask().answer).body.toString(), 'hello');
    assert.ok(!asked.events.includes('end'));
  }
});

test('an abort after the response does not affect the next request on the socket', LIMIT, async () => {
  const { promise: received, resolve } = Promise.withResolvers<void>();
  await using to = await line((socket, soFar) => {
    if (holds(soFar, 1)) socket.write(ok('one'));
    else resolve();
  });
  const first = to.ask();
  await first.answer;
  const second = to.ask();
  await received;
  first.abort();
  to.sockets[0]?.write(ok('two'));
  assert.equal((await second.answer).body.toString(), 'two');
  assert.equal(to.sockets.length, 1);
});

test('a request refused in onRequestStart is not written, and its socket is reused', LIMIT, async () => {
  await using to = await line((socket) => socket.write(ok('x')));
  const refusing = {
    onRequestStart: () => {
      throw new Error('too late');
    },
  };
  for (let n = 0; n < 2; n++) {
    const asked = to.ask({ on: refusing });
    assert.equal((await asked.failure).message, 'too late');
    assert.deepEqual(asked.events, ['start', 'error']);
    await to.ask().answer;
  }
  assert.equal(to.sockets.length, 1);
  assert.ok(holds(to.received[0] ?? '', 2));
});

test('an error of the handler fails the request and closes the socket', LIMIT, async () => {
  await using to = await line((socket) => socket.write(ok('x')));
  const asked = to.ask({
    on: {
      onResponseData: () => {
        throw new Error('too large');
      },
    },
  });
  assert.equal((await asked.failure).message, 'too large');
  await closed(to.sockets[0] ?? assert.fail());
});

test('a header that would inject into the request is not sent', LIMIT, async () => {
  await using to = await line((socket) => socket.write(ok('x')));
  const asked = to.ask({ headers: ['x', 'y\r\nevil: 1'] });
  assertCode(await asked.failure, 'unsendable');
  assert.deepEqual(asked.events, ['error']);
  await to.ask().answer;
  assert.ok(!to.received.join('').includes('evil'));
});

test('without response headers in time, the request fails as sent', LIMIT, async (t) => {
  const time = stopTime(t);
  await using to = await line(() => undefined);
  const asked = to.ask({ headersMs: 50 });
  await asked.until('start');
  assertCode(await time.passUntil(asked.failure, 50), 'headers-timeout');
  assert.deepEqual(asked.events, ['start', 'error']);
  await closed(to.sockets[0] ?? assert.fail());
});

test('a server that is silent within the body fails the request', LIMIT, async (t) => {
  const time = stopTime(t);
  await using to = await line((socket) => socket.write('HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\nhe'));
  const asked = to.ask({ headersMs: 5_000, bodyMs: 50 });
  await asked.until('data');
  assertCode(await time.passUntil(asked.failure, 50), 'body-timeout');
});

test('without a deadline, a body may be silent for any time', LIMIT, async (t) => {
  const time = stopTime(t);
  await using to = await line((socket, _soFar, index) => {
    if (index === 0) socket.write('HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\nhe');
  });
  const silent = to.ask({ headersMs: 1_000 });
  await silent.until('data');
  // This request starts later with the same timeout, which is over for the first one, too, when it fails.
  const other = to.ask({ headersMs: 1_000 });
  await other.until('start');
  assertCode(await time.passUntil(other.failure, 250), 'headers-timeout');
  to.sockets[0]?.write('llo');
  assert.equal((await silent.answer).body.toString(), 'hello');
});

test('a refused connection fails the request as not sent', LIMIT, async () => {
  const to = await line(() => undefined);
  await to[Symbol.asyncDispose]();
  const wire = wireTo('127.0.0.1', to.port);
  const asked = ask(wire);
  assertCode(await asked.failure, 'ECONNREFUSED');
  assert.deepEqual(asked.events, ['error']);
  await wire.destroy();
});

test('an unknown host name fails the request as not sent', LIMIT, async () => {
  const wire = wireTo(NO_HOST, 80);
  const asked = ask(wire);
  assertCode(await asked.failure, 'ENOTFOUND');
  assert.deepEqual(asked.events, ['error']);
  await wire.destroy();
});

test('a connection that does not open in time fails the request as not sent', LIMIT, async () => {
  await using full = await neverAccepting();
  const wire = wireTo('127.0.0.1', full.port, 100);
  const asked = ask(wire);
  assertCode(await asked.failure, 'connect-timeout');
  assert.deepEqual(asked.events, ['error']);
  await wire.destroy();
});

test('IPv6 addresses and host names are connected to, on whichever address is served', LIMIT, async () => {
  const hasIPv6 = Object.values(networkInterfaces()).some((all) => all?.some(({ address }) => address === '::1'));
  for (const host of hasIPv6 ? ['127.0.0.1', '::1'] : ['127.0.0.1']) {
    await using to = await line((socket) => socket.write(ok(host)), host);
    assert.equal((await to.ask().answer).body.toString(), host);
    const names = await lookup('localhost', { all: true });
    if (!names.some(({ address }) => address === host)) continue;
    const wire = wireTo('localhost', to.port);
    assert.equal((await ask(wire).answer).body.toString(), host);
    await wire.destroy();
  }
});

test('destroy() fails requests in every stage, and leaves no socket', LIMIT, async () => {
  await using to = await line((socket, _soFar, index) => {
    if (index === 0) socket.write(ok('idle'));
    if (index === 1) socket.write('HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\nhe');
  });
  const first = to.ask();
  const second = to.ask();
  const third = to.ask();
  await first.answer;
  await second.until('data');
  await third.until('start');
  const fourth = to.ask();
  const fifth = to.ask();
  await to.wire.destroy();
  for (const { failure } of [second, third, fourth, fifth]) assertCode(await failure, 'destroyed');
  assert.deepEqual(fifth.events, ['error']);
  await Promise.all(to.sockets.map(closed));
  const late = to.ask();
  assertCode(await late.failure, 'destroyed');
  assert.deepEqual(late.events, ['error']);
  await to.wire.destroy();
});

const longExtension = (bytes: number) => `1;${'x'.repeat(bytes)}\r\nx\r\n0\r\n\r\n`;
const longTrailer = (bytes: number) => `1\r\nx\r\n0\r\nx: ${'y'.repeat(bytes)}\r\n\r\n`;

for (const { title, limit, framing } of [
  { title: 'limit chunkLineBytes', limit: 'chunkLineBytes', framing: longExtension },
  { title: 'limit trailerBytes', limit: 'trailerBytes', framing: longTrailer },
] as const) {
  test(`${title}: the request fails, and its socket is closed`, LIMIT, async () => {
    const chunked = (bytes: number) => `HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n${framing(bytes)}`;
    await using to = await line((socket, soFar) =>
      socket.write(chunked(soFar.includes('"much"') ? LIMITS[limit] + 1 : LIMITS[limit] - 10)),
    );
    const reached: string[] = [];
    const wire = new WirePool(new URL(`http://127.0.0.1:${to.port}`), PATIENCE_MS, (one) => reached.push(one));
    assert.equal((await ask(wire).answer).body.toString(), 'x');
    assert.deepEqual(reached, []);
    assertCode(await ask(wire, { body: '{"much":1}' }).failure, 'not-http');
    assert.deepEqual(reached, [limit]);
    await closed(to.sockets.at(-1) ?? assert.fail());
    await wire.destroy();
  });
}
