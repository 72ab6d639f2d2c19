import assert from 'node:assert/strict';
import { test } from 'node:test';
import { testCore, type TestCore, toolCall } from '../../support/core.ts';
import { accepted, type Asker, asker, formOf } from '../../support/asker.ts';
import { answersIn, inputRequiredIn, type ModernOptions, modernRequest } from '../../support/modern-client.ts';
import { result } from '../../support/memory-upstream.ts';
import { waitUntil } from '../../support/wait-until.ts';

const TIMEOUT = { timeout: 120_000 };
const CAPABILITIES = { elicitation: { form: {} } };

function call(gateway: TestCore, nonce: string, retry: object = {}, options: ModernOptions = {}) {
  const params = { ...toolCall('up__ask', { nonce }), ...retry };
  return modernRequest(gateway, 'tools/call', params, { capabilities: CAPABILITIES, ...options });
}

/** Makes a call whose client disconnects while the upstream, which takes no notice, runs it. */
async function abandonCall(gateway: TestCore, { memory, calls, call: at }: Asker, nonce: string): Promise<void> {
  const { call: request, reply } = call(gateway, nonce);
  await memory.until(() => calls.get(nonce));
  request.cancel('the client disconnected');
  await reply;
  await waitUntil(() => at(nonce).isCancelled);
}

/** Asks during a call. Returns the answer that the upstream gets. */
async function askLate({ ask, memory, call: at }: Asker, nonce: string): Promise<unknown> {
  ask(nonce, 'late', 'elicitation/create', formOf(nonce));
  return await memory.until(() => at(nonce).answers.get('late'));
}

/** Makes a call during which the upstream asks, and answers the question. */
async function askedCall(gateway: TestCore, upstream: Asker, nonce: string): Promise<void> {
  const { memory, calls, ask, call: at } = upstream;
  const first = call(gateway, nonce);
  await memory.until(() => calls.get(nonce));
  ask(nonce, 'q', 'elicitation/create', formOf(nonce));
  const { inputRequests, requestState } = inputRequiredIn(await first.reply);
  const inputResponses = Object.fromEntries(Object.keys(inputRequests).map((key) => [key, accepted(nonce)]));
  const { reply } = call(gateway, nonce, { requestState, inputResponses });
  await memory.until(() => at(nonce).answers.get('q'));
  upstream.finish(nonce);
  answersIn(await reply);
}

/** Another application of the same principal. */
const OTHER: ModernOptions = { application: 'other' };

const REFUSED = [{ error: { code: -32602 } }];

//
test('a late question about a call of a client that has gone reaches no other one', TIMEOUT, async () => {
  const upstream = asker({ isQuiet: true });
  const { memory, calls, call: at, finish } = upstream;
  await using gateway = await testCore({ up: { memory } });
  await abandonCall(gateway, upstream, 'a');
  const other = call(gateway, 'b', {}, OTHER);
  await memory.until(() => calls.get('b'));
  assert.equal(at('b').peer, at('a').peer, 'a server that never asks keeps its state');
  assert.partialDeepStrictEqual(await askLate(upstream, 'a'), REFUSED);
  finish('b');
  assert.deepEqual(answersIn(await other.reply), { nonce: 'b', answers: {} });
  assert.deepEqual(other.messages, []);
});

//
test('after a call that was given up a server keeps its state', TIMEOUT, async () => {
  const upstream = asker({ isQuiet: true });
  const { memory, calls, call: at, finish } = upstream;
  await using gateway = await testCore({ up: { memory } });
  await askedCall(gateway, upstream, 'n');
  await abandonCall(gateway, upstream, 'a');
  const other = call(gateway, 'b', {}, OTHER);
  await memory.until(() => calls.get('b'));
  assert.equal(at('b').peer, at('n').peer, 'the process of the calls before');
  assert.partialDeepStrictEqual(await askLate(upstream, 'a'), REFUSED);
  finish('b');
  assert.deepEqual(answersIn(await other.reply), { nonce: 'b', answers: {} });
  finish('a');
  await askedCall(gateway, upstream, 'c');
  assert.equal(at('c').peer, at('n').peer, 'it may ask again once it has answered');
});

//
test('the application that gave up a call is asked during its next call', TIMEOUT, async () => {
  const upstream = asker({ isQuiet: true });
  await using gateway = await testCore({ up: { memory: upstream.memory } });
  await abandonCall(gateway, upstream, 'a');
  await askedCall(gateway, upstream, 'b');
  assert.equal(upstream.call('b').peer, upstream.call('a').peer);
});

//
test('a late log message reaches no other client', TIMEOUT, async () => {
  const upstream = asker({ isQuiet: true });
  const { memory, calls, call: at, finish } = upstream;
  await using gateway = await testCore({ up: { memory } });
  await abandonCall(gateway, upstream, 'a');
  const other = call(gateway, 'b', {}, { ...OTHER, logLevel: 'debug' });
  await memory.until(() => calls.get('b'));
  const log = { jsonrpc: '2.0', method: 'notifications/message', params: { level: 'info', data: 'of a' } };
  at('a').peer.send(JSON.stringify(log));
  finish('b');
  answersIn(await other.reply);
  assert.deepEqual(other.messages, []);
});

//
test('a late question reaches no other session of the principal', TIMEOUT, async () => {
  const upstream = asker({ isQuiet: true });
  const { memory, calls, call: at, finish } = upstream;
  await using gateway = await testCore({ up: { memory, isolation: 'principal' } });
  const first = await gateway.connect({ capabilities: CAPABILITIES });
  const second = await gateway.connect({ capabilities: CAPABILITIES });
  const gone = first.send('tools/call', toolCall('up__ask', { nonce: 'a' }));
  await memory.until(() => calls.get('a'));
  await gateway.core.gateway.endSession(first.session);
  await gone;
  const reply = second.request('tools/call', toolCall('up__ask', { nonce: 'b' }));
  await memory.until(() => calls.get('b'));
  assert.equal(at('b').peer, at('a').peer);
  assert.partialDeepStrictEqual(await askLate(upstream, 'a'), REFUSED);
  finish('b');
  assert.deepEqual((await reply).messages, []);
});

const TASKS = { tools: {}, tasks: { requests: { tools: { call: {} } } } };
const WORKING = { status: 'working', ttl: 600_000, createdAt: '2026-01-01T00:00:00Z' };
const aboutTask = (nonce: string, taskId: string) => ({
  ...formOf(nonce),
  _meta: { 'io.modelcontextprotocol/related-task': { taskId } },
});

//
test('a question about the task of an ended session reaches no other session', TIMEOUT, async () => {
  const { memory, calls, ask, call: at, finish } = asker({ isQuiet: true, script: { capabilities: TASKS } });
  await using gateway = await testCore({ up: { memory, isolation: 'principal' } });
  const [first, second] = [1, 2].map(() => gateway.connect({ capabilities: CAPABILITIES }));
  assert.ok(first !== undefined && second !== undefined);
  const creating = (await first).result('tools/call', { ...toolCall('up__ask', { nonce: 'a' }), task: {} });
  await memory.until(() => calls.get('a'));
  at('a').peer.send(result(at('a').request, { task: { taskId: 'of a', ...WORKING } }));
  await creating;
  await gateway.core.gateway.endSession((await first).session);
  const reply = (await second).request('tools/call', toolCall('up__ask', { nonce: 'b' }));
  await memory.until(() => calls.get('b'));
  assert.equal(at('b').peer, at('a').peer);
  ask('a', 'late', 'elicitation/create', aboutTask('a', 'of a'));
  assert.partialDeepStrictEqual(await memory.until(() => at('a').answers.get('late')), REFUSED);
  finish('b');
  assert.deepEqual((await reply).messages, []);
});

//
test('a question about a task that is over reaches no call of a modern client', TIMEOUT, async () => {
  const { memory, calls, ask, call: at, finish } = asker({ isQuiet: true, script: { capabilities: TASKS } });
  await using gateway = await testCore({ up: { memory } });
  const { reply } = call(gateway, 'b');
  await memory.until(() => calls.get('b'));
  ask('b', 'late', 'elicitation/create', aboutTask('a', 'gone'));
  assert.partialDeepStrictEqual(await memory.until(() => at('b').answers.get('late')), REFUSED);
  finish('b');
  assert.partialDeepStrictEqual(answersIn(await reply), { nonce: 'b' });
});

//
test('a session is asked although it has cancelled a call of its own', TIMEOUT, async () => {
  const upstream = asker({ isQuiet: true });
  const { memory, calls, call: at, finish } = upstream;
  await using gateway = await testCore({ up: { memory, isolation: 'principal' } });
  const client = await gateway.connect({ capabilities: CAPABILITIES });
  const cancelled = client.send('tools/call', toolCall('up__ask', { nonce: 'a' }), { id: '"first"' });
  await memory.until(() => calls.get('a'));
  client.notify('notifications/cancelled', { requestId: 'first' });
  await cancelled;
  const reply = client.request('tools/call', toolCall('up__ask', { nonce: 'b' }), {
    onMessage: (message) => message.kind === 'request' && client.answer(message.id, { action: 'decline' }),
  });
  await memory.until(() => calls.get('b'));
  upstream.ask('b', 'q', 'elicitation/create', formOf('b'));
  assert.deepEqual(await memory.until(() => at('b').answers.get('q')), [{ action: 'decline' }]);
  finish('b');
  await reply;
});
