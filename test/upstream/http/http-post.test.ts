import assert from 'node:assert/strict';
import type { ServerResponse } from 'node:http';
import { test } from 'node:test';
import type { GatewayError } from '../../../src/errors.ts';
import { WirePool } from '../../../src/http1/pool.ts';
import { RequestHead } from '../../../src/http1/request.ts';
import type { StreamPosition } from '../../../src/protocol/framing/event-stream.ts';
import type { ErrorResponse } from '../../../src/upstream/http/http-failure.ts';
import { UpstreamPost, type UpstreamPostHandler } from '../../../src/upstream/http/http-post.ts';
import {
  event,
  json,
  progress,
  type Received,
  result,
  serve,
  stream,
  type Upstream,
  Waitlist,
} from '../../fixtures/servers/http-harness.ts';
import { PATIENCE_MS } from '../../support/patience.ts';
import { UNBOUNDED } from '../../support/receiving.ts';

const LIMIT = { timeout: 120_000 };

type Answer = (request: Received, response: ServerResponse) => void;

/** Serves answers, and collects the connections of all requests. */
async function serving(answer: Answer) {
  const used = new Set<unknown>();
  const server = await serve((request, response) => {
    used.add(response.socket);
    answer(request, response);
  });
  return { ...server, used };
}

type OwnerEvent =
  | { readonly kind: 'accepted' | 'done' }
  | { readonly kind: 'text'; readonly text: string }
  | { readonly kind: 'refused'; readonly refused: ErrorResponse }
  | { readonly kind: 'interrupted'; readonly position: StreamPosition }
  | { readonly kind: 'failed'; readonly error: GatewayError };

/** Sends POSTs, and records their events. A text with a result counts as the answer. */
class Owner implements UpstreamPostHandler, AsyncDisposable {
  readonly options = { upstream: 'notes', messageBytes: 1_000, receiving: UNBOUNDED };
  readonly events = new Waitlist<OwnerEvent>();
  readonly #server: Upstream;
  readonly #wire: WirePool;
  readonly #isRefusalAnAnswer: boolean;
  #lastId = 0;

  constructor(server: Upstream, isRefusalAnAnswer = false) {
    this.#server = server;
    this.#wire = new WirePool(new URL(server.url), PATIENCE_MS);
    this.#isRefusalAnAnswer = isRefusalAnAnswer;
  }

  post(wantsAnswer = true): UpstreamPost {
    const id = ++this.#lastId;
    const text = JSON.stringify({ jsonrpc: '2.0', id, method: 'tools/call' });
    const post = new UpstreamPost(this, { id, method: 'tools/call', text }, wantsAnswer);
    const head = new RequestHead('POST', `127.0.0.1:${this.#server.port}`, '/mcp', ['accept', 'text/event-stream']);
    this.#wire.dispatch({ head, body: text, headersMs: 0, bodyMs: 0 }, post);
    return post;
  }

  /** Sends a POST, and resolves with its last event. */
  async ending(wantsAnswer?: boolean): Promise<OwnerEvent> {
    const before = this.events.items.length;
    this.post(wantsAnswer);
    return await this.events.find(({ kind }, at) => at >= before && kind !== 'accepted' && kind !== 'text');
  }

  get kinds(): string[] {
    return this.events.items.map(({ kind }) => kind);
  }

  get texts(): string[] {
    return this.events.items.flatMap((item) => (item.kind === 'text' ? [item.text] : []));
  }

  onAccepted(): void {
    this.events.push({ kind: 'accepted' });
  }

  onText(post: UpstreamPost, text: string): void {
    this.events.push({ kind: 'text', text });
    if (text.includes('"result"')) post.markAnswered();
  }

  onDone(): void {
    this.events.push({ kind: 'done' });
  }

  onRefused(_post: UpstreamPost, refused: ErrorResponse): boolean {
    this.events.push({ kind: 'refused', refused });
    return this.#isRefusalAnAnswer;
  }

  onInterrupted(_post: UpstreamPost, position: StreamPosition): void {
    this.events.push({ kind: 'interrupted', position });
  }

  onFailed(_post: UpstreamPost, error: GatewayError): void {
    this.events.push({ kind: 'failed', error });
  }

  [Symbol.asyncDispose](): Promise<void> {
    return this.#wire.destroy();
  }
}

test('a JSON answer is passed on, and its socket carries the next POST', LIMIT, async () => {
  await using server = await serving(({ id }, response) => json(response, result(id)));
  await using owner = new Owner(server);
  assert.equal((await owner.ending()).kind, 'done');
  assert.equal((await owner.ending()).kind, 'done');
  assert.equal(server.used.size, 1);
  assert.deepEqual(owner.kinds, ['accepted', 'text', 'done', 'accepted', 'text', 'done']);
  assert.deepEqual(owner.texts, [result(1), result(2)]);
});

test('the messages of an event stream are passed on in order, up to the answer', LIMIT, async () => {
  await using server = await serve(({ id }, response) => {
    stream(response, event(progress(1), 'a'), event(progress(2), 'b'), event(result(id)));
    response.end();
  });
  await using owner = new Owner(server);
  assert.equal((await owner.ending()).kind, 'done');
  assert.deepEqual(owner.texts, [progress(1), progress(2), result(1)]);
});

test('a notification is done with its status; its body is not read', LIMIT, async () => {
  await using server = await serve((_request, response) => void response.writeHead(202).end());
  await using owner = new Owner(server);
  assert.equal((await owner.ending(false)).kind, 'done');
  assert.deepEqual(owner.kinds, ['accepted', 'done']);
});

test('an interrupted stream reports the position from which it can be resumed', LIMIT, async () => {
  await using server = await serve((_request, response) => {
    stream(response, `retry: 70\n${event(progress(1), 'e-1')}`);
    response.end();
  });
  await using owner = new Owner(server);
  const end = await owner.ending();
  assert.ok(end.kind === 'interrupted', end.kind);
  assert.deepEqual({ ...end.position }, { lastEventId: 'e-1', retryMs: 70 });
});

const failures: readonly { what: string; code: string; answer: Answer }[] = [
  {
    what: 'an unanswered stream without event ids',
    code: 'upstream-lost',
    answer: (_request, response) => {
      stream(response, event(progress(1)));
      response.end();
    },
  },
  {
    what: 'JSON that is not the answer',
    code: 'upstream-protocol',
    answer: (_request, response) => json(response, progress(1)),
  },
  {
    what: 'a page',
    code: 'upstream-protocol',
    answer: (_request, response) => void response.writeHead(200, { 'content-type': 'text/html' }).end('<p>'),
  },
  {
    what: 'a compressed answer',
    code: 'upstream-protocol',
    answer: ({ id }, response) => json(response, result(id), { 'content-encoding': 'gzip' }),
  },
  {
    what: 'an answer beyond the limit',
    code: 'too-large',
    answer: (_request, response) => json(response, `"${'x'.repeat(1_000)}"`),
  },
  {
    what: 'a connection that breaks before the head',
    code: 'upstream-lost',
    answer: (_request, response) => void response.socket?.destroy(),
  },
];

for (const { what, code, answer } of failures) {
  test(`${what} fails the POST with ${code}`, LIMIT, async () => {
    await using server = await serving(answer);
    await using owner = new Owner(server);
    const end = await owner.ending();
    assert.equal(end.kind === 'failed' && end.error.code, code);
    await owner.ending();
    assert.equal(server.used.size, 2);
  });
}

const refusals: readonly { status: number; type: string; body: string | undefined; text?: string }[] = [
  { status: 404, type: 'application/json', body: '{"jsonrpc":"2.0"}' },
  { status: 404, type: 'text/html', body: undefined },
  // Its text may say that the session is lost.
  { status: 401, type: 'application/json', body: undefined, text: '{"jsonrpc":"2.0"}' },
  { status: 302, type: 'application/json', body: undefined },
];

for (const { status, type, body, ...text } of refusals) {
  test(
    `HTTP ${status} with ${type} is reported ${body === undefined ? 'without' : 'with'} its body`,
    LIMIT,
    async () => {
      await using server = await serving((_request, response) => {
        response.writeHead(status, { 'content-type': type, 'retry-after': '3' }).end('{"jsonrpc":"2.0"}');
      });
      await using owner = new Owner(server);
      const end = await owner.ending();
      assert.ok(end.kind === 'refused', end.kind);
      assert.deepEqual(end.refused, {
        status,
        body,
        ...text,
        retryAfterMs: 3_000,
        missingScopes: undefined,
        hasChallenge: false,
        location: undefined,
      });
      await owner.ending();
      assert.equal(server.used.size, 2);
    },
  );
}

test('a refusal whose body is the answer leaves the socket for the next POST', LIMIT, async () => {
  await using server = await serving((_request, response) => {
    response.writeHead(400, { 'content-type': 'application/json' }).end('{}');
  });
  await using owner = new Owner(server, true);
  await owner.ending();
  await owner.ending();
  assert.equal(server.used.size, 1);
});

test('after a message for another request, the socket is not reused', LIMIT, async () => {
  await using server = await serving(({ id }, response) => json(response, result(id)));
  await using owner = new Owner(server);
  const post = owner.post();
  post.blockSocketReuse();
  await owner.events.find(({ kind }) => kind === 'done');
  await owner.ending();
  assert.equal(server.used.size, 2);
});

test('a cancelled POST closes its socket and reports nothing', LIMIT, async () => {
  await using server = await serve((_request, response) => stream(response, event(progress(1))));
  await using owner = new Owner(server);
  const post = owner.post();
  await owner.events.find(({ kind }) => kind === 'text');
  post.cancel();
  await server.idle();
  assert.deepEqual(owner.kinds, ['accepted', 'text']);
});

test('an answer that arrives elsewhere ends the POST when its stream ends', LIMIT, async () => {
  await using server = await serve((_request, response) => {
    stream(response, event(progress(1)));
    response.end();
  });
  await using owner = new Owner(server);
  const post = owner.post();
  post.markAnswered();
  await owner.events.find(({ kind }) => kind === 'done');
  assert.ok(post.isAnswered && post.hasEnded);
  assert.deepEqual(owner.kinds, ['accepted', 'text', 'done']);
});
