import assert from 'node:assert/strict';
import { type TestContext, test } from 'node:test';
import { setImmediate as nextTurn } from 'node:timers/promises';
import { toRpcError } from '../../../src/errors.ts';
import { Sender } from '../../../src/gateway/forward/sender.ts';
import { QuestionPolicy } from '../../../src/gateway/questions/question-policy.ts';
import { TaskDriver } from '../../../src/gateway/tasks/task-driver.ts';
import { RawObject } from '../../../src/json/json.ts';
import type { Answer, Request } from '../../../src/protocol/jsonrpc.ts';
import { GatewayParts } from '../../support/gateway-parts.ts';
import { memoryUpstream, type MemoryUpstream, result } from '../../support/memory-upstream.ts';
import { stopTime } from '../../support/stopped-time.ts';

const TIMEOUT = { timeout: 120_000 };
const POLL_MS = 1_000; // subject
const MAX_MS = 5_000; // subject
const TIMEOUTS = {
  startMs: 60_000,
  connectMs: 60_000,
  firstByteMs: 60_000,
  callMs: 60_000,
  toolMs: 60_000,
  maxMs: MAX_MS,
};
const WORKING = { taskId: 't', status: 'working' };
const DONE = { content: [] };
const FORM = { message: 'name?', requestedSchema: { type: 'object', properties: {} } };
const ASKS = {
  ...WORKING,
  status: 'input_required',
  inputRequests: { name: { method: 'elicitation/create', params: FORM } },
};

/** Returns the result of a `tasks/…` request or its text, or `{ error }`; undefined if the test answers it. */
type Answering = (request: Request) => object | string | undefined;

/** A call that is a task of an upstream, whose time passes as the test says. */
async function driving(t: TestContext, era: 'legacy' | 'modern', answer: Answering, capabilities: object = {}) {
  const time = stopTime(t);
  const discovered = { resultType: 'complete', supportedVersions: ['2026-07-28'], capabilities: { tools: {} } };
  const memory: MemoryUpstream = memoryUpstream({
    isRaw: era === 'modern',
    request: (peer, request) => {
      if (request.method === 'server/discover') return peer.send(result(request, discovered));
      const value = answer(request);
      if (value === undefined) return;
      const id = JSON.parse(request.id);
      if (typeof value === 'string') return peer.send(`{"jsonrpc":"2.0","id":${id},"result":${value}}`);
      peer.send('error' in value ? JSON.stringify({ jsonrpc: '2.0', id, ...value }) : result(request, value));
    },
  });
  const at = new GatewayParts({ up: { memory, era, timeouts: TIMEOUTS } });
  t.after(() => at[Symbol.asyncDispose]());
  const { upstreams, metrics, log } = at;
  const policy = new QuestionPolicy({ rulesOf: (id) => upstreams.get(id)?.config, metrics, log });
  const driver = new TaskDriver(new Sender(metrics, at.stateLosses), policy);
  const { session } = at.session({ capabilities });
  const upstream = at.upstream('up');
  const link = await upstream.link(session, undefined, undefined);
  const { exchange, stream } = at.exchange(session, session);
  const site = { upstream, link, task: 't' };
  const sent = () =>
    memory.peers.flatMap(({ received }) => received).flatMap((one) => ('method' in one ? [one.method] : []));
  return {
    session,
    exchange,
    stream,
    upstream,
    memory,
    finish: (first: object) => driver.finish(exchange, site, RawObject.of(first)),
    pass: async (ms: number) => {
      time.pass(ms);
      for (let turn = 0; turn < 6; turn++) await nextTurn();
    },
    /** The requests about the task, in order. */
    asked: () => sent().filter((method) => method.startsWith('tasks/')),
  };
}

test('a legacy task is polled at the pace of its upstream, and its result fetched', TIMEOUT, async (t) => {
  const states = [
    { ...WORKING, pollInterval: 3_000 },
    { ...WORKING, status: 'completed' },
  ];
  const { finish, pass, asked, upstream, exchange } = await driving(t, 'legacy', ({ method }) =>
    method === 'tasks/get' ? (states.shift() ?? {}) : DONE,
  );
  assert.equal(exchange.acquireSlot(upstream), undefined);
  const end = finish(WORKING);
  assert.equal(upstream.limiter.activeCount, 0, 'it needs no slot');
  await pass(POLL_MS - 1);
  assert.deepEqual(asked(), []);
  await pass(1);
  await pass(2_999);
  assert.deepEqual(asked(), ['tasks/get']);
  await pass(1);
  assert.partialDeepStrictEqual(await end, { kind: 'result', result: JSON.stringify(DONE) });
  assert.deepEqual(asked(), ['tasks/get', 'tasks/get', 'tasks/result']);
});

test('a modern task ends with the outcome in its state, which is the upstream’s', TIMEOUT, async (t) => {
  const error = { code: -32_000, message: 'no', data: { code: 'overloaded' } };
  const { finish, asked, exchange } = await driving(t, 'modern', () => ({}));
  const done: Answer = await finish({ ...WORKING, status: 'completed', result: DONE });
  assert.deepEqual(done, { kind: 'result', result: JSON.stringify(DONE) });
  const failed = await finish({ ...WORKING, status: 'failed', error });
  assert.deepEqual([failed.kind, exchange.outcome?.error, asked()], ['error', 'rpc_error', []]);
});

test('a task that its upstream cancels, or that goes on too long, fails the call', TIMEOUT, async (t) => {
  const { finish, pass, asked } = await driving(t, 'legacy', () => WORKING);
  const cancelled = { code: 'cancelled', executed: 'unknown' };
  await assert.rejects(finish({ ...WORKING, status: 'cancelled' }), cancelled);
  const end = assert.rejects(finish(WORKING), { code: 'upstream-timeout', executed: 'unknown' });
  for (let ms = 0; ms <= MAX_MS; ms += POLL_MS) await pass(POLL_MS);
  await end;
  await nextTurn();
  assert.deepEqual(
    asked().filter((method) => method === 'tasks/cancel'),
    ['tasks/cancel', 'tasks/cancel'],
  );
});

test('the result of a task that is done at its last poll is waited for', TIMEOUT, async (t) => {
  let state = WORKING;
  const { finish, pass, memory } = await driving(t, 'legacy', ({ method }) =>
    method === 'tasks/get' ? state : undefined,
  );
  const end = finish({ ...WORKING, pollInterval: 2 * MAX_MS });
  await pass(MAX_MS - 1);
  state = { ...WORKING, status: 'completed' };
  await pass(1);
  await pass(POLL_MS);
  const [request] = memory.requests('tasks/result');
  assert.ok(request !== undefined);
  memory.peers[0]?.send(result(request, DONE));
  assert.partialDeepStrictEqual(await end, { kind: 'result', result: JSON.stringify(DONE) });
});

test('a call that its client cancels cancels the task, and may have run', TIMEOUT, async (t) => {
  const { finish, pass, asked, exchange } = await driving(t, 'legacy', () => WORKING);
  const end = assert.rejects(finish(WORKING), { code: 'cancelled', executed: 'unknown' });
  exchange.cancel('enough');
  await end;
  await pass(0);
  assert.deepEqual(asked(), ['tasks/cancel']);
});

test('a poll that fails before it is sent does not say to make the call again', TIMEOUT, async (t) => {
  const { finish, pass, memory } = await driving(t, 'legacy', () => WORKING);
  const end = assert.rejects(finish(WORKING), (thrown) => {
    assert.partialDeepStrictEqual(toRpcError(thrown).data, {
      code: 'upstream-lost',
      executed: 'unknown',
      retryable: false,
    });
    return true;
  });
  memory.peers[0]?.crash();
  await pass(POLL_MS);
  await end;
});

test('the error of a poll is the answer to the call', TIMEOUT, async (t) => {
  const error = { code: -32_602, message: 'no such task' };
  const { finish, pass, asked } = await driving(t, 'legacy', () => ({ error }));
  const end = finish(WORKING);
  await pass(POLL_MS);
  assert.partialDeepStrictEqual(await end, { kind: 'error', error });
  assert.deepEqual(asked(), ['tasks/get']);
});

test('a state that cannot be read fails the call, which may have run', TIMEOUT, async (t) => {
  const { finish, pass } = await driving(t, 'legacy', () => '{"status":"working","status":"completed"}');
  const end = assert.rejects(finish(WORKING), { code: 'upstream-protocol', executed: 'unknown' });
  await pass(POLL_MS);
  await end;
});

test('each question of a modern task is asked once, and its answer goes to the task', TIMEOUT, async (t) => {
  let updated: unknown;
  const states = [ASKS, { ...WORKING, status: 'completed', result: DONE }];
  const { finish, pass, stream, session, asked } = await driving(
    t,
    'modern',
    ({ method, params }) => {
      if (method === 'tasks/update') updated = params?.value('inputResponses');
      return method === 'tasks/get' ? (states.shift() ?? {}) : {};
    },
    { elicitation: {} },
  );
  const end = finish(ASKS);
  await pass(0);
  const [question, ...others] = stream.messages;
  assert.ok(question?.kind === 'request' && others.length === 0);
  session.onResponse(question.id, { kind: 'result', result: '{"action":"decline"}' });
  for (let poll = 0; poll < 3; poll++) await pass(POLL_MS);
  assert.equal((await end).kind, 'result');
  assert.deepEqual(updated, { name: { action: 'decline' } });
  assert.deepEqual([stream.messages.length, asked()], [1, ['tasks/update', 'tasks/get', 'tasks/get']]);
});

test('the question of a task to a client that cannot be asked fails the tool', TIMEOUT, async (t) => {
  const { finish, pass, asked } = await driving(t, 'modern', () => ({}));
  const { kind, result: text } = Object(await finish(ASKS));
  await pass(0);
  assert.deepEqual([kind, JSON.parse(text).isError, asked()], ['result', true, ['tasks/cancel']]);
  const broken = { ...ASKS, inputRequests: { name: 1 } };
  await assert.rejects(finish(broken), { code: 'upstream-protocol' });
});
