import assert from 'node:assert/strict';
import { cp, mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { test } from 'node:test';
import { type TestCore, testCore, toolCall } from '../../support/core.ts';
import { JoinedProcesses } from '../../support/joined-processes.ts';
import type { MemoryUpstream, Peer } from '../../support/memory-upstream.ts';
import { ModernClient } from '../../support/modern-client.ts';
import { stopTime } from '../../support/stopped-time.ts';
import { coreTaskUpstream, SECRET, type TaskUpstream } from '../../support/task-upstreams.ts';

const TIMEOUT = { timeout: 120_000 };
const EXTENSIONS = { extensions: { 'io.modelcontextprotocol/tasks': {} } };
const ASKABLE = { ...EXTENSIONS, elicitation: { form: {} } };
const ASK = '{"jsonrpc":"2.0","id":"e","method":"elicitation/create","params":';
const QUESTION = { message: 'Sure?', requestedSchema: { type: 'object', properties: { sure: { type: 'boolean' } } } };

function without(value: unknown, ...names: readonly string[]): unknown {
  if (typeof value !== 'object' || value === null) return value;
  return Object.fromEntries(Object.entries(value).filter(([name]) => !names.includes(name)));
}

/** Returns the answer that the upstream has got to its question; undefined before. */
function answerTo({ peers }: MemoryUpstream, id: string) {
  return peers
    .flatMap(({ received }) => received)
    .find((message) => message.kind === 'result' && message.id === `"${id}"`);
}

/** A server whose tasks ask a question at once. `failNext` makes it answer the next request of a method with an error. */
function askingUpstream() {
  const failures = new Map<string, number>();
  let asksAtResult = false;
  const ask = (peer: Peer) => peer.send(`${ASK}${JSON.stringify(QUESTION)}}`);
  const { memory, tasks } = coreTaskUpstream(
    (task, peer) => {
      task.status = 'input_required';
      ask(peer);
    },
    (peer, request) => {
      if (asksAtResult && request.method === 'tasks/result') ask(peer);
      const code = failures.get(request.method);
      failures.delete(request.method);
      return code === undefined ? undefined : { code, message: 'failed' };
    },
  );
  const failNext = (method: string, code: number) => failures.set(method, code);
  return { memory, tasks, failNext, askAgain: () => (asksAtResult = true) };
}

test('a client of 2026-07-28 gets tasks of 2025-11-25 as the extension only', TIMEOUT, async () => {
  await using gateway = await testCore({ up: { memory: coreTaskUpstream().memory } });
  const client = new ModernClient(gateway, EXTENSIONS);
  const { capabilities } = await client.result('server/discover');
  assert.deepEqual(
    Object.entries(capabilities ?? {}).find(([key]) => key === 'extensions')?.[1],
    EXTENSIONS.extensions,
  );
  assert.ok(!Object.hasOwn(capabilities ?? {}, 'tasks'), 'X-040');
  await client.result('tools/call', toolCall('up__either'));
});

test('a task-only tool of 2025-11-25 becomes a task of the extension with the result', TIMEOUT, async () => {
  const { memory, tasks } = coreTaskUpstream();
  await using gateway = await testCore({ up: { memory } });
  const client = new ModernClient(gateway, EXTENSIONS);
  const created = await client.result('tools/call', toolCall('up__job'));
  const { taskId } = created;
  assert.ok(!JSON.stringify(created).includes(SECRET));
  assert.deepEqual([created['resultType'], created['ttlMs'], created['pollIntervalMs']], ['task', 60_000, 10]);
  assert.ok(!Object.hasOwn(created, 'ttl') && !Object.hasOwn(created, 'pollInterval'));
  const working = await client.result('tasks/get', { taskId });
  assert.deepEqual([working['resultType'], working['taskId'], working['status']], ['complete', taskId, 'working']);
  const content = [{ type: 'resource_link', uri: 'file:///a', name: 'a' }];
  Object.assign(tasks[0] ?? {}, { status: 'completed', result: { content } });
  for (const time of ['first', 'second']) {
    const done = await client.result('tasks/get', { taskId });
    assert.equal(done['status'], 'completed', time);
    const expected = { resultType: 'complete', content: [{ ...content[0], uri: 'up+file:///a' }] };
    assert.deepEqual(without(done['result'], '_meta'), expected, time);
    assert.ok(!JSON.stringify(done).includes(SECRET), time);
  }
});

//
test('a failed tool completes its task; a protocol error fails the task', TIMEOUT, async () => {
  const { memory, tasks } = coreTaskUpstream();
  await using gateway = await testCore({ up: { memory } });
  const client = new ModernClient(gateway, EXTENSIONS);
  const [first, second] = [
    await client.result('tools/call', toolCall('up__job')),
    await client.result('tools/call', toolCall('up__job')),
  ];
  Object.assign(tasks[0] ?? {}, { status: 'failed', result: { content: [], isError: true } });
  Object.assign(tasks[1] ?? {}, { status: 'failed', error: { code: -32002, message: 'gone' } });
  const failedTool = await client.result('tasks/get', { taskId: first['taskId'] });
  assert.equal(failedTool['status'], 'completed');
  assert.deepEqual(without(failedTool['result'], '_meta'), { content: [], isError: true, resultType: 'complete' });
  const failed = await client.result('tasks/get', { taskId: second['taskId'] });
  assert.deepEqual([failed['status'], failed['error']], ['failed', { code: -32602, message: 'gone' }]);
});

test('questions of an upgraded task are in its state, each with a key of its own', TIMEOUT, async () => {
  const { memory, tasks } = coreTaskUpstream((task, peer) => {
    task.status = 'input_required';
    peer.send(`${ASK}${JSON.stringify(QUESTION)}}`);
  });
  await using gateway = await testCore({ up: { memory } });
  const client = new ModernClient(gateway, ASKABLE);
  const { taskId } = await client.result('tools/call', toolCall('up__job'));
  const keys: string[] = [];
  for (const id of ['e', 'f']) {
    const asking = await client.result('tasks/get', { taskId });
    assert.equal(asking['status'], 'input_required');
    assert.deepEqual(Object.values(asking['inputRequests'] ?? {}), [
      { method: 'elicitation/create', params: QUESTION },
    ]);
    const [key = ''] = Object.keys(asking['inputRequests'] ?? {});
    keys.push(key);
    await client.result('tasks/update', { taskId, inputResponses: { [key]: { action: 'decline' }, other: {} } });
    const answered = await memory.until(() => answerTo(memory, id));
    assert.equal(answered.kind === 'result' && answered.result, '{"action":"decline"}');
    if (id === 'e') memory.peers.at(-1)?.send(`${ASK.replace('"e"', '"f"')}${JSON.stringify(QUESTION)}}`);
  }
  assert.equal(new Set(keys).size, 2);
  Object.assign(tasks[0] ?? {}, { status: 'completed', result: { content: [] } });
  tasks[0]?.flush();
  assert.equal((await client.result('tasks/get', { taskId }))['status'], 'completed');
});

test('a task with a question that its client did not declare fails with the capability', TIMEOUT, async () => {
  const { memory, tasks } = coreTaskUpstream();
  await using gateway = await testCore({ up: { memory } });
  const client = new ModernClient(gateway, { ...EXTENSIONS, sampling: {} });
  const { taskId } = await client.result('tools/call', toolCall('up__job'));
  memory.peers.at(-1)?.send(`${ASK}${JSON.stringify(QUESTION)}}`);
  await memory.until(() => memory.peers.flatMap(({ received }) => received).find(({ kind }) => kind === 'error'));
  const failed = await client.result('tasks/get', { taskId });
  assert.equal(failed['status'], 'failed');
  assert.match(JSON.stringify(failed['error']), /-32021/);
  assert.equal(tasks[0]?.status, 'cancelled', 'it does not go on');
});

test('a response that is no valid answer is refused, and its question stays open', TIMEOUT, async () => {
  const { memory } = askingUpstream();
  await using gateway = await testCore({ up: { memory } });
  const client = new ModernClient(gateway, ASKABLE);
  const { taskId } = await client.result('tools/call', toolCall('up__job'));
  for (const inputResponses of [undefined, null, [], 'yes', { user_sure: 1 }, { user_sure: { action: 'yes' } }]) {
    const refused = await client.error('tasks/update', { taskId, inputResponses });
    assert.equal(refused.code, -32602, JSON.stringify(inputResponses));
    const state = await client.result('tasks/get', { taskId });
    assert.deepEqual(Object.keys(state['inputRequests'] ?? {}), ['user_sure']);
  }
  assert.equal(answerTo(memory, 'e'), undefined);
  await client.result('tasks/update', { taskId, inputResponses: { user_sure: { action: 'decline' } } });
  const answered = await memory.until(() => answerTo(memory, 'e'));
  assert.equal(answered.kind === 'result' && answered.result, '{"action":"decline"}');
});

test('a failed tasks/get does not cancel the questions of its task', TIMEOUT, async () => {
  const { memory, failNext } = askingUpstream();
  await using gateway = await testCore({ up: { memory } });
  const client = new ModernClient(gateway, ASKABLE);
  const { taskId } = await client.result('tools/call', toolCall('up__job'));
  const asking = await client.result('tasks/get', { taskId });
  failNext('tasks/get', -32603);
  assert.equal((await client.error('tasks/get', { taskId })).code, -32603);
  const again = await client.result('tasks/get', { taskId });
  assert.deepEqual([again['status'], again['inputRequests']], ['input_required', asking['inputRequests']]);
  failNext('tasks/get', -32602);
  await client.error('tasks/get', { taskId });
  // The upstream does not know the task any more.
  const answered = await memory.until(() => answerTo(memory, 'e'));
  assert.equal(answered.kind === 'result' && answered.result, '{"action":"cancel"}');
});

//
test('an error of tasks/result before the end of a task is not its outcome', TIMEOUT, async () => {
  const { memory, tasks, failNext } = askingUpstream();
  await using gateway = await testCore({ up: { memory } });
  const client = new ModernClient(gateway, ASKABLE);
  const { taskId } = await client.result('tools/call', toolCall('up__job'));
  failNext('tasks/result', -32603);
  assert.equal((await client.result('tasks/get', { taskId }))['status'], 'input_required');
  Object.assign(tasks[0] ?? {}, { status: 'completed', result: { content: [] } });
  const done = await client.result('tasks/get', { taskId });
  assert.deepEqual([done['status'], done['error']], ['completed', undefined]);
});

test('questions of a task after a restart have other keys than before', TIMEOUT, async () => {
  const { memory, askAgain } = askingUpstream();
  await using gateway = await testCore({ up: { memory } });
  const client = new ModernClient(gateway, ASKABLE);
  const { taskId } = await client.result('tools/call', toolCall('up__job'));
  const keys = async () => {
    let state = await client.result('tasks/get', { taskId });
    while (state['status'] !== 'input_required') state = await client.result('tasks/get', { taskId });
    return Object.keys(state['inputRequests'] ?? {});
  };
  const before = await keys();
  assert.deepEqual(before, ['user_sure']);
  await gateway.restart();
  askAgain();
  const [after = ''] = await keys();
  assert.match(after, /^user_sure_/);
});

test('a connection with a task from before a restart stays while it works', TIMEOUT, async () => {
  const { memory } = coreTaskUpstream();
  await using gateway = await testCore({ up: { memory } });
  const client = new ModernClient(gateway, EXTENSIONS);
  const { taskId } = await client.result('tools/call', toolCall('up__job'));
  await gateway.restart();
  assert.equal((await client.result('tasks/get', { taskId }))['status'], 'working');
  const working = memory.peers.find(({ received }) =>
    received.some((one) => one.kind === 'request' && one.method === 'tasks/get'),
  );
  assert.ok(working !== undefined);
  gateway.core.sweep(performance.now() + 20 * 60_000);
  assert.ok(memory.open.has(working));
});

//
test('a cancelled upgraded task is cancelled upstream and acknowledged empty', TIMEOUT, async () => {
  const { memory, tasks } = coreTaskUpstream();
  await using gateway = await testCore({ up: { memory } });
  const client = new ModernClient(gateway, EXTENSIONS);
  const { taskId } = await client.result('tools/call', toolCall('up__job'));
  assert.deepEqual(without(await client.result('tasks/cancel', { taskId }), '_meta'), { resultType: 'complete' });
  assert.equal(tasks[0]?.status, 'cancelled');
  assert.equal((await client.result('tasks/get', { taskId }))['status'], 'cancelled');
});

//
test('a cancelled upgraded task leaves room for another one', TIMEOUT, async () => {
  const { memory, tasks } = coreTaskUpstream();
  await using gateway = await testCore({ up: { memory } }, { limits: { parkedPerPrincipal: 1 } });
  const client = new ModernClient(gateway, EXTENSIONS);
  const { taskId } = await client.result('tools/call', toolCall('up__job'));
  await client.result('tasks/cancel', { taskId });
  const next = client.result('tools/call', toolCall('up__job'));
  // Without room for it, the gateway would wait for the end of the task.
  await memory.until(() => tasks[1]);
  Object.assign(tasks[1] ?? {}, { status: 'completed', result: { content: [] } });
  assert.equal((await next)['resultType'], 'task');
});

//
test('a task whose process has died leaves room for another one', TIMEOUT, async () => {
  const { memory, tasks } = coreTaskUpstream();
  await using gateway = await testCore({ up: { memory } }, { limits: { parkedPerPrincipal: 1 } });
  const client = new ModernClient(gateway, EXTENSIONS);
  await client.result('tools/call', toolCall('up__job'));
  for (const peer of memory.open) peer.crash();
  const next = client.result('tools/call', toolCall('up__job'));
  // Without room for it, the gateway would wait for the end of the task.
  await memory.until(() => tasks[1]);
  Object.assign(tasks[1] ?? {}, { status: 'completed', result: { content: [] } });
  assert.equal((await next)['resultType'], 'task');
});

//
test('a task whose link was given up ends when that link closes', TIMEOUT, async () => {
  const { memory, tasks } = coreTaskUpstream();
  await using gateway = await testCore({ up: { memory } }, { limits: { parkedPerPrincipal: 1 } });
  const client = new ModernClient(gateway, EXTENSIONS);
  await client.result('tools/call', toolCall('up__job'));
  // As after a deployment of the server: the link finishes its requests.
  for (const { connection } of gateway.core.upstreams.get('up')?.links() ?? []) connection.reportGone();
  for (const peer of memory.open) peer.crash();
  const next = client.result('tools/call', toolCall('up__job'));
  await memory.until(() => tasks[1]);
  Object.assign(tasks[1] ?? {}, { status: 'completed', result: { content: [] } });
  assert.equal((await next)['resultType'], 'task');
});

/** A client with a task whose link is another one by now, as after a deployment of the server. */
async function moved(gateway: TestCore, tasks: TaskUpstream['tasks']) {
  const client = new ModernClient(gateway, ASKABLE);
  const { taskId } = await client.result('tools/call', toolCall('up__job'));
  await new ModernClient(gateway, { ...ASKABLE, sampling: {} }).result('tools/call', toolCall('up__job'));
  const [former, later] = gateway.core.upstreams.get('up')?.links() ?? [];
  assert.ok(former !== undefined && later !== undefined);
  for (const holder of former.users) holder.links.set('up', later);
  return { client, taskId, held: () => [former, later].map((link) => link.tasks.has(tasks[0]?.id ?? '')) };
}

//
test('a link is kept open for a task though its first poll over it failed', TIMEOUT, async () => {
  const { memory, tasks, failNext } = askingUpstream();
  await using gateway = await testCore({ up: { memory } });
  const { client, taskId, held } = await moved(gateway, tasks);
  failNext('tasks/get', -32_000);
  await assert.rejects(client.result('tasks/get', { taskId }));
  await client.result('tasks/get', { taskId });
  assert.deepEqual(held(), [false, true]);
  Object.assign(tasks[0] ?? {}, { status: 'cancelled' });
  await client.result('tasks/get', { taskId });
  assert.deepEqual(held(), [false, false]);
});

//
test('a link is kept open for a task though another one is lost at its first poll', TIMEOUT, async () => {
  let isLost = false;
  const { memory, tasks } = coreTaskUpstream(undefined, (peer, { method }) => {
    if (isLost && method === 'tasks/get') peer.crash();
    return undefined;
  });
  await using gateway = await testCore({ up: { memory } });
  const { client, taskId, held } = await moved(gateway, tasks);
  isLost = true;
  await assert.rejects(client.result('tasks/get', { taskId }));
  assert.deepEqual(held(), [true, false]);
  for (const peer of memory.open) peer.crash();
  assert.deepEqual(held(), [false, false]);
});

// X-021 X-038
test('a task whose process has died takes no question of a later one', TIMEOUT, async () => {
  const { memory } = coreTaskUpstream((task, peer) => {
    task.status = 'input_required';
    peer.send(`${ASK}${JSON.stringify({ ...QUESTION, message: task.id })}}`);
  });
  await using gateway = await testCore({ up: { memory, isolation: 'principal' } });
  const client = new ModernClient(gateway, ASKABLE);
  const lost = await client.result('tools/call', toolCall('up__job'));
  for (const peer of memory.open) peer.crash();
  const { taskId } = await client.result('tools/call', toolCall('up__job'));
  const { inputRequests } = await client.result('tasks/get', { taskId });
  const [question] = Object.values(inputRequests ?? {});
  assert.equal(question?.params?.message, `${SECRET}-2`);
  // The process that has taken its place knows the task.
  const found = await client.result('tasks/get', { taskId: lost['taskId'] });
  assert.equal(found['taskId'], lost['taskId']);
});

test('a task that has ended and whose result does not come fails the poll alone', TIMEOUT, async (t) => {
  const time = stopTime(t);
  const { memory, tasks } = coreTaskUpstream((task) => void (task.status = 'completed'));
  await using gateway = await testCore({ up: { memory } });
  const client = new ModernClient(gateway, EXTENSIONS);
  const { taskId } = await client.result('tools/call', toolCall('up__job'));
  const { error } = await time.passUntil(client.request('tasks/get', { taskId }).reply, 1_000);
  assert.partialDeepStrictEqual(error?.data, { code: 'upstream-timeout', executed: 'unknown' });
  const [task] = tasks;
  Object.assign(task ?? {}, { result: { content: [] } });
  task?.flush();
  const ended = await client.result('tasks/get', { taskId });
  assert.deepEqual([ended['status'], memory.requests('tasks/result').length], ['completed', 1]);
});

//
test('the question of a task that is polled gets increasing progress', TIMEOUT, async () => {
  const { memory } = coreTaskUpstream((task, peer) => {
    task.status = 'input_required';
    peer.send(`${ASK}${JSON.stringify({ ...QUESTION, _meta: { progressToken: 'mine' } })}}`);
  });
  await using gateway = await testCore({ up: { memory } });
  const client = new ModernClient(gateway, ASKABLE);
  const { taskId } = await client.result('tools/call', toolCall('up__job'));
  for (let polls = 0; polls < 3; polls++) await client.result('tasks/get', { taskId });
  const reported = await memory.until(() => {
    const received = memory.peers.flatMap((peer) => peer.received);
    const sent = received.flatMap((one) =>
      one.kind === 'notification' && one.method === 'notifications/progress' ? [one.params] : [],
    );
    return sent.length === 3 ? sent : undefined;
  });
  assert.deepEqual(
    reported.map((params) => [params?.string('progressToken'), params?.raw('progress')]),
    [1, 2, 3].map((progress) => ['mine', String(progress)]),
  );
});

//
test('cancelling an upgraded task cancels its open question', TIMEOUT, async () => {
  const { memory } = coreTaskUpstream((task, peer) => {
    task.status = 'input_required';
    peer.send(`${ASK}${JSON.stringify(QUESTION)}}`);
  });
  await using gateway = await testCore({ up: { memory } });
  const client = new ModernClient(gateway, ASKABLE);
  const { taskId } = await client.result('tools/call', toolCall('up__job'));
  assert.equal((await client.result('tasks/get', { taskId }))['status'], 'input_required');
  await client.result('tasks/cancel', { taskId });
  const answered = await memory.until(() => answerTo(memory, 'e'));
  assert.equal(answered.kind === 'result' && answered.result, '{"action":"cancel"}');
  assert.equal((await client.result('tasks/get', { taskId }))['status'], 'cancelled');
});

//
test('a task whose client has gone before it got the id is cancelled and forgotten', TIMEOUT, async () => {
  let cancel = () => {};
  // The upstream has created the task, and its id is not sealed yet.
  const { memory, tasks } = coreTaskUpstream(() => cancel());
  await using gateway = await testCore({ up: { memory } }, { limits: { parkedPerPrincipal: 1 } });
  const client = new ModernClient(gateway, EXTENSIONS);
  const { call, reply } = client.request('tools/call', toolCall('up__job'));
  cancel = () => call.cancel('gone');
  assert.ok((await reply).error !== undefined);
  await memory.until(() => memory.requests('tasks/cancel')[0]);
  assert.equal(tasks[0]?.status, 'cancelled');
  cancel = () => {};
  const next = client.result('tools/call', toolCall('up__job'));
  await memory.until(() => tasks[1]);
  Object.assign(tasks[1] ?? {}, { status: 'completed', result: { content: [] } });
  assert.equal((await next)['resultType'], 'task');
});

// S-004
test('upgraded tasks belong to their principal', TIMEOUT, async () => {
  const { memory } = coreTaskUpstream();
  await using gateway = await testCore({ up: { memory } });
  const { taskId } = await new ModernClient(gateway, EXTENSIONS).result('tools/call', toolCall('up__job'));
  const bob = new ModernClient(gateway, EXTENSIONS, { key: 'bob', label: 'bob', scopes: [] });
  assert.equal((await bob.error('tasks/get', { taskId })).code, -32602);
  assert.equal((await bob.error('tasks/cancel', { taskId })).code, -32602);
});

test('two tasks with questions have separate processes', TIMEOUT, async () => {
  const { memory } = coreTaskUpstream((task, peer) => {
    peer.send(`${ASK}${JSON.stringify({ ...QUESTION, message: task.id })}}`);
  });
  await using gateway = await testCore({ up: { memory } });
  const client = new ModernClient(gateway, ASKABLE);
  const ids = [
    await client.result('tools/call', toolCall('up__job')),
    await client.result('tools/call', toolCall('up__job')),
  ].map(({ taskId }) => taskId);
  const asked = new Set<string>();
  for (const taskId of ids) {
    let state = await client.result('tasks/get', { taskId });
    for (let time = 0; time < 50 && state['status'] !== 'input_required'; time++) {
      state = await client.result('tasks/get', { taskId });
    }
    asked.add(JSON.stringify(state['inputRequests']));
  }
  assert.equal(asked.size, 2);
});

// M-009
test('a question that names its task reaches this task of several on a connection', TIMEOUT, async () => {
  const { memory, tasks } = coreTaskUpstream();
  const target = { kind: 'http', url: 'http://127.0.0.1:9/mcp', headers: {} } as const;
  await using gateway = await testCore({ up: { memory, target } });
  const client = new ModernClient(gateway, ASKABLE);
  const create = async () => (await client.result('tools/call', toolCall('up__job')))['taskId'];
  const taskIds = [await create(), await create(), await create()];
  const _meta = { 'io.modelcontextprotocol/related-task': { taskId: tasks[1]?.id } };
  for (const peer of memory.open) peer.send(`${ASK}${JSON.stringify({ ...QUESTION, _meta })}}`);
  const statuses = taskIds.map(async (taskId) => (await client.result('tasks/get', { taskId }))['status']);
  assert.deepEqual(await Promise.all(statuses), ['working', 'input_required', 'working']);
  await client.result('tasks/update', { taskId: taskIds[1], inputResponses: { user_sure: { action: 'decline' } } });
  const answered = await memory.until(() => answerTo(memory, 'e'));
  assert.equal(answered.kind === 'result' && answered.result, '{"action":"decline"}');
});

test('a task request at another process reaches the one that has the task', TIMEOUT, async () => {
  const { memory, tasks } = coreTaskUpstream();
  const processes = new JoinedProcesses();
  await using first = await testCore({ up: { memory } }, {}, processes);
  // The processes have the same keys, and each a state directory of its own.
  const stateDir = await mkdtemp(join(tmpdir(), 'linkspan-replica-'));
  await cp(join(first.config.stateDir, 'keys.json'), join(stateDir, 'keys.json'));
  {
    await using second = await testCore({ up: { memory } }, { stateDir }, processes);
    const created = await new ModernClient(first, EXTENSIONS).result('tools/call', toolCall('up__job'));
    const { taskId } = created;
    const opened = memory.starts;
    const elsewhere = new ModernClient(second, EXTENSIONS);
    assert.equal((await elsewhere.result('tasks/get', { taskId }))['status'], 'working');
    Object.assign(tasks[0] ?? {}, { status: 'completed', result: { content: [] } });
    const done = await elsewhere.result('tasks/get', { taskId });
    assert.deepEqual([done['status'], done['taskId']], ['completed', taskId]);
    assert.equal(memory.starts, opened, 'no connection of its own');
  }
  await rm(stateDir, { recursive: true });
});
