import assert from 'node:assert/strict';
import { test } from 'node:test';
import type { Message } from '../../../src/protocol/jsonrpc.ts';
import { openTestAudit } from '../../support/audit.ts';
import { testCore, toolCall } from '../../support/core.ts';
import type { MemoryUpstream } from '../../support/memory-upstream.ts';
import { ModernClient } from '../../support/modern-client.ts';
import { stopTime } from '../../support/stopped-time.ts';
import { coreTaskUpstream, extensionUpstream, SECRET } from '../../support/task-upstreams.ts';
import { waitUntil } from '../../support/wait-until.ts';

const TIMEOUT = { timeout: 120_000 };
const KNOWS = { extensions: { 'io.modelcontextprotocol/tasks': {} } };
const SUBSCRIPTION = 'io.modelcontextprotocol/subscriptionId';
const OTHER = { kind: 'stdio', command: 'other', args: [], env: {}, cwd: undefined } as const;
const BOB = { key: 'bob', label: 'bob', scopes: [] };

/** Opens a `subscriptions/listen` stream for these tasks; `heard` resolves with its next notification. */
function listen(client: ModernClient, taskIds: readonly unknown[]) {
  const waiting: ((message: Message) => void)[] = [];
  const messages: Message[] = [];
  const onMessage = (message: Message): void => {
    const next = waiting.shift();
    if (next === undefined) messages.push(message);
    else next(message);
  };
  const { call, reply } = client.request('subscriptions/listen', { notifications: { taskIds } }, { onMessage });
  const next = async (): Promise<Record<string, unknown>> => {
    const message = messages.shift() ?? (await new Promise<Message>((resolve) => waiting.push(resolve)));
    if (message.kind !== 'notification') throw new Error(`a ${message.kind}`);
    return { method: message.method, ...JSON.parse(String(message.params)) };
  };
  return { call, reply, next, messages };
}

/** Reports a change of a task on the open `subscriptions/listen` stream of the upstream. */
function changed(memory: MemoryUpstream, task: object): void {
  const _meta = { [SUBSCRIPTION]: Number(memory.requests('subscriptions/listen').at(-1)?.id) };
  const params = JSON.stringify({ ...task, _meta });
  for (const peer of memory.open) peer.send(`{"jsonrpc":"2.0","method":"notifications/tasks","params":${params}}`);
}

/** Reports a change of a task of 2025-11-25. */
function statusChanged(memory: MemoryUpstream, task: object): void {
  const params = JSON.stringify(task);
  for (const peer of memory.open)
    peer.send(`{"jsonrpc":"2.0","method":"notifications/tasks/status","params":${params}}`);
}

//
test('a listener of a task gets its changes in the form of tasks/get', TIMEOUT, async () => {
  const { memory, tasks } = extensionUpstream();
  await using gateway = await testCore({ up: { memory, era: 'modern' } });
  const client = new ModernClient(gateway, KNOWS);
  const { taskId } = await client.result('tools/call', toolCall('up__job'));
  const listening = listen(client, [taskId, 'made-up']);
  const acknowledged = await listening.next();
  assert.deepEqual(acknowledged['notifications'], { taskIds: [taskId] });
  assert.deepEqual(acknowledged['_meta'], { [SUBSCRIPTION]: 2 });
  const [asked] = memory.requests('subscriptions/listen');
  assert.deepEqual(asked?.params?.object('notifications')?.value('taskIds'), [tasks[0]?.id]);

  Object.assign(tasks[0] ?? {}, { status: 'completed', result: { content: [] } });
  changed(memory, { taskId: tasks[0]?.id, status: 'completed' });
  const notification = await listening.next();
  const { method, taskId: notifiedId, status, result, resultType, _meta: marks } = notification;
  assert.deepEqual([method, notifiedId, status], ['notifications/tasks', taskId, 'completed']);
  assert.deepEqual(Object(result).content, []);
  assert.deepEqual([resultType, marks], [undefined, { [SUBSCRIPTION]: 2 }]);
  assert.ok(!JSON.stringify(notification).includes(SECRET));
  listening.call.close();
  assert.ok((await listening.reply).result !== undefined);
});

// SEC-44
test('a listener of a task makes no records of requests that it has not sent', TIMEOUT, async () => {
  await using audit = await openTestAudit({ required: true });
  {
    const { memory, tasks } = extensionUpstream();
    await using gateway = await testCore({ up: { memory, era: 'modern' } }, {}, undefined, audit.trail);
    const client = new ModernClient(gateway, KNOWS);
    const { taskId } = await client.result('tools/call', toolCall('up__job'));
    const listening = listen(client, [taskId]);
    await listening.next();
    changed(memory, { taskId: tasks[0]?.id, status: 'working' });
    assert.equal((await listening.next())['status'], 'working');
    listening.call.close();
    await listening.reply;
  }
  const records = await audit.records();
  assert.deepEqual(
    records.filter(({ method }) => method === 'tasks/get'),
    [],
  );
});

test('the states of a task come in the order of its changes, and the last one last', TIMEOUT, async () => {
  const held: (() => void)[] = [];
  const { memory, tasks } = extensionUpstream(undefined, (answer) => void held.push(answer));
  await using gateway = await testCore({ up: { memory, era: 'modern' } });
  const client = new ModernClient(gateway, KNOWS);
  const { taskId } = await client.result('tools/call', toolCall('up__job'));
  const listening = listen(client, [taskId]);
  await listening.next();
  const change = () => changed(memory, { taskId: tasks[0]?.id });
  change();
  await waitUntil(() => held.length === 1);
  Object.assign(tasks[0] ?? {}, { status: 'completed', result: { content: [] } });
  change();
  change();
  await client.result('tools/call', toolCall('up__job'));
  for (const status of ['working', 'completed']) {
    await waitUntil(() => held.length > 0);
    held.pop()?.();
    assert.equal((await listening.next())['status'], status);
  }
  change();
  await client.result('tools/call', toolCall('up__job'));
  assert.equal(memory.requests('tasks/get').length, 2);
  listening.call.close();
  await listening.reply;
});

// T-021
test('a state that is read when its stream ends is not sent any more', TIMEOUT, async () => {
  const held: (() => void)[] = [];
  const { memory, tasks } = extensionUpstream(undefined, (answer) => void held.push(answer));
  await using gateway = await testCore({ up: { memory, era: 'modern' } });
  const client = new ModernClient(gateway, KNOWS);
  const { taskId } = await client.result('tools/call', toolCall('up__job'));
  const listening = listen(client, [taskId]);
  await listening.next();
  changed(memory, { taskId: tasks[0]?.id });
  await waitUntil(() => held.length === 1);
  listening.call.close();
  await listening.reply;
  held.pop()?.();
  await client.result('tools/call', toolCall('up__job'));
  assert.deepEqual(listening.messages, []);
});

test('a change that comes with the acknowledgement of the upstream is announced', TIMEOUT, async () => {
  const { memory, tasks } = extensionUpstream();
  await using gateway = await testCore({ up: { memory, era: 'modern' } });
  const client = new ModernClient(gateway, KNOWS);
  const { taskId } = await client.result('tools/call', toolCall('up__job'));
  const listening = listen(client, [taskId]);
  await memory.until(() => memory.requests('subscriptions/listen')[0]);
  changed(memory, { taskId: tasks[0]?.id });
  const heard = [await listening.next(), await listening.next()].map(({ method }) => method);
  assert.deepEqual(heard, ['notifications/subscriptions/acknowledged', 'notifications/tasks']);
  listening.call.close();
  await listening.reply;
});

for (const era of ['legacy', 'modern'] as const) {
  test(`a stream ends with the connection to the ${era} upstream of a running task`, TIMEOUT, async () => {
    const { memory } = era === 'legacy' ? coreTaskUpstream() : extensionUpstream();
    await using gateway = await testCore({ up: { memory, era } });
    const client = new ModernClient(gateway, KNOWS);
    const { taskId } = await client.result('tools/call', toolCall('up__job'));
    for (let time = 1; time <= 2; time++) {
      const listening = listen(client, [taskId]);
      assert.deepEqual((await listening.next())['notifications'], { taskIds: [taskId] });
      for (const peer of memory.open) peer.crash();
      assert.ok((await listening.reply).result !== undefined, 'the client has to listen again');
    }
  });
}

test('the connection to an upstream whose task a client follows is not idle', TIMEOUT, async (t) => {
  const time = stopTime(t);
  const { memory, tasks } = extensionUpstream();
  await using gateway = await testCore({ up: { memory, era: 'modern', idleMs: 60_000 } });
  const client = new ModernClient(gateway, KNOWS);
  const { taskId } = await time.passUntil(client.result('tools/call', toolCall('up__job')), 1);
  const listening = listen(client, [taskId]);
  await time.passUntil(listening.next(), 1);
  for (let second = 0; second < 120; second++) time.pass(1_000);
  changed(memory, { taskId: tasks[0]?.id });
  assert.equal((await time.passUntil(listening.next(), 1))['status'], 'working');
  listening.call.close();
  await listening.reply;
});

test('after a reload to isolation call, the end of a stream closes its connection', TIMEOUT, async () => {
  const { memory, tasks } = extensionUpstream();
  await using gateway = await testCore({ up: { memory, era: 'modern', idleMs: 3_600_000 } });
  const client = new ModernClient(gateway, KNOWS);
  const { taskId } = await client.result('tools/call', toolCall('up__job'));
  const { config } = gateway;
  const upstreams = config.upstreams.map((up) => ({ ...up, isolation: 'call' as const }));
  const { drained } = await gateway.reload({ upstreams, reload: { ...config.reload, drainMs: 0 } });
  await drained;
  const before = new Set(memory.open);
  const listening = listen(client, [taskId]);
  assert.deepEqual((await listening.next())['notifications'], { taskIds: [taskId] });
  changed(memory, { taskId: tasks[0]?.id });
  assert.equal((await listening.next())['status'], 'working');
  listening.call.close();
  await listening.reply;
  await memory.until(() => [...memory.open].every((peer) => before.has(peer)) || undefined);
});

for (const era of ['legacy', 'modern'] as const) {
  test(`a listener of a task at a replaced ${era} upstream hears its end`, TIMEOUT, async () => {
    const { memory, tasks } = era === 'legacy' ? coreTaskUpstream() : extensionUpstream();
    await using gateway = await testCore({ up: { memory, era } });
    const client = new ModernClient(gateway, KNOWS);
    const { taskId } = await client.result('tools/call', toolCall('up__job'));
    const old = { ...memory, open: new Set(memory.open) };
    const upstreams = gateway.config.upstreams.map((up) => ({ ...up, target: OTHER }));
    const { drained } = await gateway.reload({ upstreams });
    const listening = listen(client, [taskId]);
    assert.deepEqual((await listening.next())['notifications'], { taskIds: [taskId] });
    Object.assign(tasks[0] ?? {}, { status: 'completed', result: { content: [] } });
    if (era === 'modern') changed(old, { taskId: tasks[0]?.id });
    else statusChanged(old, { taskId: tasks[0]?.id, status: 'completed' });
    assert.equal((await listening.next())['status'], 'completed');
    await drained;
    listening.call.close();
    await listening.reply;
  });
}

// S-004
test('a client without tasks, or of another principal, cannot listen to a task', TIMEOUT, async () => {
  const { memory } = extensionUpstream();
  await using gateway = await testCore({ up: { memory, era: 'modern' } });
  const { taskId } = await new ModernClient(gateway, KNOWS).result('tools/call', toolCall('up__job'));
  const listening = listen(new ModernClient(gateway, KNOWS, BOB), [taskId]);
  assert.deepEqual((await listening.next())['notifications'], {});
  assert.deepEqual(memory.requests('subscriptions/listen'), []);
  listening.call.close();
  await listening.reply;
  const notifications = { taskIds: [taskId] };
  const refused = await new ModernClient(gateway).error('subscriptions/listen', { notifications });
  assert.equal(refused.code, -32021);
});

test('a change of a task of 2025-11-25 is announced in the form of the extension', TIMEOUT, async () => {
  const { memory, tasks } = coreTaskUpstream();
  await using gateway = await testCore({ up: { memory } });
  const client = new ModernClient(gateway, KNOWS);
  const { taskId } = await client.result('tools/call', toolCall('up__job'));
  const listening = listen(client, [taskId]);
  assert.deepEqual((await listening.next())['notifications'], { taskIds: [taskId] });
  Object.assign(tasks[0] ?? {}, { status: 'completed', result: { content: [] } });
  statusChanged(memory, { taskId: tasks[0]?.id, status: 'completed' });
  const notification = await listening.next();
  assert.deepEqual(
    [notification['method'], notification['taskId'], notification['status']],
    ['notifications/tasks', taskId, 'completed'],
  );
  listening.call.close();
  await listening.reply;
});

test('a listen request that ends before it is acknowledged is still answered', TIMEOUT, async () => {
  const { memory } = extensionUpstream();
  await using gateway = await testCore({ up: { memory, era: 'modern' } });
  const { call, reply } = new ModernClient(gateway).request('subscriptions/listen', { notifications: {} });
  call.close();
  assert.ok((await reply).result !== undefined);
});
