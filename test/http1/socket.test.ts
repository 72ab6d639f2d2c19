import assert from 'node:assert/strict';
import { once } from 'node:events';
import { createServer, type Socket } from 'node:net';
import { test } from 'node:test';
import { RequestHead } from '../../src/http1/request.ts';
import { type SocketEvents, WireSocket } from '../../src/http1/socket.ts';
import { KEEP_ALIVE_MS, type WireController, type WireHandler, type WireRequest } from '../../src/http1/wire.ts';
import { Waitlist } from '../fixtures/servers/http-harness.ts';
import { PATIENCE_MS } from '../support/patience.ts';
import { closed, ok } from '../support/wire.ts';

const LIMIT = { timeout: 120_000 };
const request = (bodyMs = 0): WireRequest => ({
  head: new RequestHead('POST', 'test.example', '/mcp', []),
  body: '{}',
  headersMs: 0,
  bodyMs,
});

/** Records the events of requests on one socket: of their handler, and of the owner of the socket. */
class Recorder implements WireHandler, SocketEvents {
  readonly events = new Waitlist<string>();
  readonly errors: Error[] = [];
  controller: WireController | undefined;

  onRequestStart(controller: WireController): void {
    this.controller = controller;
    this.events.push('start');
  }

  onResponseStart(_controller: WireController, status: number): void {
    this.events.push(`response ${status}`);
  }

  onResponseData(_controller: WireController, chunk: Buffer): void {
    this.events.push(`data ${chunk.toString()}`);
  }

  onResponseEnd(): void {
    this.events.push('end');
  }

  onResponseError(_controller: WireController, thrown: Error): void {
    this.errors.push(thrown);
    this.events.push('error');
  }

  onIdle(): void {
    this.events.push('idle');
  }

  onClosed(): void {
    this.events.push('closed');
  }

  onStray(): void {
    this.events.push('stray');
  }

  onLimit(limit: string): void {
    this.events.push(`limit ${limit}`);
  }

  async until(event: string): Promise<void> {
    await this.events.find((item) => item === event);
  }
}

interface Line extends AsyncDisposable {
  readonly socket: WireSocket;
  readonly recorder: Recorder;
  /** The server's end of the connection. */
  readonly far: Promise<Socket>;
}

/** Sends a request on a new socket to a server that calls `answer` for each request. */
async function line(answer: (far: Socket) => void, bodyMs?: number): Promise<Line> {
  const far = Promise.withResolvers<Socket>();
  const server = createServer((socket) => {
    socket.on('error', () => undefined);
    socket.on('data', () => answer(socket));
    far.resolve(socket);
  });
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  const address = server.address();
  assert.ok(typeof address === 'object' && address !== null);
  const recorder = new Recorder();
  const to = { host: '127.0.0.1', port: address.port, connectMs: PATIENCE_MS };
  const socket = new WireSocket(to, request(bodyMs), recorder, recorder);
  return {
    socket,
    recorder,
    far: far.promise,
    [Symbol.asyncDispose]: async () => {
      socket.destroy(new Error('the test has ended'));
      (await far.promise).destroy();
      server.close();
      await once(server, 'close');
    },
  };
}

test('a socket is idle after each response, and carries the next request', LIMIT, async () => {
  await using to = await line((far) => void far.write(ok('x')));
  const { recorder, socket } = to;
  await recorder.until('idle');
  assert.ok(socket.isUsable(performance.now()));
  const before = recorder.events.items.length;
  socket.send(request(), recorder, performance.now());
  await recorder.events.find((item, at) => at >= before && item === 'idle');
  const once1 = ['start', 'response 200', 'data x', 'end', 'idle'];
  assert.deepEqual(recorder.events.items, [...once1, ...once1]);
});

test('a response that asks to close leaves no usable socket', LIMIT, async () => {
  await using to = await line((far) => void far.write(ok('x', 'Connection: close')));
  await to.recorder.until('closed');
  assert.deepEqual(to.recorder.events.items, ['start', 'response 200', 'data x', 'end', 'closed']);
  assert.ok(!to.socket.isUsable(performance.now()));
});

test('bytes that follow a response close the idle socket', LIMIT, async () => {
  await using to = await line((far) => void far.write(ok('x')));
  await to.recorder.until('idle');
  (await to.far).write('HTTP/1.1 200 OK\r\n');
  await to.recorder.until('closed');
  assert.ok(!to.socket.isUsable(performance.now()));
  assert.deepEqual(to.recorder.errors, []);
});

test('an idle socket that the server closes is closed without an error', LIMIT, async () => {
  await using to = await line((far) => void far.write(ok('x')));
  await to.recorder.until('idle');
  (await to.far).end();
  await to.recorder.until('closed');
  assert.deepEqual(to.recorder.errors, []);
});

test('a sweep closes an idle socket when it is too old to be reused', LIMIT, async () => {
  await using to = await line((far) => void far.write(ok('x')));
  await to.recorder.until('idle');
  to.socket.sweep(performance.now());
  assert.ok(to.socket.isUsable(performance.now()));
  to.socket.sweep(performance.now() + 60_000);
  await to.recorder.until('closed');
});

for (const [name, isHeld] of [
  ['a busy event loop', false],
  ['a pause', true],
] as const) {
  test(`a socket is reused for less time if ${name} delayed the response`, LIMIT, async (t) => {
    const startMs = performance.now();
    const now = t.mock.method(performance, 'now', () => startMs);
    await using to = await line(() => undefined);
    await to.recorder.until('start');
    if (isHeld) to.recorder.controller?.hold();
    // Two looks in a row find no bytes of a response that is read at once.
    if (isHeld) for (const lateMs of [250, 500]) to.socket.sweep(startMs + lateMs);
    (await to.far).write(ok('x'));
    now.mock.mockImplementation(() => startMs + 3_000);
    to.recorder.controller?.resume();
    await to.recorder.until('idle');
    assert.ok(to.socket.isUsable(startMs + KEEP_ALIVE_MS - 1));
    assert.ok(!to.socket.isUsable(startMs + KEEP_ALIVE_MS));
  });
}

test('a socket is reused for all of the time if its response was read at once', LIMIT, async (t) => {
  const startMs = performance.now();
  t.mock.method(performance, 'now', () => startMs);
  await using to = await line(() => undefined);
  await to.recorder.until('start');
  for (const lateMs of [60_000, 60_250]) to.socket.sweep(startMs + lateMs);
  (await to.far).write(ok('x'));
  await to.recorder.until('idle');
  assert.ok(to.socket.isUsable(startMs + 60_000 + KEEP_ALIVE_MS - 1));
});

test('a sweep fails a request whose body is silent beyond its deadline', LIMIT, async () => {
  await using to = await line((far) => void far.write('HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nx'), 1_000);
  await to.recorder.until('data x');
  to.socket.sweep(performance.now());
  assert.deepEqual(to.recorder.errors, []);
  to.socket.sweep(performance.now() + 1_001);
  assert.match(String(to.recorder.errors[0]), /silent for too long/);
  await closed(await to.far);
});

test('destroy fails the request in flight, and closes the connection', LIMIT, async () => {
  await using to = await line(() => undefined);
  await to.recorder.until('start');
  const reason = new Error('no longer needed');
  to.socket.destroy(reason);
  assert.deepEqual(to.recorder.errors, [reason]);
  await closed(await to.far);
  await to.recorder.until('closed');
});

test('the controller of an ended request cannot abort the next one', LIMIT, async () => {
  await using to = await line((far) => void far.write(ok('x')));
  const { recorder, socket } = to;
  await recorder.until('idle');
  const first = recorder.controller;
  const before = recorder.events.items.length;
  socket.send(request(), recorder, performance.now());
  first?.abort(new Error('too late'));
  await recorder.events.find((item, at) => at >= before && item === 'idle');
});
