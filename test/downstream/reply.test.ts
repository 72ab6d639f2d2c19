import assert from 'node:assert/strict';
import { once } from 'node:events';
import type { ServerResponse } from 'node:http';
import { after, before, test } from 'node:test';
import { createEdgeMemory } from '../../src/downstream/memory/edge-memory.ts';
import { Reply, type ReplyOptions, type ReplyParts } from '../../src/downstream/reply.ts';
import { EdgeTimers } from '../../src/downstream/streams/edge-timers.ts';
import { memoryEventLogs } from '../../src/downstream/streams/memory-event-log.ts';
import { SessionStreams } from '../../src/downstream/streams/session-streams.ts';
import type { ClientSession } from '../../src/gateway/front/front.ts';
import type { Answer } from '../../src/protocol/jsonrpc.ts';
import { createMetrics } from '../../src/telemetry/metrics.ts';
import { type TestCore, testCore } from '../support/core.ts';
import { postForEvents, send } from './client.ts';
import { configWith } from './edge.ts';
import { holdingUpstream, serving } from './posts.ts';

const OPTIONS = { timeout: 120_000 };
const LOG = '{"jsonrpc":"2.0","method":"notifications/message","params":{"level":"info","data":"ä"}}';
const answerOf = (n: number): Answer => ({ kind: 'result', result: `{"n":${n}}` });
const resultOf = (n: number) => ({ jsonrpc: '2.0', id: n, result: { n } });

let gateway: TestCore;
before(async () => {
  gateway = await testCore({ up: { memory: holdingUpstream().memory } });
});
after(() => gateway[Symbol.asyncDispose]());

/** Answers each POST with a reply in a session of its own. */
async function replying(
  respond: (reply: Reply, response: ServerResponse, session: ClientSession) => void,
  options: Partial<Omit<ReplyOptions, 'session'>> = {},
  waiting = { undecided: 0 },
) {
  const { session } = await gateway.connect();
  const metrics = createMetrics('0');
  const memory = createEdgeMemory(configWith({}), metrics);
  const openEventLog = memoryEventLogs({ events: 100, bytes: 100_000 }, memory.events);
  const streams = new SessionStreams(session, {
    openEventLog,
    timers: new EdgeTimers(60_000),
    metrics,
    memory,
  });
  const of = ({ closed }: ClientSession) => (closed.aborted ? undefined : streams);
  const parts: ReplyParts = Object.assign(waiting, { memory, streams: { of }, challengeOf: () => undefined });
  return await serving((_incoming, response) => {
    const all: ReplyOptions = { session, form: 'any', request: '1', expected: 1, ...options };
    respond(new Reply(response, all, parts), response, session);
  });
}

test('an answer that is the first message is a JSON body', OPTIONS, async () => {
  const waiting = { undecided: 0 };
  await using server = await replying((reply) => reply.answer('1', answerOf(1)), {}, waiting);
  const { status, headers, text } = await send(server.url, { method: 'POST' });
  assert.equal(status, 200);
  assert.equal(headers['content-type'], 'application/json');
  assert.equal(Number(headers['content-length']), text.length);
  assert.deepEqual(JSON.parse(text), resultOf(1));
  assert.equal(waiting.undecided, 0);
});

test('an error is a JSON body with status 200', OPTIONS, async () => {
  const error = { code: -32601, message: 'no such method' };
  await using server = await replying((reply) => reply.answer('1', { kind: 'error', error }));
  const { status, text } = await send(server.url, { method: 'POST' });
  assert.deepEqual([status, JSON.parse(text)], [200, { jsonrpc: '2.0', id: 1, error }]);
});

test('a message before the answer opens an event stream for both', OPTIONS, async () => {
  await using server = await replying((reply) => {
    assert.ok(reply.send(LOG));
    reply.answer('1', answerOf(1));
    assert.ok(!reply.send(LOG), 'nothing follows the answer');
  });
  const events = await (await postForEvents(server.url, '')).ended();
  assert.equal(events.headers['content-type'], 'text/event-stream');
  assert.deepEqual(events.messages, [JSON.parse(LOG), resultOf(1)]);
  assert.equal(new Set(events.seen.map(({ id }) => id)).size, events.seen.length, 'each event has an id of its own');
});

test('a request that is not answered soon gets an event stream', OPTIONS, async () => {
  const replies: Reply[] = [];
  await using server = await replying((reply) => void replies.push(reply));
  const events = await postForEvents(server.url, '');
  replies[0]?.answer('1', answerOf(1));
  assert.deepEqual((await events.ended()).messages, [resultOf(1)]);
});

for (const { others, waits } of [
  { others: 63, waits: [50] },
  { others: 64, waits: [50, 200] },
]) {
  // N-94
  test(
    `beside ${others} replies that wait, one becomes an event stream after ${waits.join(' + ')} ms`,
    OPTIONS,
    async (t) => {
      const { promise, resolve } = Promise.withResolvers<{ reply: Reply; response: ServerResponse }>();
      const waiting = { undecided: others };
      t.mock.timers.enable({ apis: ['setTimeout'] });
      await using server = await replying((reply, response) => resolve({ reply, response }), {}, waiting);
      const got = fetch(server.url, { method: 'POST' });
      const { reply, response } = await promise;
      for (const ms of waits) {
        t.mock.timers.tick(ms - 1);
        assert.ok(!response.headersSent);
        t.mock.timers.tick(1);
        assert.equal(response.headersSent, ms === waits.at(-1));
      }
      assert.equal(waiting.undecided, others);
      reply.answer('1', answerOf(1));
      const { headers } = await got;
      assert.equal(headers.get('content-type'), 'text/event-stream');
    },
  );
}

test('a client that accepts only events gets the answer as an event', OPTIONS, async () => {
  await using server = await replying((reply) => reply.answer('1', answerOf(1)), { form: 'events' });
  assert.deepEqual((await (await postForEvents(server.url, '')).ended()).messages, [resultOf(1)]);
});

test('a client that accepts only JSON gets no other message in its response', OPTIONS, async () => {
  await using server = await replying(
    (reply) => {
      assert.ok(!reply.send(LOG));
      reply.answer('1', answerOf(1));
    },
    { form: 'json' },
  );
  assert.deepEqual(JSON.parse((await send(server.url, { method: 'POST' })).text), resultOf(1));
});

test('the answers to a batch are one JSON array, in the order of the answers', OPTIONS, async () => {
  await using server = await replying(
    (reply) => {
      reply.answer('2', answerOf(2));
      reply.answer('1', answerOf(1));
    },
    { request: undefined, expected: 2 },
  );
  const { text } = await send(server.url, { method: 'POST' });
  assert.deepEqual(JSON.parse(text), [resultOf(2), resultOf(1)]);
});

test('a message between the answers to a batch turns all of them into events', OPTIONS, async () => {
  await using server = await replying(
    (reply) => {
      reply.answer('1', answerOf(1));
      reply.send(LOG);
      reply.answer('2', answerOf(2));
    },
    { request: undefined, expected: 2 },
  );
  const { messages } = await (await postForEvents(server.url, '')).ended();
  assert.deepEqual(
    messages.map(({ id }) => id),
    [1, undefined, 2],
  );
});

for (const { form, status, type } of [
  { form: 'json', status: 202, type: undefined },
  { form: 'any', status: 200, type: 'text/event-stream' },
] as const) {
  test(`a cancelled request ends with an empty response (${form})`, OPTIONS, async () => {
    await using server = await replying((reply) => reply.answer('1', undefined), { form });
    const got = await send(server.url, { method: 'POST' });
    assert.deepEqual([got.status, got.headers['content-type'], got.text], [status, type, '']);
  });
}

test('after the end of the session an answer is JSON, and messages are refused', OPTIONS, async () => {
  await using server = await replying((reply, _response, session) => {
    void gateway.core.gateway.endSession(session).then(() => {
      assert.ok(!reply.send(LOG));
      reply.answer('1', answerOf(1));
    });
  });
  assert.deepEqual(JSON.parse((await send(server.url, { method: 'POST' })).text), resultOf(1));
});

test('an answer to a client that has disconnected is dropped', OPTIONS, async () => {
  const { promise, resolve } = Promise.withResolvers<{ reply: Reply; response: ServerResponse }>();
  await using server = await replying((reply, response) => resolve({ reply, response }), { form: 'json' });
  const leaving = new AbortController();
  const got = fetch(server.url, { method: 'POST', signal: leaving.signal });
  const { reply, response } = await promise;
  leaving.abort();
  await assert.rejects(got);
  if (!response.destroyed) await once(response, 'close');
  reply.answer('1', answerOf(1));
  assert.ok(!response.headersSent);
});
