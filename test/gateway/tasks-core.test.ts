import assert from 'node:assert/strict';
import { test } from 'node:test';
import type { RawObject } from '../../src/json/json.ts';
import { LIMITS } from '../../src/limits.ts';
import type { Message } from '../../src/protocol/jsonrpc.ts';
import { type TestClient, testCore, toolCall } from '../support/core.ts';
import { legacyUpstream } from '../support/http-upstream.ts';
import { memoryUpstream, type Peer, result } from '../support/memory-upstream.ts';
import { ModernClient } from '../support/modern-client.ts';
import { coreTaskUpstream, extensionUpstream, SECRET } from '../support/task-upstreams.ts';
import { waitUntil } from '../support/wait-until.ts';

const TIMEOUT = { timeout: 120_000 };
const RELATED = 'io.modelcontextprotocol/related-task';
const DONE = { content: [{ type: 'text', text: 'done' }] };
const ALICE = { key: 'alice', label: 'alice', scopes: [] };
const BOB = { key: 'bob', label: 'bob', scopes: [] };

function member(value: unknown, name: string): unknown {
  return typeof value === 'object' && value !== null ? Object.getOwnPropertyDescriptor(value, name)?.value : undefined;
}

const isCall = (one: Message) => one.kind === 'request' && one.method === 'tools/call';

const asTask = (name: string) => ({ ...toolCall(name), task: { ttl: 1_000 } });

test('clients of 2025-11-25, and no older ones, get the tasks capability of upstreams', TIMEOUT, async () => {
  await using gateway = await testCore({ up: { memory: coreTaskUpstream().memory } });
  const declared = { list: {}, cancel: {}, requests: { tools: { call: {} } } };
  const client = await gateway.connect();
  assert.deepEqual(client.initialized.object('capabilities')?.value('tasks'), declared);
  const older = await gateway.connect({ revision: '2025-06-18' });
  assert.equal(older.initialized.object('capabilities')?.raw('tasks'), undefined);
  const { answer } = await older.request('tasks/list');
  assert.equal(answer.kind === 'error' && answer.error.code, -32601);
  await using without = await testCore({ up: { memory: extensionUpstream().memory, era: 'modern' } });
  const other = await without.connect();
  assert.equal((await other.request('tasks/list')).answer.kind, 'error');
});

//
test('isolation call: a client of 2025-11-25 sees no tasks, and gets outcomes', TIMEOUT, async () => {
  const { memory } = coreTaskUpstream((task) => Object.assign(task, { status: 'completed', result: DONE }));
  const other = coreTaskUpstream().memory;
  await using gateway = await testCore({ up: { memory, isolation: 'call' }, other: { memory: other } });
  const client = await gateway.connect({ view: 'up' });
  assert.equal(client.initialized.object('capabilities')?.raw('tasks'), undefined);
  const { tools } = await (await gateway.connect()).result('tools/list');
  assert.ok(Array.isArray(tools));
  assert.deepEqual(
    tools.map((tool) => [member(tool, 'name'), member(member(tool, 'execution'), 'taskSupport')]),
    [
      ['up__job', undefined],
      ['up__either', undefined],
      ['other__job', 'required'],
      ['other__either', 'optional'],
    ],
  );
  assert.deepEqual(await client.result('tools/call', toolCall('job')), DONE);
});

test('tools of upstreams without tasks say nothing of tasks', TIMEOUT, async () => {
  const tools = ['required', 'optional', 'forbidden'].map((taskSupport) => ({
    name: taskSupport,
    inputSchema: { type: 'object' },
    execution: { taskSupport },
  }));
  const discovered = { supportedVersions: ['2026-07-28'], capabilities: { tools: {} } };
  const modern = memoryUpstream({
    isRaw: true,
    lists: { tools },
    request: (peer, request) => peer.send(result(request, { resultType: 'complete', ...discovered, ...DONE })),
  });
  const other = coreTaskUpstream().memory;
  const legacy = memoryUpstream({ lists: { tools } });
  await using gateway = await testCore({
    other: { memory: other },
    legacy: { memory: legacy },
    modern: { memory: modern, era: 'modern' },
  });
  const client = await gateway.connect();
  const { tools: listed } = await client.result('tools/list');
  assert.ok(Array.isArray(listed));
  const support = listed.map((tool) => [member(tool, 'name'), member(member(tool, 'execution'), 'taskSupport')]);
  assert.deepEqual(support, [
    ['other__job', 'required'],
    ['other__either', 'optional'],
    ['legacy__required', undefined],
    ['legacy__optional', undefined],
    ['legacy__forbidden', 'forbidden'],
    ['modern__required', undefined],
    ['modern__optional', undefined],
    ['modern__forbidden', 'forbidden'],
  ]);
});

// M-021
test('a requested task has one sealed id from start to end', TIMEOUT, async () => {
  const { memory, tasks } = coreTaskUpstream();
  await using gateway = await testCore({ up: { memory } });
  const client = await gateway.connect();
  const created = await client.result('tools/call', asTask('up__job'));
  const taskId = member(created['task'], 'taskId');
  assert.ok(typeof taskId === 'string' && !taskId.includes(SECRET));
  assert.deepEqual(memory.requests('tools/call')[0]?.params?.value('task'), { ttl: 1_000 });
  const working = await client.result('tasks/get', { taskId });
  assert.deepEqual([working['taskId'], working['status'], working['ttl']], [taskId, 'working', 60_000]);
  const waiting = client.result('tasks/result', { taskId });
  await memory.until(() => memory.requests('tasks/result')[0]);
  Object.assign(tasks[0] ?? {}, { status: 'completed', result: DONE });
  tasks[0]?.flush();
  assert.deepEqual(await waiting, { ...DONE, _meta: { [RELATED]: { taskId } } });
  const { tasks: listed } = await client.result('tasks/list');
  assert.deepEqual(Array.isArray(listed) && listed.map((task) => member(task, 'taskId')), [taskId]);
  const second = member((await client.result('tools/call', asTask('up__job')))['task'], 'taskId');
  assert.equal((await client.result('tasks/cancel', { taskId: second }))['status'], 'cancelled');
  assert.equal(tasks[1]?.status, 'cancelled');
});

// S-004
test('tasks belong to their principal, also on a shared connection', TIMEOUT, async () => {
  const { memory, tasks } = coreTaskUpstream();
  await using gateway = await testCore({ up: { memory, isolation: 'shared' } });
  const alice = await gateway.connect({ principal: ALICE });
  const bob = await gateway.connect({ principal: BOB });
  const taskId = member((await alice.result('tools/call', asTask('up__job')))['task'], 'taskId');
  await bob.result('tools/call', toolCall('up__either'));
  for (const method of ['tasks/get', 'tasks/result', 'tasks/cancel']) {
    const { answer } = await bob.request(method, { taskId });
    assert.equal(answer.kind === 'error' && answer.error.code, -32602, method);
    assert.deepEqual(memory.requests(method), []);
  }
  assert.deepEqual(await bob.result('tasks/list'), { tasks: [] });
  assert.equal(tasks[0]?.status, 'working');
});

// S-004
test('a task is asked for at the process that has the one of this principal', TIMEOUT, async () => {
  const [before, after] = [coreTaskUpstream(), coreTaskUpstream()];
  await using gateway = await testCore({ up: { memory: before.memory, isolation: 'shared' } });
  await using other = await testCore({ up: { memory: after.memory, isolation: 'shared' } });
  const [alice, bob] = await Promise.all([ALICE, BOB].map((principal) => gateway.connect({ principal })));
  const next = other.core.upstreams.get('up');
  assert.ok(alice !== undefined && bob !== undefined && next !== undefined);
  const taskOf = async (client: typeof alice) =>
    member((await client.result('tools/call', asTask('up__job')))['task'], 'taskId');
  const old = await taskOf(alice);
  const replaced = gateway.core.upstreams.replace(next, 60_000);
  const taskId = await taskOf(bob);
  assert.equal(before.tasks[0]?.id, after.tasks[0]?.id, 'both processes number their tasks');
  await bob.result('tasks/cancel', { taskId });
  assert.deepEqual([before.tasks[0]?.status, after.tasks[0]?.status], ['working', 'cancelled']);
  await alice.result('tasks/cancel', { taskId: old });
  assert.equal(before.tasks[0]?.status, 'cancelled');
  await replaced;
});

test('a list has the task that a replaced process runs', TIMEOUT, async () => {
  const creators: Peer[] = [];
  const { memory } = coreTaskUpstream(
    (_task, peer) => creators.push(peer),
    (peer) => (creators.includes(peer) ? undefined : { code: -32602, message: 'no such task' }),
  );
  await using gateway = await testCore({ up: { memory } });
  const client = await gateway.connect();
  const taskId = member((await client.result('tools/call', asTask('up__job')))['task'], 'taskId');
  const replaced = gateway.core.upstreamChanges.restart('up', 60_000);
  for (const when of ['before', 'after']) {
    const { tasks } = await client.result('tasks/list');
    assert.ok(Array.isArray(tasks));
    assert.deepEqual(
      tasks.map((task) => [member(task, 'taskId'), member(task, 'status')]),
      [[taskId, 'working']],
      `${when} a call at the next process`,
    );
    await client.result('tools/call', toolCall('up__either'));
  }
  await client.result('tasks/cancel', { taskId });
  await replaced;
});

// S-004
test('a task id of a shared process is unknown at the next one, which chooses it too', TIMEOUT, async () => {
  const { memory, tasks } = coreTaskUpstream(undefined, undefined, 't');
  await using gateway = await testCore({ up: { memory, isolation: 'shared' } });
  const alice = await gateway.connect({ principal: ALICE });
  const bob = await gateway.connect({ principal: BOB });
  const taskOf = async (client: TestClient) =>
    member((await client.result('tools/call', asTask('up__job')))['task'], 'taskId');
  const old = await taskOf(alice);
  for (const peer of memory.open) peer.crash();
  tasks.length = 0;
  await waitUntil(async () => (await bob.request('tools/call', toolCall('up__either'))).answer.kind === 'result');
  const taskId = await taskOf(bob);
  await alice.result('tools/call', toolCall('up__either'));
  for (const method of ['tasks/get', 'tasks/result', 'tasks/cancel']) {
    const { answer } = await alice.request(method, { taskId: old });
    assert.equal(answer.kind === 'error' && answer.error.code, -32602, method);
  }
  assert.deepEqual(await alice.result('tasks/list'), { tasks: [] });
  const status = JSON.stringify({ taskId: 't', status: 'working', createdAt: '', lastUpdatedAt: '', ttl: 1 });
  for (const peer of memory.open) {
    peer.send(`{"jsonrpc":"2.0","method":"notifications/tasks/status","params":${status}}`);
  }
  const heard = await bob.waitForMessage('notifications/tasks/status');
  assert.equal(heard.kind === 'notification' && heard.params?.string('taskId'), taskId);
  assert.deepEqual(alice.listened, []);
});

test('an upstream’s error about an unknown task has the client’s id', TIMEOUT, async () => {
  const { memory, tasks } = coreTaskUpstream();
  await using gateway = await testCore({ up: { memory } });
  const client = await gateway.connect();
  const taskId = String(member((await client.result('tools/call', asTask('up__job')))['task'], 'taskId'));
  tasks.length = 0;
  const { answer } = await client.request('tasks/get', { taskId });
  assert.deepEqual(answer.kind === 'error' && answer.error, { code: -32602, message: `no task ${taskId}` });
});

//
test('a call that becomes a task is cancelled as a task, not as a call', TIMEOUT, async () => {
  let cancel = () => {};
  // The upstream has created the task, and its answer is on the way.
  const { memory, tasks } = coreTaskUpstream(() => cancel());
  await using gateway = await testCore({ up: { memory } });
  const client = await gateway.connect();
  cancel = () => client.notify('notifications/cancelled', { requestId: 'mine' });
  assert.equal((await client.send('tools/call', asTask('up__job'), { id: '"mine"' })).answer, undefined);
  const cancelled = await memory.until(() => memory.requests('tasks/cancel')[0]);
  assert.equal(cancelled.params?.string('taskId'), tasks[0]?.id);
  const received = memory.peers.flatMap((peer) => peer.received);
  assert.ok(!received.some((message) => 'method' in message && message.method === 'notifications/cancelled'));
});

for (const revision of ['2024-11-05', '2025-06-18', '2025-11-25']) {
  //
  test(`a task-only tool works for a client of ${revision} without tasks`, TIMEOUT, async () => {
    const { memory } = coreTaskUpstream((task) => Object.assign(task, { status: 'completed', result: DONE }));
    await using gateway = await testCore({ up: { memory } });
    const client = await gateway.connect({ revision });
    assert.deepEqual(await client.result('tools/call', toolCall('up__job')), DONE);
    assert.equal(memory.requests('tools/call').length, 1);
  });
}

//
test('a task-only tool works for a client of 2026-07-28 without tasks (X-039)', TIMEOUT, async () => {
  const { memory } = coreTaskUpstream((task) => Object.assign(task, { status: 'completed', result: DONE }));
  await using gateway = await testCore({ up: { memory } });
  const result = await new ModernClient(gateway).result('tools/call', toolCall('up__job'));
  assert.deepEqual([result['resultType'], result['content']], ['complete', DONE.content]);
});

// M-027
test('the _meta of a new task reaches a modern client, and questions in it do not', TIMEOUT, async () => {
  const task = { taskId: '1', status: 'working', ttl: 1_000, createdAt: '2026-01-01T00:00:00Z' };
  const _meta = { 'com.example/x': 1, [RELATED]: { taskId: '1' } };
  await using up = await legacyUpstream({
    capabilities: { tools: {}, tasks: { requests: { tools: { call: {} } } } },
    tools: [{ name: 'job', inputSchema: { type: 'object' }, execution: { taskSupport: 'required' } }],
    answers: { 'tools/call': () => ({ task, _meta, inputRequests: { q: { method: 'roots/list' } } }) },
  });
  await using gateway = await testCore({ up: up.config });
  const client = new ModernClient(gateway, { extensions: { 'io.modelcontextprotocol/tasks': {} } });
  const created = await client.result('tools/call', toolCall('up__job'));
  assert.equal(created['resultType'], 'task');
  assert.equal(member(created['_meta'], 'com.example/x'), 1);
  assert.equal(member(created['_meta'], RELATED), undefined);
  assert.equal(created['inputRequests'], undefined);
});

//
test('a task-only tool asks its client while it runs, and its error is the call’s', TIMEOUT, async () => {
  const { memory, tasks } = coreTaskUpstream((task, peer) => {
    task.status = 'input_required';
    const params = { message: 'Sure?', requestedSchema: { type: 'object' }, _meta: { [RELATED]: { taskId: task.id } } };
    peer.send(`{"jsonrpc":"2.0","id":"e","method":"elicitation/create","params":${JSON.stringify(params)}}`);
  });
  await using gateway = await testCore({ up: { memory } });
  const client = await gateway.connect({ capabilities: { elicitation: {} } });
  const { answer, messages } = await client.request('tools/call', toolCall('up__job'), {
    onMessage: (message) => {
      if (message.kind !== 'request') return;
      client.answer(message.id, { action: 'decline' });
      Object.assign(tasks[0] ?? {}, { status: 'failed', error: { code: 7, message: 'declined' } });
    },
  });
  await memory.until(() => memory.peers.find(({ received }) => received.some(({ kind }) => kind === 'result')));
  const asked = messages.map((message) => ('params' in message ? String(message.params) : ''));
  assert.match(asked.join(), /Sure\?/);
  assert.doesNotMatch(asked.join(), new RegExp(`${SECRET}|related-task`), 'the client knows of no task');
  assert.deepEqual(answer.kind === 'error' && answer.error, { code: 7, message: 'declined' });
});

//
test('cancelling a call of a task-only tool cancels its task', TIMEOUT, async () => {
  const { memory, tasks } = coreTaskUpstream();
  await using gateway = await testCore({ up: { memory } });
  const { call, reply } = new ModernClient(gateway).request('tools/call', toolCall('up__job'));
  await memory.until(() => memory.requests('tasks/get')[0]);
  call.cancel('gone');
  assert.ok((await reply).error !== undefined);
  await memory.until(() => memory.requests('tasks/cancel')[0]);
  assert.equal(tasks[0]?.status, 'cancelled');
});

for (const when of ['before its answer', 'while it is polled'] as const) {
  //
  test(`isolation call: a task cancelled ${when} is cancelled remotely`, TIMEOUT, async () => {
    const task = { taskId: '1', status: 'working', createdAt: '2026-01-01T00:00:00Z', ttl: 60_000, pollInterval: 10 };
    await using up = await legacyUpstream({
      capabilities: { tools: {}, tasks: { cancel: {}, requests: { tools: { call: {} } } } },
      tools: [{ name: 'job', inputSchema: { type: 'object' }, execution: { taskSupport: 'required' } }],
      answers: {
        'tools/call': () => (when === 'while it is polled' ? { task } : undefined),
        'tasks/get': () => task,
        'tasks/cancel': () => ({ ...task, status: 'cancelled' }),
      },
    });
    await using gateway = await testCore({ up: { ...up.config, isolation: 'call' } });
    const client = await gateway.connect();
    const method = when === 'while it is polled' ? 'tasks/get' : 'tools/call';
    const called = client.send('tools/call', toolCall('up__job'), { id: '"c"' });
    await waitUntil(() => up.requests(method).length > 0);
    client.notify('notifications/cancelled', { requestId: 'c' });
    await called;
    if (method === 'tools/call') up.requests(method)[0]?.result({ task });
    await waitUntil(() => up.requests('tasks/cancel').length === 1);
    const links = () => [...(gateway.core.upstreams.get('up')?.links() ?? [])];
    await waitUntil(() => links().every(({ place }) => place.purpose !== 'call'));
  });
}

//
test('a tool that runs as a task is not called again when its process has gone', TIMEOUT, async () => {
  const { memory } = coreTaskUpstream((_, peer) => setImmediate(() => peer.crash()));
  await using gateway = await testCore({ up: { memory } });
  const client = await gateway.connect();
  const { answer } = await client.request('tools/call', toolCall('up__job'));
  assert.ok(answer.kind === 'error');
  assert.deepEqual(
    [member(answer.error.data, 'code'), member(answer.error.data, 'executed')],
    ['upstream-lost', 'unknown'],
  );
  assert.equal(memory.peers.flatMap(({ received }) => received).filter((one) => isCall(one)).length, 1);
});

test('a task keeps nothing of its session in memory when its connection has closed', TIMEOUT, async () => {
  const { memory } = coreTaskUpstream();
  await using gateway = await testCore({ up: { memory } });
  const client = await gateway.connect();
  await client.result('tools/call', asTask('up__job'));
  const upstream = gateway.core.upstreams.get('up');
  const link = [...(upstream?.links() ?? [])].find(({ tasks }) => tasks.size > 0);
  await gateway.core.gateway.endSession(client.session);
  await upstream?.stop();
  assert.deepEqual([link?.connection.isClosed, link?.tasks.size], [true, 0]);
});

// M-009
test('notifications and questions about a task have the client’s id and reach only it', TIMEOUT, async () => {
  const { memory, tasks } = coreTaskUpstream();
  await using gateway = await testCore({ up: { memory, isolation: 'session' } });
  const client = await gateway.connect({ capabilities: { elicitation: {} } });
  const other = await gateway.connect({ capabilities: { elicitation: {} } });
  await other.result('tools/call', toolCall('up__either'));
  const taskId = member((await client.result('tools/call', asTask('up__job')))['task'], 'taskId');
  const [task] = tasks;
  assert.ok(task !== undefined);
  const status = { taskId: task.id, status: 'input_required', ttl: 1, createdAt: '', lastUpdatedAt: '' };
  const params = { message: 'Sure?', requestedSchema: { type: 'object' }, _meta: { [RELATED]: { taskId: task.id } } };
  for (const peer of memory.open) {
    peer.send(`{"jsonrpc":"2.0","method":"notifications/tasks/status","params":${JSON.stringify(status)}}`);
  }
  const made = memory.peers.find(({ received }) =>
    received.some((one) => one.kind === 'request' && isTask(one.params)),
  );
  made?.send(`{"jsonrpc":"2.0","id":"e","method":"elicitation/create","params":${JSON.stringify(params)}}`);
  const notification = await client.waitForMessage('notifications/tasks/status');
  assert.deepEqual(notification.kind === 'notification' && notification.params?.value('taskId'), taskId);
  const asked = await client.waitForMessage('elicitation/create');
  assert.deepEqual(asked.kind === 'request' && asked.params?.value('_meta'), { [RELATED]: { taskId } });
  assert.deepEqual(other.listened, []);
});

function isTask(params: RawObject | undefined): boolean {
  return params?.raw('task') !== undefined;
}

/** Returns the tokens of the progress on the stream that belongs to no request. */
const progressTokens = ({ listened }: TestClient) =>
  listened.flatMap((one) =>
    one.kind === 'notification' && one.method === 'notifications/progress' ? [one.params?.value('progressToken')] : [],
  );

// M-020
test('progress with the client’s token continues until the task ends', TIMEOUT, async () => {
  const { memory, tasks } = coreTaskUpstream();
  await using gateway = await testCore({ up: { memory } });
  const client = await gateway.connect();
  const call = { ...asTask('up__job'), _meta: { progressToken: 'mine' } };
  const { answer } = await client.request('tools/call', call);
  const taskId = member(member(answer.kind === 'result' && JSON.parse(answer.result), 'task'), 'taskId');
  const token = memory.requests('tools/call')[0]?.params?.object('_meta')?.raw('progressToken');
  const progress = (n: number) => {
    const params = `{"progressToken":${token},"progress":${n}}`;
    for (const peer of memory.open) peer.send(`{"jsonrpc":"2.0","method":"notifications/progress","params":${params}}`);
  };
  progress(1);
  assert.deepEqual(progressTokens(client), ['mine']);
  Object.assign(tasks[0] ?? {}, { status: 'completed', result: DONE });
  await client.result('tasks/get', { taskId });
  progress(2);
  await client.result('tools/call', toolCall('up__either'));
  assert.deepEqual(progressTokens(client), ['mine']);
});

// M-020
test('no progress follows the cancellation of a call as a task', TIMEOUT, async () => {
  const memory = memoryUpstream({
    capabilities: { tools: {}, tasks: { requests: { tools: { call: {} } } } },
    lists: { tools: [{ name: 'job', inputSchema: { type: 'object' }, execution: { taskSupport: 'optional' } }] },
    request: (peer, request) => {
      // A call is never answered.
      if (request.method !== 'tools/call') peer.send(result(request, {}));
    },
  });
  await using gateway = await testCore({ up: { memory } });
  const client = await gateway.connect();
  const call = { ...asTask('up__job'), _meta: { progressToken: 'mine' } };
  const calling = client.send('tools/call', call, { id: '"job"' });
  await waitUntil(() => memory.requests('tools/call').length > 0);
  client.notify('notifications/cancelled', { requestId: 'job' });
  const { answer, messages } = await calling;
  const token = memory.requests('tools/call')[0]?.params?.object('_meta')?.raw('progressToken');
  const params = `{"progressToken":${token},"progress":1}`;
  for (const peer of memory.open) peer.send(`{"jsonrpc":"2.0","method":"notifications/progress","params":${params}}`);
  await client.result('ping');
  assert.deepEqual([answer, messages, client.listened], [undefined, [], []]);
});

// M-020
test('no progress follows the answer of a call that has created no task', TIMEOUT, async () => {
  const outcomes = ['"result":{"content":[]}', '"error":{"code":-32601,"message":"no"}', '"result":{"task":{}}'];
  let outcome = '';
  const memory = memoryUpstream({
    capabilities: { tools: {}, tasks: { requests: { tools: { call: {} } } } },
    lists: { tools: [{ name: 'job', inputSchema: { type: 'object' }, execution: { taskSupport: 'optional' } }] },
    request: (peer, { id }) => peer.send(`{"jsonrpc":"2.0","id":${id},${outcome}}`),
  });
  await using gateway = await testCore({ up: { memory } });
  const client = await gateway.connect();
  for (outcome of outcomes) {
    const call = { ...asTask('up__job'), _meta: { progressToken: 'mine' } };
    const { answer, messages } = await client.request('tools/call', call);
    const token = memory.requests('tools/call').at(-1)?.params?.object('_meta')?.raw('progressToken');
    const params = `{"progressToken":${token},"progress":1}`;
    for (const peer of memory.open) peer.send(`{"jsonrpc":"2.0","method":"notifications/progress","params":${params}}`);
    assert.deepEqual([messages, answer.kind], [[], outcome === outcomes[0] ? 'result' : 'error']);
  }
});

test('limit tasksPerConnection: the progress of the oldest task is not passed on', TIMEOUT, async () => {
  const { memory } = coreTaskUpstream();
  await using gateway = await testCore({ up: { memory } });
  const client = await gateway.connect();
  const call = (meta?: object) => client.request('tools/call', { ...asTask('up__job'), ...meta });
  const oldest = await call({ _meta: { progressToken: 'oldest' } });
  await call({ _meta: { progressToken: 'next' } });
  for (let n = 2; n <= LIMITS.tasksPerConnection; n++) await call();
  for (const request of memory.requests('tools/call').slice(0, 2)) {
    const token = request.params?.object('_meta')?.raw('progressToken');
    const params = { progressToken: Number(token), progress: 1 };
    const progress = JSON.stringify({ jsonrpc: '2.0', method: 'notifications/progress', params });
    for (const peer of memory.open) peer.send(progress);
  }
  assert.deepEqual(progressTokens(client), ['next']);
  assert.match(await gateway.metrics.text(), /limit_reached_total\{limit="tasksPerConnection"\} 1\n/);
  // Its id stays valid.
  const { answer } = oldest;
  const taskId = member(member(answer.kind === 'result' && JSON.parse(answer.result), 'task'), 'taskId');
  assert.equal((await client.result('tasks/get', { taskId }))['status'], 'working');
});

test('limit upstreamTaskIdChars: a task with a longer id is cancelled, its call fails', TIMEOUT, async () => {
  for (const chars of [LIMITS.upstreamTaskIdChars, LIMITS.upstreamTaskIdChars + 1]) {
    const memory = memoryUpstream({
      capabilities: { tools: {}, tasks: { requests: { tools: { call: {} } } } },
      lists: { tools: [{ name: 'job', inputSchema: { type: 'object' }, execution: { taskSupport: 'optional' } }] },
      request: (peer, request) => {
        const times = { createdAt: '2026-01-01T00:00:00Z', lastUpdatedAt: '2026-01-01T00:00:00Z', ttl: 60_000 };
        peer.send(result(request, { task: { taskId: 'x'.repeat(chars), status: 'working', ...times } }));
      },
    });
    await using gateway = await testCore({ up: { memory } });
    const client = await gateway.connect();
    const { answer } = await client.request('tools/call', asTask('up__job'));
    const isLong = chars > LIMITS.upstreamTaskIdChars;
    assert.equal(answer.kind, isLong ? 'error' : 'result');
    assert.equal(JSON.stringify(answer).includes('upstream-protocol'), isLong);
    assert.equal((await gateway.metrics.text()).includes('limit="upstreamTaskIdChars"'), isLong);
    assert.equal(memory.requests('tasks/cancel').length, isLong ? 1 : 0);
  }
});
