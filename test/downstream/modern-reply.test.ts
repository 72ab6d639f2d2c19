import assert from 'node:assert/strict';
import { once } from 'node:events';
import type { ServerResponse } from 'node:http';
import { test } from 'node:test';
import { createEdgeMemory } from '../../src/downstream/memory/edge-memory.ts';
import { callerOf, readModern } from '../../src/downstream/modern-envelope.ts';
import { ModernReply } from '../../src/downstream/modern-reply.ts';
import { DisconnectWatcher } from '../../src/downstream/streams/disconnect-watcher.ts';
import { EdgeTimers } from '../../src/downstream/streams/edge-timers.ts';
import { LOCAL } from '../../src/policy/principal.ts';
import { type Answer, parseMessage } from '../../src/protocol/jsonrpc.ts';
import { RPC } from '../../src/protocol/rpc-codes.ts';
import { createMetrics } from '../../src/telemetry/metrics.ts';
import { type TestCore, testCore, UPSTREAM } from '../support/core.ts';
import { modernText } from '../support/modern-wire.ts';
import { postForEvents, send } from './client.ts';
import { configWith } from './edge.ts';
import { holdingUpstream, serving } from './posts.ts';

const OPTIONS = { timeout: 120_000 };
const PROGRESS = '{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":1,"progress":1}}';
const DONE: Answer = { kind: 'result', result: '{"resultType":"complete"}' };
const FINAL = { jsonrpc: '2.0', id: 1, result: { resultType: 'complete' } };

interface Replied {
  readonly reply: ModernReply;
  readonly response: ServerResponse;
}

/** Answers each POST with a reply to a modern request. */
async function replying(
  respond: (replied: Replied) => void,
  form: 'any' | 'json' | 'events' = 'any',
  method = 'tools/list',
  params: Readonly<Record<string, unknown>> = {},
) {
  const message = parseMessage(modernText(method, params));
  assert.ok(message.kind === 'request');
  const modern = readModern(message, undefined);
  assert.ok(modern?.kind === 'modern');
  const failures: unknown[] = [];
  const replies: ModernReply[] = [];
  const metrics = createMetrics('0');
  const parts = {
    timers: new EdgeTimers(60_000),
    disconnects: new DisconnectWatcher(),
    memory: createEdgeMemory(configWith({}), metrics),
    metrics,
    challengeOf: () => undefined,
    onReplied: (reply: ModernReply) => void replies.push(reply),
    onFailed: (thrown: unknown) => void failures.push(thrown),
  };
  const server = await serving((_incoming, response) => {
    respond({
      reply: new ModernReply(response, message, callerOf(modern.envelope, LOCAL, ''), form, parts, undefined),
      response,
    });
  });
  /** Passes the request of a reply to a gateway, as the endpoint does. */
  const begin = ({ core }: TestCore, reply: ModernReply) => {
    reply.bind(core.gateway.handleModernRequest(message, callerOf(modern.envelope, LOCAL, ''), reply, undefined));
  };
  return { url: server.url, replies, failures, begin, [Symbol.asyncDispose]: () => server[Symbol.asyncDispose]() };
}

test('an answer that is the first message is a JSON body', OPTIONS, async () => {
  await using server = await replying(({ reply }) => reply.answer(DONE));
  const { status, headers, text } = await send(server.url, { method: 'POST' });
  assert.deepEqual([status, headers['content-type'], JSON.parse(text)], [200, 'application/json', FINAL]);
  assert.equal(server.replies.length, 1);
});

const errors = [
  { code: RPC.methodNotFound, status: 404 },
  { code: RPC.headerMismatch, status: 400 },
  { code: RPC.missingCapability, status: 400 },
  { code: RPC.unsupportedVersion, status: 400 },
  { code: RPC.invalidParams, status: 200 },
  { code: -31_010, status: 200 },
];

for (const { code, status } of errors) {
  test(`an error ${code} that is the whole response has status ${status}`, OPTIONS, async () => {
    await using server = await replying(({ reply }) => {
      reply.answer({ kind: 'error', error: { code, message: 'no' } });
    });
    const got = await send(server.url, { method: 'POST' });
    assert.deepEqual([got.status, JSON.parse(got.text).error.code], [status, code]);
  });
}

test('an error after a message is an event with status 200', OPTIONS, async () => {
  const error = { code: RPC.methodNotFound, message: 'no' };
  await using server = await replying(({ reply }) => {
    assert.ok(reply.send(PROGRESS));
    reply.answer({ kind: 'error', error });
    assert.ok(!reply.send(PROGRESS), 'nothing follows the answer');
  });
  const events = await (await postForEvents(server.url, '')).ended();
  assert.equal(events.status, 200);
  assert.deepEqual(events.messages, [JSON.parse(PROGRESS), { jsonrpc: '2.0', id: 1, error }]);
});

test('a client that accepts only events gets the answer as an event', OPTIONS, async () => {
  await using server = await replying(({ reply }) => reply.answer(DONE), 'events');
  assert.deepEqual((await (await postForEvents(server.url, '')).ended()).messages, [FINAL]);
});

test('a client that accepts only JSON gets no other message in its response', OPTIONS, async () => {
  await using server = await replying(({ reply }) => {
    assert.ok(!reply.send(PROGRESS));
    reply.answer(DONE);
  }, 'json');
  assert.deepEqual(JSON.parse((await send(server.url, { method: 'POST' })).text), FINAL);
});

test('a committed reply sends its head before the first event', OPTIONS, async () => {
  const replies: ModernReply[] = [];
  await using server = await replying(({ reply }) => {
    replies.push(reply);
    reply.commit();
  });
  const events = await postForEvents(server.url, '');
  assert.deepEqual([events.status, events.seen], [200, []]);
  replies[0]?.answer(DONE);
  assert.deepEqual((await events.ended()).messages, [FINAL]);
});

test('a disconnect cancels the call at its upstream', OPTIONS, async () => {
  const { memory, holding } = holdingUpstream();
  // A timeout would cancel the call as well.
  const timeouts = { ...UPSTREAM.timeouts, callMs: 60_000, maxMs: 60_000 };
  await using gateway = await testCore({ up: { memory, timeouts } });
  const name = 'up__hold';
  await using server = await replying(({ reply }) => server.begin(gateway, reply), 'any', 'tools/call', { name });
  const leaving = new AbortController();
  const got = fetch(server.url, { method: 'POST', signal: leaving.signal });
  await holding(1);
  leaving.abort();
  await assert.rejects(got);
  await memory.until(() =>
    memory.peers.some(({ received }) =>
      received.some((message) => message.kind === 'notification' && message.method === 'notifications/cancelled'),
    )
      ? true
      : undefined,
  );
});

test('a reply without a client accepts the answer, and writes nothing', OPTIONS, async () => {
  const { promise, resolve } = Promise.withResolvers<Replied>();
  await using server = await replying(resolve);
  const leaving = new AbortController();
  const got = fetch(server.url, { method: 'POST', signal: leaving.signal });
  const { reply, response } = await promise;
  leaving.abort();
  await assert.rejects(got);
  if (!response.closed) await once(response, 'close');
  reply.answer(DONE);
  assert.deepEqual([server.replies, server.failures, response.headersSent], [[reply], [], false]);
});

test('close ends a listen stream with its answer', OPTIONS, async () => {
  const { memory } = holdingUpstream();
  await using gateway = await testCore({ up: { memory } });
  const replies: ModernReply[] = [];
  await using server = await replying(
    ({ reply }) => {
      replies.push(reply);
      server.begin(gateway, reply);
    },
    'any',
    'subscriptions/listen',
    { notifications: { toolsListChanged: true } },
  );
  const events = await postForEvents(server.url, '');
  await events.until(({ messages }) => messages.length > 0);
  replies[0]?.close();
  const { messages } = await events.ended();
  assert.deepEqual(
    messages.map(({ method, id }) => method ?? id),
    ['notifications/subscriptions/acknowledged', 1],
  );
});
