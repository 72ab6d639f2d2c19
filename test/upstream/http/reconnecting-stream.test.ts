import assert from 'node:assert/strict';
import type { ServerResponse } from 'node:http';
import { test } from 'node:test';
import type { HttpTarget } from '../../../src/config/values/upstream-config.ts';
import type { GatewayError } from '../../../src/errors.ts';
import { WirePool } from '../../../src/http1/pool.ts';
import { NO_CONTROL } from '../../../src/http1/wire.ts';
import { Cookies } from '../../../src/upstream/http/cookies.ts';
import { HttpSession } from '../../../src/upstream/http/http-session.ts';
import { afterServerStreamEnd, type NextStep, ReconnectingStream } from '../../../src/upstream/http/http-stream.ts';
import {
  event,
  progress,
  type Received,
  serve,
  stream,
  type Upstream,
  Waitlist,
} from '../../fixtures/servers/http-harness.ts';
import { PATIENCE_MS } from '../../support/patience.ts';
import { UNBOUNDED } from '../../support/receiving.ts';
import { stopTime } from '../../support/stopped-time.ts';
import { waitUntil } from '../../support/wait-until.ts';

const LIMIT = { timeout: 120_000 };

/** A stream from a server, with the texts and the end that it has reported. */
class Reader implements AsyncDisposable {
  readonly texts = new Waitlist<string>();
  readonly ends = new Waitlist<NextStep>();
  readonly refusals: GatewayError[] = [];
  readonly session: HttpSession;
  readonly stream: ReconnectingStream;
  attempts = 0;
  opened = 0;
  gaps = 0;
  /** Breaks the last stream with an error of the system. */
  fail: (thrown: Error) => void = () => undefined;
  readonly #wire: WirePool;

  constructor({ url }: Upstream, lastEventId = '', target: HttpTarget = { kind: 'http', url, headers: {} }) {
    const wire = new WirePool(new URL(url), PATIENCE_MS);
    const session = new HttpSession(target, 'linkspan/test', new Cookies(url));
    this.#wire = wire;
    this.session = session;
    this.stream = new ReconnectingStream({
      options: { upstream: 'notes', messageBytes: 1_000, receiving: UNBOUNDED },
      position: { lastEventId, retryMs: undefined },
      decide: afterServerStreamEnd,
      open: (get, position) => {
        this.opened += 1;
        this.fail = (thrown) => get.onResponseError(NO_CONTROL, thrown);
        wire.dispatch(session.get(position), get);
      },
      onHeaders: (headers) => session.keepCookies(headers),
      inSession: () => session.id !== undefined,
      onText: (text) => this.texts.push(text),
      onAttempt: () => (this.attempts += 1),
      onGap: () => (this.gaps += 1),
      onRefused: (reason) => this.refusals.push(reason),
      onEnd: (end) => this.ends.push(end),
    });
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.stream.close();
    await this.#wire.destroy();
  }
}

/** Answers each GET with the next of these functions, and every further one with HTTP 405. */
function inTurn(...answers: readonly ((response: ServerResponse, request: Received) => void)[]): Promise<Upstream> {
  let next = 0;
  return serve((request, response) => {
    const answer = answers[next++];
    if (answer === undefined) response.writeHead(405).end();
    else answer(response, request);
  });
}

const soon = 'retry: 1\n';
const ending = (text: string) => (response: ServerResponse) => {
  stream(response, text);
  response.end();
};

test('a stream that ends or breaks is opened again at its last event', LIMIT, async () => {
  await using server = await inTurn(
    ending(`${soon}${event(progress(1), 'a')}`),
    (response) => {
      stream(response, event(progress(2), 'b'));
      setImmediate(() => response.socket?.resetAndDestroy());
    },
    ending(event(progress(3), 'c')),
  );
  await using reader = new Reader(server);
  reader.stream.start(0);
  assert.deepEqual(await reader.ends.at(0), { kind: 'give-up', hadStream: true });
  assert.deepEqual(reader.texts.items, [progress(1), progress(2), progress(3)]);
  assert.deepEqual(
    server.received.items.map(({ headers }) => headers['last-event-id']),
    [undefined, 'a', 'b', 'c'],
  );
});

for (const [what, text] of [
  ['without data', 'retry: 0\nid: a\ndata:\n\n'],
  ['with a message', `retry: 0\n${event(progress(1), 'a')}`],
] as const) {
  test(`a stream that ends again after an event ${what} waits for 250 ms`, LIMIT, async (t) => {
    await using server = await inTurn(ending(text), ending(text), ending(text));
    const time = stopTime(t);
    await using reader = new Reader(server);
    reader.stream.start(0);
    await waitUntil(() => reader.attempts === 2);
    time.pass(1);
    await waitUntil(() => reader.attempts === 4);
    time.pass(249);
    assert.equal(reader.opened, 2);
    time.pass(1);
    assert.equal(reader.opened, 3);
    await waitUntil(() => reader.attempts === 6);
    time.pass(250);
    await reader.ends.at(0);
  });
}

const SECOND = 1_000;
const refuse = (response: ServerResponse) => void response.writeHead(503).end();

for (const { what, retryMs, answers, gaps } of [
  // A server may ask for a long pause.
  { what: '20 s without a refusal', retryMs: 20 * SECOND, answers: [], gaps: [1, 2] },
  { what: '40 s with one refusal', retryMs: 20 * SECOND, answers: [refuse], gaps: [1, 2] },
  { what: '3 s without a refusal', retryMs: 3 * SECOND, answers: [], gaps: [0, 0] },
  { what: '3 s with one refusal', retryMs: SECOND, answers: [refuse], gaps: [1, 1] },
  { what: '30 s with five refusals', retryMs: SECOND, answers: [refuse, refuse, refuse, refuse, refuse], gaps: [1, 2] },
])
  // M-015
  test(`of two gaps of ${what}, these are reported: ${gaps.join(', ')}`, LIMIT, async (t) => {
    const open = ending(`retry: ${retryMs}\n\n: ${' '.repeat(SECOND)}\n\n`);
    await using server = await inTurn(open, ...answers, open, ...answers, open);
    const time = stopTime(t);
    await using reader = new Reader(server);
    const reported: number[] = [];
    reader.stream.start(0);
    let seen = 0;
    for (const answer of [open, ...answers, open, ...answers, open]) {
      // A stream that ends has been opened before.
      seen += answer === open ? 2 : 1;
      await waitUntil(() => reader.attempts === seen);
      if (answer === open) reported.push(reader.gaps);
      const { opened } = reader;
      while (reader.opened === opened) time.pass(100);
    }
    assert.deepEqual(reported, [0, ...gaps]);
  });

// M-015
test('a gap is reported after a stream whose server did not answer any more', LIMIT, async () => {
  await using server = await inTurn(
    (response) => stream(response, soon),
    (response) => stream(response, soon),
  );
  await using reader = new Reader(server);
  reader.stream.start(0);
  await waitUntil(() => reader.attempts === 1);
  reader.fail(Object.assign(new Error('read ETIMEDOUT'), { code: 'ETIMEDOUT' }));
  await waitUntil(() => reader.attempts === 3);
  assert.equal(reader.gaps, 1);
});

test('a stream begins at the position that it is given', LIMIT, async () => {
  await using server = await inTurn();
  await using reader = new Reader(server, 'e-7');
  reader.stream.start(0);
  await reader.ends.at(0);
  assert.equal(server.received.items[0]?.headers['last-event-id'], 'e-7');
});

test('events of other types and events without data are no messages', LIMIT, async () => {
  await using server = await inTurn(
    ending(`${soon}id: a\ndata: \n\nevent: ping\ndata: x\n\n${event(progress(1), 'b')}`),
  );
  await using reader = new Reader(server);
  reader.stream.start(0);
  await reader.ends.at(0);
  assert.deepEqual(reader.texts.items, [progress(1)]);
});

test('after an event that is too large, the stream is opened from its start', LIMIT, async () => {
  await using server = await inTurn(ending(`${soon}id: a\ndata: ${progress(1)}\n\ndata: ${'x'.repeat(1_001)}\n\n`));
  await using reader = new Reader(server);
  reader.stream.start(0);
  await reader.ends.at(0);
  assert.deepEqual(
    server.received.items.map(({ headers }) => headers['last-event-id']),
    [undefined, undefined],
  );
});

// REL-16
test('a 404 to the first GET of a session means that the server has no such stream', LIMIT, async () => {
  await using server = await inTurn((response) => response.writeHead(404).end());
  await using reader = new Reader(server);
  reader.session.setId('s-1');
  reader.stream.start(0);
  assert.deepEqual(await reader.ends.at(0), { kind: 'give-up' });
});

// REL-16
test('a 404 after a stream within a session means the loss of the session', LIMIT, async () => {
  await using server = await inTurn(ending(`${soon}${event(progress(1), 'a')}`), (response) =>
    response.writeHead(404).end(),
  );
  await using reader = new Reader(server);
  reader.session.setId('s-1');
  reader.stream.start(0);
  assert.deepEqual(await reader.ends.at(0), { kind: 'session-lost' });
});

test('each opened stream and each end of one counts as an attempt', LIMIT, async () => {
  await using server = await inTurn(ending(`${soon}${event(progress(1), 'a')}`));
  await using reader = new Reader(server);
  reader.stream.start(0);
  await reader.ends.at(0);
  assert.equal(reader.attempts, 3, 'opened, ended, refused');
});

test('a closed stream reports nothing, and its connection is closed', LIMIT, async () => {
  await using server = await inTurn((response) => stream(response, event(progress(1), 'a')));
  await using reader = new Reader(server);
  reader.stream.start(0);
  await reader.texts.at(0);
  reader.stream.close();
  await server.idle();
  assert.deepEqual(reader.ends.items, []);
});

for (const status of [401, 403]) {
  test(`a stream refused with HTTP ${status} is opened with the headers that replace ours`, LIMIT, async (t) => {
    await using server = await serve((request, response) => {
      if (request.headers.authorization === 'Bearer new') stream(response, event(progress(1), 'a'));
      else response.writeHead(status).end();
    });
    const target = { kind: 'http' as const, url: server.url, headers: { authorization: 'Bearer old' } };
    const time = stopTime(t);
    await using reader = new Reader(server, '', target);
    reader.stream.start(0);
    await waitUntil(() => reader.attempts === 1);
    time.pass(60_000);
    await waitUntil(() => reader.attempts === 2);
    target.headers = { authorization: 'Bearer new' };
    time.pass(119_000);
    assert.equal(server.received.items.length, 2, 'the pause is longer after each refusal');
    time.pass(1_000);
    await reader.texts.at(0);
    const [refusal, ...others] = reader.refusals;
    assert.match(String(refusal?.message), new RegExp(`refused \\(HTTP ${status}\\)`));
    assert.deepEqual(others, [], 'reported once');
  });
}

test('a stream that is closed before its delay is over is not opened', LIMIT, async () => {
  await using server = await inTurn();
  await using closed = new Reader(server, 'closed');
  await using open = new Reader(server, 'open');
  // The timers of both end in this order.
  closed.stream.start(20);
  open.stream.start(20);
  closed.stream.close();
  await open.ends.at(0);
  assert.deepEqual(
    server.received.items.map(({ headers }) => headers['last-event-id']),
    ['open'],
  );
});
