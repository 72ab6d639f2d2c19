import assert from 'node:assert/strict';
import { test } from 'node:test';
import { LIMITS } from '../../src/limits.ts';
import type { Answer, Message } from '../../src/protocol/jsonrpc.ts';
import { accessOf, keyOf } from '../policy/policies.ts';
import { testCore, type TestClient, type TestCore, toolCall } from '../support/core.ts';
import { memoryUpstream, type MemoryUpstream, type Peer, result } from '../support/memory-upstream.ts';
import { waitUntil } from '../support/wait-until.ts';

const TIMEOUT = { timeout: 120_000 };
const RELATED = 'io.modelcontextprotocol/related-task';
const RUNS = { list: {}, cancel: {}, requests: { sampling: { createMessage: {} } } };
const CAPABILITIES = { sampling: {}, elicitation: {}, tasks: RUNS };
const STATE = { taskId: 'mine', status: 'working', ttl: 1_000, createdAt: '', lastUpdatedAt: '' };
const SAMPLING = { messages: [], maxTokens: 1, task: { ttl: 1_000 } };

/** A server whose questions the test sends by hand, on the connection of an earlier call. */
class Asker {
  readonly memory: MemoryUpstream = memoryUpstream({
    lists: { tools: [{ name: 'hi', inputSchema: { type: 'object' } }] },
    request: (peer, request) => {
      if (request.method === 'tools/call') this.peer = peer;
      peer.send(result(request, { content: [] }));
    },
  });
  peer: Peer | undefined;
  #lastId = 0;

  async ask(method: string, params: object): Promise<Answer> {
    const id = String(++this.#lastId);
    this.peer?.send(`{"jsonrpc":"2.0","id":${id},"method":"${method}","params":${JSON.stringify(params)}}`);
    const isAnswer = (message: Message) => message.kind !== 'request' && message.kind !== 'notification';
    return await this.memory.until(() =>
      this.peer?.received.find((one): one is Answer & Message => isAnswer(one) && 'id' in one && one.id === id),
    );
  }
}

/** Answers the next request of this method. Returns its params. */
async function answer(client: TestClient, method: string, value: object): Promise<string> {
  const asked = await client.waitForMessage(method);
  if (asked.kind !== 'request') throw new Error(`${method} is no request`);
  client.listened.splice(client.listened.indexOf(asked), 1);
  client.answer(asked.id, value);
  return asked.params?.toString() ?? '';
}

function parsed(answered: Answer): Record<string, unknown> {
  if (answered.kind === 'error') throw new Error(JSON.stringify(answered.error));
  return JSON.parse(answered.result);
}

async function introduce(gateway: TestCore, capabilities: object): Promise<TestClient> {
  const client = await gateway.connect({ capabilities });
  await client.result('tools/call', toolCall('up__hi'));
  return client;
}

test('a client answers a question with a task, which its upstream follows to the end', TIMEOUT, async () => {
  const asker = new Asker();
  await using gateway = await testCore({ up: { memory: asker.memory } });
  const client = await introduce(gateway, CAPABILITIES);
  assert.deepEqual(asker.peer?.capabilities.value('tasks'), RUNS);
  const [created, asked] = await Promise.all([
    asker.ask('sampling/createMessage', SAMPLING),
    answer(client, 'sampling/createMessage', { task: STATE }),
  ]);
  assert.deepEqual(JSON.parse(asked).task, SAMPLING.task);
  const task = parsed(created)['task'];
  const taskId = typeof task === 'object' && task !== null && 'taskId' in task ? String(task.taskId) : '';
  assert.notEqual(taskId, 'mine');

  const [state, about] = await Promise.all([asker.ask('tasks/get', { taskId }), answer(client, 'tasks/get', STATE)]);
  assert.equal(JSON.parse(about).taskId, 'mine');
  assert.equal(parsed(state)['taskId'], taskId);
  const sampled = { role: 'assistant', model: 'm', content: { type: 'text', text: 'x' } };
  const [ended] = await Promise.all([
    asker.ask('tasks/result', { taskId }),
    answer(client, 'tasks/result', { ...sampled, _meta: { [RELATED]: { taskId: 'mine' } } }),
  ]);
  assert.deepEqual(parsed(ended), { ...sampled, _meta: { [RELATED]: { taskId } } });
  const [listed] = await Promise.all([asker.ask('tasks/list', {}), answer(client, 'tasks/get', STATE)]);
  assert.deepEqual(parsed(listed), { tasks: [{ ...STATE, taskId }] });

  client.notify('notifications/tasks/status', { ...STATE, status: 'completed' });
  const status = await asker.memory.until(() =>
    asker.peer?.received.find((one) => one.kind === 'notification' && one.method === 'notifications/tasks/status'),
  );
  assert.equal(status.kind === 'notification' && status.params?.string('taskId'), taskId);
});

// S-004
test('an upstream gets only tasks that this client runs for it', TIMEOUT, async () => {
  const [asker, other] = [new Asker(), new Asker()];
  await using gateway = await testCore({ up: { memory: asker.memory }, other: { memory: other.memory } });
  const client = await introduce(gateway, CAPABILITIES);
  await client.result('tools/call', toolCall('other__hi'));
  const [created] = await Promise.all([
    asker.ask('sampling/createMessage', SAMPLING),
    answer(client, 'sampling/createMessage', { task: STATE }),
  ]);
  const task = parsed(created)['task'];
  for (const taskId of ['mine', typeof task === 'object' && task !== null && 'taskId' in task ? task.taskId : '']) {
    const answered = await other.ask('tasks/get', { taskId });
    assert.equal(answered.kind === 'error' && answered.error.code, -32602);
  }
  assert.deepEqual(parsed(await other.ask('tasks/list', {})), { tasks: [] });
  // The lists of `up` may come after the call of `other`.
  const asked = client.listened.filter(({ kind }) => kind === 'request');
  assert.deepEqual(asked, []);
});

// S-004
test('a status with the id of another client’s task does not reach its upstream', TIMEOUT, async () => {
  const asker = new Asker();
  await using gateway = await testCore({ up: { memory: asker.memory, isolation: 'principal' } });
  const client = await introduce(gateway, CAPABILITIES);
  await Promise.all([
    asker.ask('sampling/createMessage', SAMPLING),
    answer(client, 'sampling/createMessage', { task: STATE }),
  ]);
  const other = await introduce(gateway, CAPABILITIES);
  other.notify('notifications/tasks/status', { ...STATE, status: 'failed' });
  client.notify('notifications/tasks/status', { ...STATE, status: 'completed' });
  const statuses = () =>
    asker.memory.peers.flatMap(({ received }) =>
      received.flatMap((one) =>
        one.kind === 'notification' && one.method === 'notifications/tasks/status' ? one.params?.string('status') : [],
      ),
    );
  await waitUntil(() => statuses().includes('completed'));
  assert.deepEqual(statuses(), ['completed']);
});

test('an upstream that polls the task of an ended session is answered at once', TIMEOUT, async () => {
  const asker = new Asker();
  await using gateway = await testCore({ up: { memory: asker.memory, isolation: 'principal' } });
  const client = await introduce(gateway, CAPABILITIES);
  const other = await gateway.connect({ capabilities: CAPABILITIES });
  const [created] = await Promise.all([
    asker.ask('sampling/createMessage', SAMPLING),
    answer(client, 'sampling/createMessage', { task: STATE }),
  ]);
  const task = parsed(created)['task'];
  const taskId = typeof task === 'object' && task !== null && 'taskId' in task ? String(task.taskId) : '';
  await other.result('tools/call', toolCall('up__hi'));
  await gateway.core.gateway.endSession(client.session);
  const answered = await asker.ask('tasks/get', { taskId });
  assert.match(answered.kind === 'error' ? answered.error.message : '', /the session ended/);
  assert.deepEqual(parsed(await asker.ask('tasks/list', {})), { tasks: [] });
});

// SEC-08 P-011
test('an upstream that is hidden from a client reaches no task of it any more', TIMEOUT, async () => {
  const asker = new Asker();
  const accessAt = (...endpoints: readonly string[]) =>
    accessOf({ all: { upstreams: ['up'] } }, [{ roles: ['all'], keys: ['ada'], endpoints }]);
  const profile = { id: 'p', upstreams: ['up'], includeTools: undefined, excludeTools: [], renames: {} };
  await using gateway = await testCore(
    { up: { memory: asker.memory, isolation: 'principal' } },
    { profiles: [profile], access: accessAt('', 'p') },
  );
  const connect = async (view: string) => {
    const client = await gateway.connect({ capabilities: CAPABILITIES, principal: keyOf('ada'), view });
    await client.result('tools/call', toolCall('up__hi'));
    return client;
  };
  const client = await connect('');
  const [created] = await Promise.all([
    asker.ask('sampling/createMessage', SAMPLING),
    answer(client, 'sampling/createMessage', { task: STATE }),
  ]);
  const taskId = String(Object(parsed(created)['task']).taskId);
  await connect('p');
  await gateway.reload({ access: accessAt('p') });
  for (const method of ['tasks/get', 'tasks/result', 'tasks/cancel']) {
    const answered = await asker.ask(method, { taskId });
    assert.equal(answered.kind === 'error' && answered.error.code, -32602, method);
  }
  assert.deepEqual(parsed(await asker.ask('tasks/list', {})), { tasks: [] });
  assert.deepEqual(
    client.listened.filter(({ kind }) => kind === 'request'),
    [],
  );
});

for (const { title, capabilities, method } of [
  { title: 'a client that runs no tasks', capabilities: { sampling: {} }, method: 'sampling/createMessage' },
  { title: 'a client that runs other questions as tasks', capabilities: CAPABILITIES, method: 'elicitation/create' },
]) {
  test(`${title} gets the question without a task`, TIMEOUT, async () => {
    const asker = new Asker();
    await using gateway = await testCore({ up: { memory: asker.memory } });
    const client = await introduce(gateway, capabilities);
    const params = { message: 'Sure?', requestedSchema: { type: 'object' }, messages: [], task: { ttl: 1 } };
    const [answered, asked] = await Promise.all([
      asker.ask(method, params),
      answer(client, method, { action: 'decline' }),
    ]);
    assert.equal(JSON.parse(asked).task, undefined);
    assert.deepEqual(parsed(answered), { action: 'decline' });
  });
}

test('limit clientTasksPerConnection: the upstream loses the oldest task', TIMEOUT, async () => {
  const asker = new Asker();
  await using gateway = await testCore({ up: { memory: asker.memory } });
  const client = await introduce(gateway, CAPABILITIES);
  const ids: string[] = [];
  while (ids.length <= LIMITS.clientTasksPerConnection) {
    const [created] = await Promise.all([
      asker.ask('sampling/createMessage', SAMPLING),
      answer(client, 'sampling/createMessage', { task: STATE }),
    ]);
    const task = parsed(created)['task'];
    ids.push(typeof task === 'object' && task !== null && 'taskId' in task ? String(task.taskId) : '');
  }
  const lost = await asker.ask('tasks/get', { taskId: ids[0] });
  assert.equal(lost.kind === 'error' && lost.error.code, -32_602);
  const [kept] = await Promise.all([asker.ask('tasks/get', { taskId: ids[1] }), answer(client, 'tasks/get', STATE)]);
  assert.equal(parsed(kept)['taskId'], ids[1]);
  assert.match(await gateway.metrics.text(), /limit_reached_total\{limit="clientTasksPerConnection"\} 1/);
});

test('a list of tasks that its upstream cancels is asked of the client no more', TIMEOUT, async () => {
  const asker = new Asker();
  await using gateway = await testCore({ up: { memory: asker.memory } });
  const client = await introduce(gateway, CAPABILITIES);
  for (const taskId of ['one', 'two']) {
    await Promise.all([
      asker.ask('sampling/createMessage', SAMPLING),
      answer(client, 'sampling/createMessage', { task: { ...STATE, taskId } }),
    ]);
  }
  const heard = (method: string) => client.listened.filter((one) => 'method' in one && one.method === method);
  asker.peer?.send('{"jsonrpc":"2.0","id":"list","method":"tasks/list"}');
  await client.until(() => (heard('tasks/get').length === 2 ? true : undefined));
  asker.peer?.send('{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":"list"}}');
  await client.until(() => (heard('notifications/cancelled').length === 2 ? true : undefined));
});
