import assert from 'node:assert/strict';
import type { ServerResponse } from 'node:http';
import { test } from 'node:test';
import { WirePool } from '../../../src/http1/pool.ts';
import { RequestHead } from '../../../src/http1/request.ts';
import { EventGet, type StreamEnd } from '../../../src/upstream/http/http-get.ts';
import { serve, stream, type Upstream, Waitlist } from '../../fixtures/servers/http-harness.ts';
import { PATIENCE_MS } from '../../support/patience.ts';
import { UNBOUNDED } from '../../support/receiving.ts';

const LIMIT = { timeout: 120_000 };
const LIMIT_CHARS = 1_000;

type GetEvent =
  | { readonly kind: 'open' }
  | { readonly kind: 'event'; readonly type: string; readonly data: string }
  | { readonly kind: 'end'; readonly end: StreamEnd };

/** One GET to a server, with the events that its handler received. */
class Reader implements AsyncDisposable {
  readonly position: { lastEventId: string; retryMs: number | undefined } = { lastEventId: '', retryMs: undefined };
  readonly events = new Waitlist<GetEvent>();
  readonly get: EventGet;
  readonly #wire: WirePool;

  constructor({ url, port }: Pick<Upstream, 'url' | 'port'>) {
    this.#wire = new WirePool(new URL(url), PATIENCE_MS);
    this.get = new EventGet({ upstream: 'notes', messageBytes: LIMIT_CHARS, receiving: UNBOUNDED }, this.position, {
      onOpen: () => this.events.push({ kind: 'open' }),
      onEvent: (type, data) => this.events.push({ kind: 'event', type, data }),
      onEnd: (end) => this.events.push({ kind: 'end', end }),
    });
    const head = new RequestHead('GET', `127.0.0.1:${port}`, '/mcp', ['accept', 'text/event-stream']);
    this.#wire.dispatch({ head, body: undefined, headersMs: 0, bodyMs: 0 }, this.get);
  }

  async end(): Promise<StreamEnd> {
    const last = await this.events.find(({ kind }) => kind === 'end');
    assert.ok(last.kind === 'end');
    return last.end;
  }

  [Symbol.asyncDispose](): Promise<void> {
    return this.#wire.destroy();
  }
}

test('events are passed on with their types, and the position follows their ids', LIMIT, async () => {
  await using server = await serve((_request, response) => {
    stream(response, 'retry: 70\nid: a\ndata: one\n\n', 'id: b\nevent: endpoint\ndata: two\ndata: lines\n\n');
    response.end();
  });
  await using reader = new Reader(server);
  assert.deepEqual(await reader.end(), { kind: 'ended' });
  assert.deepEqual(reader.events.items.slice(0, -1), [
    { kind: 'open' },
    { kind: 'event', type: 'message', data: 'one' },
    { kind: 'event', type: 'endpoint', data: 'two\nlines' },
  ]);
  assert.deepEqual(reader.position, { lastEventId: 'b', retryMs: 70 });
});

for (const { status, retryAfter, retryAfterMs } of [
  { status: 405, retryAfter: undefined, retryAfterMs: undefined },
  { status: 204, retryAfter: undefined, retryAfterMs: undefined },
  { status: 503, retryAfter: '2', retryAfterMs: 2_000 },
]) {
  test(`HTTP ${status} refuses the stream`, LIMIT, async () => {
    await using server = await serve((_request, response) => {
      response.writeHead(status, retryAfter === undefined ? {} : { 'retry-after': retryAfter }).end();
    });
    await using reader = new Reader(server);
    assert.deepEqual(await reader.end(), { kind: 'refused', status, retryAfterMs, location: undefined });
    assert.equal(reader.get.isOpen, false);
  });
}

const unreadable: readonly { what: string; code: string; answer: (response: ServerResponse) => void }[] = [
  {
    what: 'JSON',
    code: 'upstream-protocol',
    answer: (response) => response.writeHead(200, { 'content-type': 'application/json' }).flushHeaders(),
  },
  {
    what: 'a compressed stream',
    code: 'upstream-protocol',
    answer: (response) =>
      response.writeHead(200, { 'content-type': 'text/event-stream', 'content-encoding': 'br' }).flushHeaders(),
  },
  {
    what: 'an event beyond the limit',
    code: 'too-large',
    answer: (response) => stream(response, `data: ${'x'.repeat(LIMIT_CHARS + 1)}`),
  },
];

for (const { what, code, answer } of unreadable) {
  test(`${what} is unreadable (${code}), and closes the connection`, LIMIT, async () => {
    await using server = await serve((_request, response) => answer(response));
    await using reader = new Reader(server);
    const end = await reader.end();
    assert.equal(end.kind === 'unreadable' && end.error.code, code);
    await server.idle();
  });
}

test('a connection that breaks within the stream is reported as broken', LIMIT, async () => {
  await using server = await serve((_request, response) => {
    stream(response, 'data: one\n\n');
    setImmediate(() => response.socket?.resetAndDestroy());
  });
  await using reader = new Reader(server);
  const end = await reader.end();
  assert.equal(end.kind === 'broken' && end.error.code, 'upstream-lost');
});

test('a server that does not listen is reported as broken; the GET was not sent', LIMIT, async () => {
  const server = await serve(() => undefined);
  const { url, port } = server;
  await server[Symbol.asyncDispose]();
  await using reader = new Reader({ url, port });
  const end = await reader.end();
  assert.ok(end.kind === 'broken', end.kind);
  assert.deepEqual([end.error.code, end.error.detail.executed], ['upstream-unavailable', 'no']);
});

test('a cancelled GET closes its connection and reports nothing', LIMIT, async () => {
  await using server = await serve((_request, response) => stream(response, 'data: one\n\n'));
  await using reader = new Reader(server);
  await reader.events.find(({ kind }) => kind === 'event');
  reader.get.cancel();
  await server.idle();
  assert.deepEqual(
    reader.events.items.map(({ kind }) => kind),
    ['open', 'event'],
  );
});

test('a GET that is cancelled before its connection opens is not sent', LIMIT, async () => {
  await using server = await serve((_request, response) => stream(response));
  const reader = new Reader(server);
  reader.get.cancel();
  await reader[Symbol.asyncDispose]();
  assert.deepEqual([server.received.items, reader.events.items], [[], []]);
});

test('a stream can be paused only while it is open', LIMIT, async () => {
  await using server = await serve((_request, response) => {
    stream(response, 'data: one\n\n');
  });
  await using reader = new Reader(server);
  assert.equal(reader.get.pause(1), false);
  await reader.events.find(({ kind }) => kind === 'event');
  assert.equal(reader.get.pause(60_000), true);
  assert.equal(reader.get.pause(60_000), false);
  reader.get.cancel();
  assert.equal(reader.get.pause(1), false);
});
