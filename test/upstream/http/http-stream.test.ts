import assert from 'node:assert/strict';
import { test } from 'node:test';

import { GatewayError } from '../../../src/errors.ts';
import { LIMITS } from '../../../src/limits.ts';
import { reconnectMs, afterResumedStreamEnd, afterServerStreamEnd } from '../../../src/upstream/http/http-stream.ts';
import { connect, event, greeted, json, progress, result, serve, stream } from '../../fixtures/servers/http-harness.ts';

const LIMIT = { timeout: 120_000 };
const ping = '{"jsonrpc":"2.0","id":"s-ping","method":"ping"}';

// T-037
test('a stream without its answer is resumed after `retry`, with Last-Event-ID', LIMIT, async () => {
  let endedMs = 0;
  let call: unknown;
  await using server = await serve((request, response) => {
    if (request.headers['last-event-id'] !== undefined) {
      stream(response, event(progress(2), 'e-3'), event(result(call), 'e-4'));
    } else if (request.method === 'GET') {
      response.writeHead(405).end();
    } else if (request.rpc === 'tools/call') {
      call = request.id;
      stream(response, 'id: e-1\nretry: 500\ndata: \n\n', event(progress(1), 'e-2'));
      response.end();
      endedMs = performance.now();
    } else {
      greeted(request, response);
    }
  });
  await using peer = await connect(server.url);
  await peer.greet('2025-11-25');
  peer.request(2);
  await peer.answer(2);
  assert.deepEqual(
    peer.events.items.slice(1).map((item) => item.kind === 'message' && item.about),
    [2, 2, 2],
  );
  const resumed = await server.received.find(({ headers }) => headers['last-event-id'] !== undefined);
  assert.equal(resumed.method, 'GET');
  assert.equal(resumed.headers['last-event-id'], 'e-2');
  assert.equal(resumed.headers['mcp-session-id'], 's-1');
  assert.equal(resumed.headers['mcp-protocol-version'], '2025-11-25');
  assert.ok(resumed.atMs - endedMs >= 450, 'no sooner than the server asked for');
  assert.equal(server.received.items.filter(({ rpc }) => rpc === 'tools/call').length, 1);
  await resumed.closed;
});

// T-037
test('a server may end the stream of one request many times, cleanly or by reset', LIMIT, async () => {
  let call: unknown;
  let polls = 0;
  await using server = await serve((request, response) => {
    if (request.method === 'GET') {
      polls++;
      if (polls === 2) response.socket?.destroy();
      else if (polls === 4) response.writeHead(503).end();
      else if (polls < 6) stream(response, `id: e-${polls}\ndata: \n\n`);
      else stream(response, event(result(call)));
      response.end();
    } else {
      call = request.id;
      stream(response, 'id: e-0\nretry: 1\ndata: \n\n');
      // Broken, not ended.
      setImmediate(() => response.socket?.destroy());
    }
  });
  await using peer = await connect(server.url);
  peer.request(2);
  await peer.answer(2);
  assert.deepEqual(
    server.received.items.map(({ headers }) => headers['last-event-id']),
    [undefined, 'e-0', 'e-1', 'e-1', 'e-3', 'e-3', 'e-5'],
  );
});

test('a stream without event ids that ends before the answer fails the call', LIMIT, async () => {
  await using server = await serve((_request, response) => {
    stream(response, event(progress(1)));
    response.end();
  });
  await using peer = await connect(server.url);
  peer.request(2);
  const error = await peer.failure(2);
  assert.equal(error.code, 'upstream-lost');
  assert.equal(error.row.executed, 'unknown');
  assert.equal(server.received.items.length, 1);
});

const unresumable = [
  { name: 'refuses to resume', status: 405 },
  { name: 'knows no such event', status: 400 },
];

for (const { name, status } of unresumable) {
  test(`a server that ${name} fails the call with executed unknown`, LIMIT, async () => {
    await using server = await serve((request, response) => {
      if (request.method === 'GET') response.writeHead(status).end();
      else stream(response, 'id: e-0\nretry: 1\ndata: \n\n');
      response.end();
    });
    await using peer = await connect(server.url);
    peer.request(2);
    const error = await peer.failure(2);
    assert.equal(error.code, 'upstream-lost');
    assert.equal(error.detail.executed ?? error.row.executed, 'unknown');
    assert.equal(server.received.items.length, 2);
  });
}

// X-037
test('a request forgotten between two streams is not resumed', LIMIT, async () => {
  await using server = await serve((request, response) => {
    const resumedFrom = request.headers['last-event-id'];
    if (resumedFrom !== undefined) stream(response, event(result(3)));
    else stream(response, `id: e-${String(request.id)}\nretry: 50\ndata: \n\n${event(progress(1))}`);
    response.end();
  });
  await using peer = await connect(server.url);
  peer.request(2);
  await peer.events.at(0);
  peer.transport.forget(2);
  // The stream of this request ends later and has the same delay, so the first one would have been resumed before it.
  peer.request(3);
  await peer.answer(3);
  const resumed = server.received.items.filter(({ method }) => method === 'GET');
  assert.deepEqual(
    resumed.map(({ headers }) => headers['last-event-id']),
    ['e-3'],
  );
});

test('a session lost during resumption closes the transport; executed is unknown', LIMIT, async () => {
  await using server = await serve((request, response) => {
    if (request.headers['last-event-id'] !== undefined) {
      response.writeHead(404).end();
    } else if (!greeted(request, response)) {
      stream(response, 'id: e-0\nretry: 1\ndata: \n\n');
      response.end();
    }
  });
  await using peer = await connect(server.url);
  await peer.greet();
  peer.request(2);
  const error = await peer.failure(2);
  assert.equal(error.code, 'upstream-session-lost');
  assert.equal(error.detail.executed, 'unknown');
  assert.equal((await peer.closed()).code, 'upstream-session-lost');
});

test('the server stream opens after initialized; its messages belong to no request', LIMIT, async () => {
  await using server = await serve((request, response) => {
    if (request.method === 'GET') stream(response, ': hi\n\n', event(ping), event(progress(1)));
    else greeted(request, response);
  });
  await using peer = await connect(server.url);
  await peer.greet('2025-11-25');
  await peer.events.find((item) => item.kind === 'message' && item.message.kind === 'notification');
  assert.deepEqual(
    peer.events.items.slice(1).map((item) => item.kind === 'message' && [item.message.kind, item.about]),
    [
      ['request', undefined],
      ['notification', undefined],
    ],
  );
  assert.deepEqual(
    server.received.items.map(({ method, rpc }) => rpc ?? method),
    ['initialize', 'notifications/initialized', 'GET'],
  );
});

for (const status of [405, 404, 204]) {
  // REL-16
  test(`a session without a stream of its own (HTTP ${status}) works after one attempt`, LIMIT, async () => {
    await using server = await serve((request, response) => {
      if (request.method === 'GET') response.writeHead(status).end();
      else if (!greeted(request, response)) json(response, result(request.id));
    });
    await using peer = await connect(server.url);
    await peer.greet('2025-11-25');
    await (
      await server.received.find(({ method }) => method === 'GET')
    ).closed;
    peer.request(2);
    await peer.answer(2);
    assert.equal(peer.events.items.length, 2);
    assert.equal(server.received.items.filter(({ method }) => method === 'GET').length, 1);
  });
}

// T-037
test('the server stream is resumed at its last event', LIMIT, async () => {
  let gets = 0;
  await using server = await serve((request, response) => {
    if (request.method !== 'GET') {
      greeted(request, response);
      return;
    }
    gets++;
    stream(response, `retry: 5\n${event(progress(gets), `g-${gets}`)}`);
    if (gets === 1) response.end();
    else if (gets === 2) setImmediate(() => response.socket?.destroy());
  });
  await using peer = await connect(server.url);
  await peer.greet('2025-11-25');
  await peer.events.at(3);
  assert.deepEqual(
    server.received.items.filter(({ method }) => method === 'GET').map(({ headers }) => headers['last-event-id']),
    [undefined, 'g-1', 'g-2'],
  );
});

// REL-16
test('a session lost on the server stream closes the transport', LIMIT, async () => {
  let gets = 0;
  await using server = await serve((request, response) => {
    if (request.method !== 'GET') {
      greeted(request, response);
    } else if (++gets === 1) {
      stream(response, `retry: 1\n${event(progress(1))}`);
      response.end();
    } else {
      response.writeHead(404).end();
    }
  });
  await using peer = await connect(server.url);
  await peer.greet('2025-11-25');
  const error = await peer.closed();
  assert.equal(error.code, 'upstream-session-lost');
  assert.equal(error.detail.executed, 'unknown');
});

test('an answer on the server stream is delivered, and its POST is closed', LIMIT, async () => {
  await using server = await serve((request, response) => {
    if (request.method === 'GET') {
      void server.received
        .find(({ rpc }) => rpc === 'slow')
        .then(() => stream(response, event(result(99)), event(result(2)), event(result(2))));
    } else if (!greeted(request, response)) {
      stream(response);
    }
  });
  await using peer = await connect(server.url);
  await peer.greet('2025-11-25');
  await server.received.find(({ method }) => method === 'GET');
  peer.request(2, 'slow');
  await peer.answer(2);
  const { closed } = await server.received.find(({ rpc }) => rpc === 'slow');
  await closed;
  assert.equal(peer.events.items.length, 2);
});

const reconnects = [
  { retryMs: undefined, failures: 0, random: 0, ms: 1_000 },
  { retryMs: 500, failures: 0, random: 0, ms: 500 },
  { retryMs: 500, failures: 0, random: 0.999, ms: 550 },
  { retryMs: 0, failures: 0, random: 0.5, ms: 0 },
  { retryMs: undefined, failures: 1, random: 0, ms: 1_000 },
  { retryMs: 10, failures: 2, random: 0, ms: 2_000 },
  { retryMs: 10, failures: 20, random: 0, ms: 30_000 },
  { retryMs: 60_000, failures: 20, random: 0, ms: 60_000 },
  { retryMs: 1e12, failures: 0, random: 0.999, ms: 2 ** 31 - 1 },
];

for (const { retryMs, failures, random, ms } of reconnects) {
  // T-037
  test(`retry ${retryMs ?? 'unsaid'} and ${failures} failures: reconnects after ${ms} ms`, () => {
    assert.equal(reconnectMs(retryMs, failures, random), ms);
  });
}

const position = { lastEventId: 'e-1', retryMs: undefined };
const once = { failed: 1, empty: 0, short: 0, hasOpened: true };
const refused = (status: number) => ({ kind: 'refused', status, retryAfterMs: undefined }) as const;
const broken = { kind: 'broken', error: new GatewayError('upstream-lost') } as const;
const tooLarge = { kind: 'unreadable', error: new GatewayError('too-large') } as const;
const html = { kind: 'unreadable', error: new GatewayError('upstream-protocol') } as const;

const decisions = [
  { decide: afterServerStreamEnd, end: { kind: 'ended' } as const, next: 'again' },
  { decide: afterServerStreamEnd, end: broken, next: 'again' },
  { decide: afterServerStreamEnd, end: broken, tries: { ...once, failed: 99 }, next: 'again' },
  { decide: afterServerStreamEnd, end: tooLarge, next: 'again' },
  { decide: afterServerStreamEnd, end: html, next: 'give-up' },
  { decide: afterServerStreamEnd, end: refused(400), next: 'again' },
  { decide: afterServerStreamEnd, end: refused(401), next: 'again' },
  { decide: afterServerStreamEnd, end: refused(403), next: 'again' },
  { decide: afterServerStreamEnd, end: refused(302), next: 'give-up' },
  { decide: afterServerStreamEnd, end: refused(409), next: 'again' },
  { decide: afterServerStreamEnd, end: refused(501), next: 'give-up' },
  { decide: afterServerStreamEnd, end: refused(503), next: 'again' },
  { decide: afterServerStreamEnd, end: refused(404), next: 'session-lost' },
  { decide: afterServerStreamEnd, end: refused(404), tries: { ...once, hasOpened: false }, next: 'give-up' },
  {
    decide: afterResumedStreamEnd,
    end: { kind: 'ended' } as const,
    tries: { ...once, failed: 0, empty: 99 },
    next: 'again',
  },
  { decide: afterResumedStreamEnd, end: broken, tries: { ...once, failed: 4 }, next: 'again' },
  { decide: afterResumedStreamEnd, end: broken, tries: { ...once, failed: 5 }, next: 'give-up' },
  { decide: afterResumedStreamEnd, end: refused(503), tries: { ...once, failed: 4 }, next: 'again' },
  { decide: afterResumedStreamEnd, end: refused(503), tries: { ...once, failed: 5 }, next: 'give-up' },
  { decide: afterResumedStreamEnd, end: refused(405), next: 'give-up' },
  { decide: afterResumedStreamEnd, end: tooLarge, next: 'give-up' },
  { decide: afterResumedStreamEnd, end: refused(404), next: 'session-lost' },
];

for (const { decide, end, tries = once, next } of decisions) {
  const what = end.kind === 'refused' ? `HTTP ${end.status}` : end.kind;
  const before = tries.hasOpened ? `${tries.failed} failures` : 'no stream';
  test(`${decide.name}: ${what} after ${before} means ${next}`, () => {
    assert.equal(decide(end, tries, position, true).kind, next);
  });
}

for (const { failed, minutes } of [
  { failed: 1, minutes: 1 },
  { failed: 2, minutes: 2 },
  { failed: 4, minutes: 8 },
  { failed: 5, minutes: 15 },
  { failed: 5_000, minutes: 15 },
]) {
  test(`a stream that is refused for the ${failed}. time with HTTP 401 is opened after ${minutes} min`, () => {
    const next = afterServerStreamEnd(refused(401), { ...once, failed }, position, true);
    assert.partialDeepStrictEqual(next, { kind: 'again', delayMs: minutes * 60_000 });
  });
}

test('limit resumeAttempts: the stream of an answer is given up', () => {
  for (const end of [broken, refused(503)]) {
    const decide = (failed: number) => afterResumedStreamEnd(end, { ...once, failed }, position, true);
    assert.equal(decide(LIMITS.resumeAttempts - 1).kind, 'again');
    assert.partialDeepStrictEqual(decide(LIMITS.resumeAttempts), { kind: 'give-up', limit: 'resumeAttempts' });
  }
  // This one ends for another reason.
  assert.ok(!('limit' in afterResumedStreamEnd(refused(405), once, position, true)));
});

for (const isLong of [false, true]) {
  const what = isLong ? 'longer id is not resumed' : 'long id is resumed';
  test(`limit upstreamEventIdChars: a stream cut after a ${what}`, LIMIT, async () => {
    const id = 'x'.repeat(LIMITS.upstreamEventIdChars + (isLong ? 1 : 0));
    let call: unknown;
    await using server = await serve((request, response) => {
      if (request.headers['last-event-id'] !== undefined) {
        stream(response, event(result(call)));
      } else if (request.method === 'GET') {
        response.writeHead(405).end();
      } else if (request.rpc === 'tools/call') {
        call = request.id;
        stream(response, `retry: 1\n${event(progress(1), id)}`);
        response.end();
      } else {
        greeted(request, response);
      }
    });
    const reached: string[] = [];
    await using peer = await connect(server.url, { onLimit: (limit) => reached.push(limit) });
    await peer.greet('2025-11-25');
    peer.request(2);
    if (isLong) assert.equal((await peer.failure(2)).code, 'upstream-lost');
    else assert.equal((await peer.answer(2)).kind, 'result');
    assert.deepEqual(reached, isLong ? ['upstreamEventIdChars'] : []);
  });
}
