import assert from 'node:assert/strict';
import { randomUUID } from 'node:crypto';
import { test } from 'node:test';
import { type Message, parseMessage } from '../../../src/protocol/jsonrpc.ts';
import { type TestCore, testCore, toolCall } from '../../support/core.ts';
import type { Peer } from '../../support/memory-upstream.ts';
import { inputRequiredIn, ModernClient } from '../../support/modern-client.ts';
import { PATIENCE_MS } from '../../support/patience.ts';
import { coreTaskUpstream, extensionUpstream, SECRET } from '../../support/task-upstreams.ts';
import { usedBytes } from '../../support/used-bytes.ts';
import { waitUntil } from '../../support/wait-until.ts';

const TIMEOUT = { timeout: 120_000 };
const KNOWS = { extensions: { 'io.modelcontextprotocol/tasks': {} } };
const ALICE = { key: 'alice', label: 'alice', scopes: [] };
const BOB = { key: 'bob', label: 'bob', scopes: [] };
const isCall = (one: Message) => one.kind === 'request' && one.method === 'tools/call';
const HEADER_SAFE = /^[\x21-\x7e]+$/;

const methodsIn = ({ received }: Peer) =>
  received.flatMap((message) => (message.kind === 'request' ? [message.method] : []));

test('a modern client sees the tasks extension, and a legacy client no tasks', TIMEOUT, async () => {
  await using gateway = await testCore({ up: { memory: extensionUpstream().memory, era: 'modern' } });
  const { capabilities } = await new ModernClient(gateway, KNOWS).result('server/discover');
  assert.deepEqual(Object.entries(capabilities ?? {}).find(([key]) => key === 'extensions')?.[1], KNOWS.extensions);
  assert.ok(!Object.hasOwn(capabilities ?? {}, 'tasks'), 'X-040');
  const legacy = await gateway.connect();
  assert.equal(legacy.initialized.object('capabilities')?.raw('extensions'), undefined);
  assert.equal(legacy.initialized.object('capabilities')?.raw('tasks'), undefined);
});

// M-021
test('a task has one sealed id, which fits a header, until its result', TIMEOUT, async () => {
  const { memory, tasks } = extensionUpstream();
  await using gateway = await testCore({ up: { memory, era: 'modern' } });
  const client = new ModernClient(gateway, KNOWS, ALICE);
  const created = await client.result('tools/call', toolCall('up__job'));
  assert.equal(created['resultType'], 'task');
  const taskId = String(created['taskId']);
  assert.match(taskId, HEADER_SAFE);
  assert.ok(!JSON.stringify(created).includes(SECRET));
  const working = await client.result('tasks/get', { taskId });
  assert.deepEqual([working['resultType'], working['taskId'], working['status']], ['complete', taskId, 'working']);
  const link = { type: 'resource_link', uri: 'file:///a', name: 'a' };
  Object.assign(tasks[0] ?? {}, { status: 'completed', result: { content: [link] } });
  const done = await client.result('tasks/get', { taskId });
  assert.deepEqual(Object(done['result']).content, [{ ...link, uri: 'up+file:///a' }]);
  assert.equal(memory.requests('tasks/get')[0]?.params?.string('taskId'), tasks[0]?.id);
});

test('questions in the state of a task name their upstream and are answered', TIMEOUT, async () => {
  const { memory, tasks } = extensionUpstream();
  const other = extensionUpstream().memory;
  await using gateway = await testCore({ up: { memory, era: 'modern' }, other: { memory: other, era: 'modern' } });
  const client = new ModernClient(gateway, { ...KNOWS, elicitation: {} });
  const { taskId } = await client.result('tools/call', toolCall('up__job'));
  const ask = { method: 'elicitation/create', params: { message: 'Sure?', requestedSchema: { type: 'object' } } };
  Object.assign(tasks[0] ?? {}, { status: 'input_required', inputRequests: { k: ask } });
  const asking = await client.result('tasks/get', { taskId });
  const params = { ...ask.params, message: '[up] Sure?' };
  assert.deepEqual(asking['inputRequests'], { k: { ...ask, params } });
  const inputResponses = { k: { action: 'accept', content: {} } };
  const acknowledged = await client.result('tasks/update', { taskId, inputResponses });
  assert.equal(acknowledged['resultType'], 'complete');
  assert.deepEqual(memory.requests('tasks/update')[0]?.params?.value('inputResponses'), inputResponses);
  await client.result('tasks/cancel', { taskId });
  assert.equal((await client.result('tasks/get', { taskId }))['status'], 'cancelled');
  assert.deepEqual(other.requests('tasks/get'), []);
});

// SEC-37
test('a question to the model counts once, however often its task is read', TIMEOUT, async () => {
  const { memory, tasks } = extensionUpstream();
  await using gateway = await testCore({ up: { memory, era: 'modern', samplingBudget: 10 } });
  const client = new ModernClient(gateway, { ...KNOWS, sampling: {} });
  const { taskId } = await client.result('tools/call', toolCall('up__job'));
  const ask = (text: string) => {
    const params = { messages: [{ role: 'user', content: { type: 'text', text } }], maxTokens: 9 };
    Object.assign(tasks[0] ?? {}, {
      status: 'input_required',
      inputRequests: { k: { method: 'sampling/createMessage', params } },
    });
  };
  ask('one');
  for (let reads = 0; reads < 3; reads++) assert.ok((await client.result('tasks/get', { taskId }))['inputRequests']);
  ask('two');
  for (let reads = 0; reads < 2; reads++) {
    const state = await client.result('tasks/get', { taskId });
    assert.deepEqual([state['status'], state['inputRequests']], ['input_required', {}]);
    assert.match(String(state['statusMessage']), /samplingBudget/);
  }
  assert.match(await gateway.metrics.text(), /questions_refused_total\{reason="budget"\} 1\b/);
});

// SEC-37
test('the same question to the model counts for each of its keys and answers', TIMEOUT, async () => {
  const { memory, tasks } = extensionUpstream();
  await using gateway = await testCore({ up: { memory, era: 'modern', samplingBudget: 30 } });
  const client = new ModernClient(gateway, { ...KNOWS, sampling: {} });
  const { taskId } = await client.result('tools/call', toolCall('up__job'));
  const params = { messages: [{ role: 'user', content: { type: 'text', text: 'again' } }], maxTokens: 9 };
  const question = { method: 'sampling/createMessage', params };
  const read = async (...keys: string[]) => {
    const inputRequests = Object.fromEntries(keys.map((key) => [key, question]));
    Object.assign(tasks[0] ?? {}, { status: 'input_required', inputRequests });
    return Object.keys(Object((await client.result('tasks/get', { taskId }))['inputRequests']));
  };
  const answer = { role: 'assistant', content: { type: 'text', text: 'yes' }, model: 'm' };
  assert.deepEqual(await read('a', 'b'), ['a', 'b']);
  // An answer that has not arrived leaves the question open.
  const [task] = tasks.splice(0);
  await client.error('tasks/update', { taskId, inputResponses: { a: answer } });
  if (task !== undefined) tasks.push(task);
  assert.deepEqual(await read('a', 'b'), ['a', 'b']);
  await client.result('tasks/update', { taskId, inputResponses: { a: answer } });
  assert.deepEqual(await read('a', 'b'), ['a', 'b']);
  await client.result('tasks/update', { taskId, inputResponses: { a: answer } });
  assert.deepEqual(await read('a', 'b', 'c'), ['b']);
});

// S-004
test('a task is unknown to other principals, like an invented one', TIMEOUT, async () => {
  const { memory } = extensionUpstream();
  await using gateway = await testCore({ up: { memory, era: 'modern' } });
  const { taskId } = await new ModernClient(gateway, KNOWS, ALICE).result('tools/call', toolCall('up__job'));
  const bob = new ModernClient(gateway, KNOWS, BOB);
  for (const method of ['tasks/get', 'tasks/update', 'tasks/cancel']) {
    const foreign = await bob.error(method, { taskId, inputResponses: {} });
    const made = await bob.error(method, { taskId: 'made-up', inputResponses: {} });
    assert.equal(foreign.code, -32602, method);
    assert.deepEqual(foreign, made);
    assert.deepEqual(memory.requests(method), [], method);
  }
});

//
test('task methods need the declared extension; tasks/result is unknown', TIMEOUT, async () => {
  const { memory } = extensionUpstream();
  await using gateway = await testCore({ up: { memory, era: 'modern' } });
  const { taskId } = await new ModernClient(gateway, KNOWS).result('tools/call', toolCall('up__job'));
  const plain = new ModernClient(gateway);
  const refused = await plain.error('tasks/get', { taskId });
  assert.equal(refused.code, -32021);
  assert.deepEqual(Object.entries(refused.data ?? {}).find(([key]) => key === 'requiredCapabilities')?.[1], KNOWS);
  for (const method of ['tasks/result', 'tasks/list']) {
    assert.equal((await new ModernClient(gateway, KNOWS).error(method, { taskId })).code, -32601, method);
  }
});

//
test('a call of a client without tasks declares none to the upstream', TIMEOUT, async () => {
  const { memory, tasks } = extensionUpstream();
  await using gateway = await testCore({ up: { memory, era: 'modern' } });
  const call = { ...toolCall('up__job'), task: { ttl: 1 } };
  assert.equal((await new ModernClient(gateway).error('tools/call', call)).code, -32021);
  assert.deepEqual(tasks, []);
  assert.equal(memory.requests('tools/call')[0]?.params?.raw('task'), undefined, 'X-040');
});

test('a task id works after a restart', TIMEOUT, async () => {
  const { memory } = extensionUpstream();
  await using gateway = await testCore({ up: { memory, era: 'modern' } });
  const client = new ModernClient(gateway, KNOWS);
  const { taskId } = await client.result('tools/call', toolCall('up__job'));
  await gateway.restart();
  assert.equal((await client.result('tasks/get', { taskId }))['status'], 'working');
});

test('a task of 2025-11-25 is reached with other capabilities than those of its call', TIMEOUT, async () => {
  const { memory, tasks } = coreTaskUpstream();
  await using gateway = await testCore({ up: { memory } });
  const calling = new ModernClient(gateway, { ...KNOWS, elicitation: { form: {} } });
  const { taskId } = await calling.result('tools/call', toolCall('up__job'));
  const polling = new ModernClient(gateway, KNOWS);
  assert.equal((await polling.result('tasks/get', { taskId }))['status'], 'working');
  const listening = polling.request('subscriptions/listen', { notifications: { taskIds: [taskId] } });
  await waitUntil(() => listening.messages.length === 1);
  const params = JSON.stringify({ taskId: tasks[0]?.id, status: 'working' });
  const [creator, ...others] = memory.peers.toSorted((a) => (methodsIn(a).includes('tools/call') ? -1 : 1));
  creator?.send(`{"jsonrpc":"2.0","method":"notifications/tasks/status","params":${params}}`);
  await waitUntil(() => listening.messages.length === 2);
  await polling.result('tasks/cancel', { taskId });
  assert.deepEqual(creator && methodsIn(creator).slice(-3), ['tasks/get', 'tasks/get', 'tasks/cancel']);
  assert.ok(!others.flatMap(methodsIn).some((method) => method.startsWith('tasks/')));
  listening.call.close();
  await listening.reply;
});

//
test('an error names a task by its sealed id once, however short its own id is', TIMEOUT, async () => {
  let message = '';
  const { memory } = coreTaskUpstream(undefined, () => ({ code: -32603, message }), 't');
  await using gateway = await testCore({ up: { memory } });
  const client = await gateway.connect();
  const { task } = await client.result('tools/call', { ...toolCall('up__job'), task: {} });
  const { taskId } = Object(task);
  const messages: [string, string][] = [
    ['task t: the text t', `task ${taskId}: the text t`],
    ['not t-2, tt or at, but "t"', `not t-2, tt or at, but "${taskId}"`],
    ['t'.repeat(1_000), 't'.repeat(1_000)],
  ];
  for (const [sent, shown] of messages) {
    message = sent;
    const { answer } = await client.request('tasks/get', { taskId });
    assert.equal(answer.kind === 'error' && answer.error.message, shown);
  }
});

test('a task that its upstream cannot show for a moment is listed again', TIMEOUT, async () => {
  let failure: object | undefined;
  const { memory } = coreTaskUpstream(undefined, () => failure);
  await using gateway = await testCore({ up: { memory } });
  const client = await gateway.connect();
  await client.result('tools/call', { ...toolCall('up__job'), task: {} });
  const listed = async () => Object((await client.result('tasks/list'))['tasks']).length;
  assert.equal(await listed(), 1);
  failure = { code: -32603, message: 'busy' };
  assert.equal(await listed(), 0);
  failure = undefined;
  assert.equal(await listed(), 1);
  failure = { code: -32602, message: 'unknown' };
  assert.equal(await listed(), 0);
  failure = undefined;
  assert.equal(await listed(), 0);
});

test('a malformed state of a task leaves the tasks of other upstreams in the list', TIMEOUT, async () => {
  const bad = coreTaskUpstream(undefined, (peer, { id }) => {
    peer.send(`{"jsonrpc":"2.0","id":${id},"result":{"status":"working","status":"working"}}`);
    // The gateway ignores a second answer.
    return { code: -32603, message: 'late' };
  });
  await using gateway = await testCore({ good: { memory: coreTaskUpstream().memory }, bad: { memory: bad.memory } });
  const client = await gateway.connect();
  for (const name of ['good__job', 'bad__job']) await client.result('tools/call', { ...toolCall(name), task: {} });
  assert.equal(Object((await client.result('tasks/list'))['tasks']).length, 1);
});

test('a running task keeps no text of its call', TIMEOUT, async () => {
  const { memory } = coreTaskUpstream();
  await using gateway = await testCore({ up: { memory } });
  const client = await gateway.connect();
  const call = async (pad: string) => {
    const params = { ...toolCall('up__job'), task: {}, _meta: { progressToken: randomUUID() } };
    const ids = { jsonrpc: '2.0', id: randomUUID() };
    const message = parseMessage(JSON.stringify({ ...ids, method: 'tools/call', params, pad }));
    assert.ok(message.kind === 'request');
    await gateway.core.gateway.handleRequest(client.session, message, { send: () => true });
  };
  await call('');
  const before = usedBytes();
  for (let n = 0; n < 20; n++) await call('x'.repeat(900_000));
  await waitUntil(() => usedBytes() - before < 6_000_000);
  const links = [...(gateway.core.upstreams.get('up')?.links() ?? [])];
  assert.deepEqual(
    links.map(({ tasks }) => tasks.size),
    [21],
  );
});

test('a legacy client is asked by a modern task, and gets its outcome', TIMEOUT, async () => {
  const ask = { method: 'elicitation/create', params: { message: 'Sure?', requestedSchema: { type: 'object' } } };
  const { memory, tasks } = extensionUpstream((task) =>
    Object.assign(task, { status: 'input_required', inputRequests: { k: ask } }),
  );
  await using gateway = await testCore({ up: { memory, era: 'modern' } });
  const client = await gateway.connect({ capabilities: { elicitation: {} } });
  const calling = client.request('tools/call', toolCall('up__job'), {
    onMessage: (message) => {
      if (message.kind !== 'request') return;
      Object.assign(tasks[0] ?? {}, { result: { content: [{ type: 'text', text: 'done' }] } });
      client.answer(message.id, { action: 'accept', content: {} });
    },
  });
  await memory.until(() => memory.requests('tasks/update')[0]);
  Object.assign(tasks[0] ?? {}, { status: 'completed' });
  const { answer, messages } = await calling;
  assert.equal(messages.length, 1);
  assert.deepEqual(answer.kind === 'result' && JSON.parse(answer.result), {
    content: [{ type: 'text', text: 'done' }],
  });
});

//
test('for a legacy client a failed task is an error, a failed tool a result', TIMEOUT, async () => {
  const ends = [
    { status: 'failed', error: { code: -32603, message: 'broke' } },
    { status: 'completed', result: { content: [], isError: true } },
  ];
  const { memory, tasks } = extensionUpstream((task) => Object.assign(task, ends[tasks.length - 1]));
  await using gateway = await testCore({ up: { memory, era: 'modern' } });
  const client = await gateway.connect();
  const failed = await client.request('tools/call', toolCall('up__job'));
  assert.deepEqual(failed.answer.kind === 'error' && failed.answer.error, { code: -32603, message: 'broke' });
  assert.deepEqual(await client.result('tools/call', toolCall('up__job')), { content: [], isError: true });
});

//
test('cancelling a call that waits for a task cancels the task', TIMEOUT, async () => {
  const { memory } = extensionUpstream();
  await using gateway = await testCore({ up: { memory, era: 'modern' } });
  const client = await gateway.connect();
  const calling = client.send('tools/call', toolCall('up__job'), { id: '"mine"' });
  await memory.until(() => memory.requests('tasks/get')[0]);
  client.notify('notifications/cancelled', { requestId: 'mine' });
  await memory.until(() => memory.requests('tasks/cancel')[0]);
  assert.equal((await calling).answer, undefined);
});

/** The tools and tasks of an upstream that takes the place of another one, as a reload makes it. */
async function replacement(): Promise<TestCore> {
  return await testCore({ up: { memory: extensionUpstream().memory, era: 'modern' } });
}

// M-021
test('a replaced process finishes the task of a modern client, which polls it', TIMEOUT, async () => {
  const { memory, tasks } = extensionUpstream();
  await using gateway = await testCore({ up: { memory, era: 'modern' } });
  await using other = await replacement();
  const next = other.core.upstreams.get('up');
  assert.ok(next !== undefined);
  const client = new ModernClient(gateway, KNOWS);
  const { taskId } = await client.result('tools/call', toolCall('up__job'));
  const replaced = gateway.core.upstreams.replace(next, PATIENCE_MS);
  assert.equal((await client.result('tasks/get', { taskId }))['status'], 'working');
  assert.ok(memory.open.size > 0);
  Object.assign(tasks[0] ?? {}, { status: 'completed', result: { content: [] } });
  assert.equal((await client.result('tasks/get', { taskId }))['status'], 'completed');
  assert.equal(await replaced, 0);
});

for (const end of ['tasks/cancel', 'tasks/get'] as const) {
  test(`a replaced process is stopped once its last task has ended by ${end}`, TIMEOUT, async () => {
    const { memory, tasks } = extensionUpstream();
    await using gateway = await testCore({ up: { memory, era: 'modern' } });
    await using other = await replacement();
    const next = other.core.upstreams.get('up');
    assert.ok(next !== undefined);
    const client = new ModernClient(gateway, KNOWS);
    const { taskId } = await client.result('tools/call', toolCall('up__job'));
    const replaced = gateway.core.upstreams.replace(next, PATIENCE_MS);
    if (end === 'tasks/cancel') await client.result(end, { taskId });
    else {
      tasks.length = 0;
      await client.error(end, { taskId });
    }
    assert.equal(await replaced, 0);
    assert.equal(memory.open.size, 0);
  });
}

test('a process with a task stays although its client is silent for long', TIMEOUT, async () => {
  const { memory, tasks } = extensionUpstream();
  await using gateway = await testCore({ up: { memory, era: 'modern' } });
  const client = new ModernClient(gateway, KNOWS);
  const { taskId } = await client.result('tools/call', toolCall('up__job'));
  const [working] = memory.peers.filter(({ received }) => received.some((one) => isCall(one)));
  assert.ok(working !== undefined);
  // The group of the client is released too.
  for (const minutes of [20, 40]) gateway.core.sweep(performance.now() + minutes * 60_000);
  assert.ok(memory.open.has(working));
  Object.assign(tasks[0] ?? {}, { status: 'completed', result: { content: [] } });
  assert.equal((await client.result('tasks/get', { taskId }))['status'], 'completed');
  gateway.core.sweep(performance.now() + 60 * 60_000);
  assert.ok(!memory.open.has(working));
});

test('a remote upstream is not kept by the tasks of its clients', TIMEOUT, async () => {
  const { memory } = extensionUpstream();
  const target = { kind: 'http', url: 'http://127.0.0.1:9/mcp', headers: {} } as const;
  await using gateway = await testCore({ up: { memory, era: 'modern', target } });
  await using other = await replacement();
  const next = other.core.upstreams.get('up');
  assert.ok(next !== undefined);
  await new ModernClient(gateway, KNOWS).result('tools/call', toolCall('up__job'));
  assert.equal(await gateway.core.upstreams.replace(next, PATIENCE_MS), 0);
});

//
test('isolation call: a client that polls gets the outcome of a task', TIMEOUT, async () => {
  const done = { content: [{ type: 'text', text: 'done' }] };
  const { memory } = extensionUpstream((task) => Object.assign(task, { status: 'completed', result: done }));
  await using gateway = await testCore({ up: { memory, era: 'modern', isolation: 'call' } });
  const { resultType, content } = await new ModernClient(gateway, KNOWS).result('tools/call', toolCall('up__job'));
  assert.deepEqual([resultType, content], ['complete', done.content]);
});

//
test('isolation call: a client that polls is asked by a task, in the answer', TIMEOUT, async () => {
  const ask = { method: 'elicitation/create', params: { message: 'Sure?', requestedSchema: { type: 'object' } } };
  const { memory, tasks } = extensionUpstream((task) =>
    Object.assign(task, { status: 'input_required', inputRequests: { k: ask } }),
  );
  await using gateway = await testCore({ up: { memory, era: 'modern', isolation: 'call' } });
  const client = new ModernClient(gateway, { ...KNOWS, elicitation: { form: {} } });
  const call = toolCall('up__job');
  const { inputRequests, requestState } = inputRequiredIn(await client.request('tools/call', call).reply);
  const [[key, { method }] = ['', { method: '' }]] = Object.entries(inputRequests);
  assert.equal(method, 'elicitation/create');
  const retry = { ...call, inputResponses: { [key]: { action: 'accept', content: {} } }, requestState };
  const retrying = client.result('tools/call', retry);
  const answered = await memory.until(() => memory.requests('tasks/update')[0]);
  assert.deepEqual(answered.params?.value('inputResponses'), { k: { action: 'accept', content: {} } });
  Object.assign(tasks[0] ?? {}, { status: 'completed', result: { content: [] } });
  assert.equal((await retrying)['resultType'], 'complete');
});

//
test('a call of a tool that needs a task waits for the first lists of the endpoint', TIMEOUT, async () => {
  const { memory } = coreTaskUpstream();
  await using gateway = await testCore({ up: { memory } });
  const call = new ModernClient(gateway, KNOWS).request('tools/call', toolCall('job'), { view: 'up' });
  const { result, error } = await call.reply;
  assert.equal(result?.['resultType'], 'task', JSON.stringify(error));
});
