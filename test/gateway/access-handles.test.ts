import assert from 'node:assert/strict';
import { test } from 'node:test';
import type { Config } from '../../src/config/values/config.ts';
import { diffConfigs } from '../../src/config/changes/diff.ts';
import { META } from '../../src/protocol/meta.ts';
import { accessOf, keyOf } from '../policy/policies.ts';
import { recordedAfter } from '../support/audit.ts';
import { testCore, toolCall } from '../support/core.ts';
import { askingUpstream, parkedAsk } from '../support/parked-ask.ts';
import { memoryUpstream, result } from '../support/memory-upstream.ts';
import { ModernClient, modernRequest } from '../support/modern-client.ts';
import { coreTaskUpstream, extensionUpstream } from '../support/task-upstreams.ts';
import { waitUntil } from '../support/wait-until.ts';

const TIMEOUT = { timeout: 120_000 };
const ADA = keyOf('ada');
const ALL = accessOf({ all: { upstreams: ['up'] } }, [{ roles: ['all'], keys: ['ada'] }]);

/** Returns a policy that allows only tools of this name. */
function only(tool: string): Config['access'] {
  return accessOf({ all: { upstreams: ['up'], tools: [tool] } }, [{ roles: ['all'], keys: ['ada'] }]);
}

function taskIdOf(created: Record<string, unknown>): string {
  const task: unknown = created['task'];
  const id = typeof task === 'object' && task !== null && 'taskId' in task ? task.taskId : undefined;
  assert.ok(typeof id === 'string');
  return id;
}

// SEC-08
test('a task of a tool that is denied now is unknown, and in no list', TIMEOUT, async () => {
  const { memory } = coreTaskUpstream();
  await using gateway = await testCore({ up: { memory } }, { access: ALL });
  const client = await gateway.connect({ principal: ADA });
  const created = await client.result('tools/call', { ...toolCall('up__job'), task: { ttl: 60_000 } });
  const taskId = taskIdOf(created);
  assert.equal((await client.result('tasks/get', { taskId }))['status'], 'working');
  const polls = memory.requests('tasks/get').length;
  await gateway.reload({ access: only('either') });
  const { answer: invented } = await client.request('tasks/get', { taskId: 'invented' });
  for (const method of ['tasks/get', 'tasks/result', 'tasks/cancel']) {
    assert.deepEqual((await client.request(method, { taskId })).answer, invented, method);
  }
  assert.deepEqual(await client.result('tasks/list'), { tasks: [] });
  assert.equal(memory.requests('tasks/get').length, polls);
});

/** Returns a policy of a rule that holds now, or not now. */
function nowOrNot(holds: boolean, more = ''): Config['access'] {
  const when = `now ${holds ? '>' : '<'} timestamp("2020-01-01T00:00:00Z")${more}`;
  return accessOf({ all: { upstreams: ['up'], when } }, [{ roles: ['all'], keys: ['ada'] }]);
}

// P-002
test('out of hours a task is unknown, though its tool is listed', TIMEOUT, async () => {
  const { memory } = coreTaskUpstream();
  await using gateway = await testCore({ up: { memory } }, { access: ALL });
  const client = await gateway.connect({ principal: ADA });
  const created = await client.result('tools/call', { ...toolCall('up__job'), task: { ttl: 60_000 } });
  const taskId = taskIdOf(created);
  await gateway.reload({ access: nowOrNot(true, ' && args.n == 1') });
  assert.equal((await client.result('tasks/get', { taskId }))['status'], 'working', 'some arguments are allowed now');
  await gateway.reload({ access: nowOrNot(false) });
  const { tools } = await client.result('tools/list');
  assert.equal(Array.isArray(tools) && tools.length, 2);
  for (const method of ['tasks/get', 'tasks/result', 'tasks/cancel']) {
    assert.equal((await client.request(method, { taskId })).answer.kind, 'error', method);
  }
  assert.deepEqual(await client.result('tasks/list'), { tasks: [] });
  assert.equal(memory.requests('tasks/get').length, 1);
});

// P-002
test('out of hours nothing of a prompt is completed', TIMEOUT, async () => {
  const memory = memoryUpstream({
    capabilities: { prompts: {}, completions: {} },
    lists: { prompts: [{ name: 'ask', arguments: [{ name: 'about' }] }] },
    request: (peer, request) => peer.send(result(request, { completion: { values: ['secret'] } })),
  });
  await using gateway = await testCore({ up: { memory } }, { access: nowOrNot(true, ' && args.about == "a"') });
  const client = await gateway.connect({ principal: ADA });
  const params = { ref: { type: 'ref/prompt', name: 'up__ask' }, argument: { name: 'about', value: 's' } };
  assert.equal((await client.request('completion/complete', params)).answer.kind, 'result');
  await gateway.reload({ access: nowOrNot(false, ' && args.about == "a"') });
  assert.equal((await client.request('completion/complete', params)).answer.kind, 'error');
  assert.equal(memory.requests('completion/complete').length, 1);
});

// P-011
test('a request about a task is judged again after it waited for a slot', TIMEOUT, async () => {
  for (const era of ['legacy', 'modern'] as const) {
    const { memory } = coreTaskUpstream();
    await using gateway = await testCore({ up: { memory, concurrency: 1 } }, { access: ALL });
    const capabilities = { extensions: { 'io.modelcontextprotocol/tasks': {} } };
    const options = { principal: ADA, capabilities };
    const client = await gateway.connect({ principal: ADA });
    const ask = async (
      method: string,
      params: object,
    ): Promise<{ readonly isError: boolean; readonly id: unknown }> => {
      if (era === 'modern') {
        const { result: got, error } = await modernRequest(gateway, method, params, options).reply;
        return { isError: error !== undefined, id: got?.['taskId'] };
      }
      const { answer } = await client.request(method, params);
      return answer.kind === 'error'
        ? { isError: true, id: undefined }
        : { isError: false, id: JSON.parse(answer.result).task?.taskId };
    };
    const call = { ...toolCall('up__job'), ...(era === 'legacy' ? { task: { ttl: 60_000 } } : {}) };
    const { id: taskId } = await ask('tools/call', call);
    assert.ok(typeof taskId === 'string');
    const limiter = gateway.core.upstreams.get('up')?.limiter;
    assert.equal(limiter?.acquire('another'), undefined);
    const polls = memory.requests('tasks/get').length;
    const waiting = ask('tasks/get', { taskId });
    await waitUntil(() => limiter?.waitingCount === 1);
    await gateway.reload({ access: only('either') });
    limiter?.release('another');
    assert.equal((await waiting).isError, true, era);
    assert.equal(memory.requests('tasks/get').length, polls, era);
  }
});

// P-011
test('a request about a task that is denied after its wait closes its connection', TIMEOUT, async () => {
  const { memory } = extensionUpstream();
  let onGet = () => Promise.resolve();
  const audit = recordedAfter(async ({ method }) => {
    if (method === 'tasks/get') await onGet();
  });
  await using gateway = await testCore(
    { up: { memory, era: 'modern', idleMs: 3_600_000 } },
    { access: ALL },
    undefined,
    audit,
  );
  const client = new ModernClient(gateway, { extensions: { 'io.modelcontextprotocol/tasks': {} } }, ADA);
  const { taskId } = await client.result('tools/call', toolCall('up__job'));
  const { config } = gateway;
  const upstreams = config.upstreams.map((up) => ({ ...up, isolation: 'call' as const }));
  const called = { ...config, upstreams, reload: { ...config.reload, drainMs: 0 } };
  await (
    await gateway.core.apply(called, diffConfigs(config, called))
  ).drained;
  await client.result('tasks/get', { taskId });
  const before = new Set(memory.open);
  const denying = { ...called, access: only('another') };
  onGet = async () => void (await gateway.core.apply(denying, diffConfigs(called, denying)));
  await client.error('tasks/get', { taskId });
  assert.equal(memory.requests('tasks/get').length, 1);
  await memory.until(() => [...memory.open].every((peer) => before.has(peer)) || undefined);
});

test('the answer to an earlier call is not given if a reload denies it meanwhile', TIMEOUT, async () => {
  const memory = memoryUpstream({ lists: { tools: [{ name: 'get', inputSchema: { type: 'object' } }] } });
  let onCommit = (): Promise<unknown> => Promise.resolve();
  await using gateway = await testCore(
    { up: { memory } },
    { access: ALL },
    undefined,
    recordedAfter(() => onCommit()),
  );
  const client = await gateway.connect({ principal: ADA });
  const keyed = toolCall('up__get', {}, { [META.idempotencyKey]: 'k' });
  await client.result('tools/call', keyed);
  await client.result('tools/call', keyed);
  onCommit = () => gateway.reload({ access: only('another') });
  const { answer } = await client.request('tools/call', keyed);
  assert.equal(answer.kind === 'error' && answer.error.message, 'Unknown tool: up__get');
  assert.equal(memory.requests('tools/call').length, 1);
});

test('a call that was denied after its wait is made with its key once it is allowed', TIMEOUT, async () => {
  const memory = memoryUpstream({ lists: { tools: [{ name: 'get', inputSchema: { type: 'object' } }] } });
  await using gateway = await testCore({ up: { memory, concurrency: 1 } }, { access: ALL });
  const client = await gateway.connect({ principal: ADA });
  await client.result('tools/list');
  const limiter = gateway.core.upstreams.get('up')?.limiter;
  assert.equal(limiter?.acquire('another'), undefined);
  const keyed = toolCall('up__get', {}, { [META.idempotencyKey]: 'k' });
  const waiting = client.request('tools/call', keyed);
  await waitUntil(() => limiter?.waitingCount === 1);
  await gateway.reload({ access: only('another') });
  limiter?.release('another');
  const { answer } = await waiting;
  assert.equal(answer.kind === 'error' && answer.error.message, 'Unknown tool: up__get');
  await gateway.reload({ access: ALL });
  assert.equal((await client.request('tools/call', keyed)).answer.kind, 'result');
  assert.equal(memory.requests('tools/call').length, 1);
});

// P-011
test('a subscription that a reload denies before its upstream answers is refused', TIMEOUT, async () => {
  const held = Promise.withResolvers<void>();
  const memory = memoryUpstream({
    capabilities: { resources: { subscribe: true }, tools: {} },
    lists: { resources: [{ uri: 'test://a', name: 'a' }], tools: [{ name: 'get', inputSchema: { type: 'object' } }] },
    request: (peer, request) => {
      const answer = () => peer.send(result(request, {}));
      if (request.method === 'resources/subscribe') void held.promise.then(answer);
      else answer();
    },
  });
  await using gateway = await testCore({ up: { memory, rawUris: true } }, { access: ALL });
  const client = await gateway.connect({ principal: ADA });
  const asked = client.request('resources/subscribe', { uri: 'test://a' });
  await memory.until(() => memory.requests('resources/subscribe')[0]);
  await gateway.reload({ access: only('get') });
  held.resolve();
  assert.equal((await asked).answer.kind, 'error');
  await memory.until(() => memory.requests('resources/unsubscribe')[0]);
});

// SEC-08
test('a cursor of an earlier list shows nothing that is denied now', TIMEOUT, async () => {
  const tools = Array.from({ length: 1_500 }, (_, i) => ({ name: `t${i}`, inputSchema: { type: 'object' } }));
  const memory = memoryUpstream({ lists: { tools } });
  await using gateway = await testCore({ up: { memory } }, { access: ALL });
  const client = await gateway.connect({ principal: ADA });
  const { nextCursor } = await client.result('tools/list');
  assert.ok(typeof nextCursor === 'string');
  const { tools: second } = await client.result('tools/list', { cursor: nextCursor });
  assert.equal(Array.isArray(second) && second.length, 500);
  await gateway.reload({ access: only('t1') });
  const { answer } = await client.request('tools/list', { cursor: nextCursor });
  assert.equal(answer.kind, 'error');
  const { tools: left } = await client.result('tools/list');
  assert.equal(Array.isArray(left) && left.length, 1);
});

// SEC-10
test('a cursor of another principal with equal lists does not open', TIMEOUT, async () => {
  const tools = Array.from({ length: 1_100 }, (_, i) => ({ name: `t${i}`, inputSchema: { type: 'object' } }));
  const access = accessOf({ all: { upstreams: ['up'] } }, [{ roles: ['all'], anyone: true }]);
  await using gateway = await testCore({ up: { memory: memoryUpstream({ lists: { tools } }) } }, { access });
  const [ada, bob] = [await gateway.connect({ principal: ADA }), await gateway.connect({ principal: keyOf('bob') })];
  const { nextCursor } = await ada.result('tools/list');
  assert.equal((await bob.request('tools/list', { cursor: nextCursor })).answer.kind, 'error');
  assert.equal((await ada.request('tools/list', { cursor: nextCursor })).answer.kind, 'result');
});

// SEC-08
test('the retry of a parked call of a tool that is denied now is refused', TIMEOUT, async () => {
  const memory = askingUpstream();
  await using gateway = await testCore({ up: { memory } }, { access: ALL });
  const options = { principal: ADA, capabilities: { elicitation: { form: {} } } };
  const retry = await parkedAsk(gateway, options);
  await gateway.reload({ access: only('other') });
  const { error } = await modernRequest(gateway, 'tools/call', retry, options).reply;
  assert.match(error?.message ?? '', /Unknown tool/);
  assert.equal(memory.peers.flatMap(({ received }) => received).filter(({ kind }) => kind === 'result').length, 0);
});

// SEC-08 P-011
test('the retry of a parked call is refused if a reload denies its tool meanwhile', TIMEOUT, async () => {
  const memory = askingUpstream();
  let onCommit = (): Promise<unknown> => Promise.resolve();
  await using gateway = await testCore(
    { up: { memory } },
    { access: ALL },
    undefined,
    recordedAfter(() => onCommit()),
  );
  const options = { principal: ADA, capabilities: { elicitation: { form: {} } } };
  const retry = await parkedAsk(gateway, options);
  onCommit = () => gateway.reload({ access: only('other') });
  const { error } = await modernRequest(gateway, 'tools/call', retry, options).reply;
  assert.match(error?.message ?? '', /Unknown tool/);
  assert.equal(memory.peers.flatMap(({ received }) => received).filter(({ kind }) => kind === 'result').length, 0);
});

// SEC-07
test('a list is never answered from the view of another principal', TIMEOUT, async () => {
  const names = ['a', 'b', 'c', 'd', 'e'];
  const tools = names.map((name) => ({ name, inputSchema: { type: 'object' } }));
  const access = accessOf(
    Object.fromEntries(names.map((name) => [name, { upstreams: ['up'], tools: [name] }])),
    names.map((name) => ({ roles: [name], keys: [name] })),
  );
  await using gateway = await testCore({ up: { memory: memoryUpstream({ lists: { tools } }) } }, { access });
  const clients = await Promise.all(names.map((name) => gateway.connect({ principal: keyOf(name) })));
  const rounds = Array.from({ length: 20 }, () => names.entries().toArray()).flat();
  await Promise.all(
    rounds.map(async ([at, name]) => {
      const own = await clients[at]?.result('tools/list');
      const shared = await modernRequest(gateway, 'tools/list', {}, { principal: keyOf(name) }).reply;
      for (const { tools: listed } of [own, shared.result].map((one) => ({ tools: one?.['tools'] }))) {
        assert.deepEqual(Array.isArray(listed) && listed.map((tool: { name: string }) => tool.name), [`up__${name}`]);
      }
    }),
  );
});

// SEC-08
test('a reload closes the connection to an upstream that it hides from a client', TIMEOUT, async () => {
  const tools = ['get', 'waits'].map((name) => ({ name, inputSchema: { type: 'object' } }));
  const memory = memoryUpstream({
    lists: { tools },
    request: (peer, request) => {
      if (request.params?.string('name') === 'get') peer.send(result(request, { content: [] }));
    },
  });
  await using gateway = await testCore({ up: { memory } }, { access: ALL });
  const [idle, busy] = [await gateway.connect({ principal: ADA }), await gateway.connect({ principal: ADA })];
  for (const client of [idle, busy]) await client.result('tools/call', toolCall('up__get'));
  const waiting = busy.request('tools/call', toolCall('up__waits'));
  const call = await memory.until(() =>
    memory.requests('tools/call').find(({ params }) => params?.string('name') === 'waits'),
  );
  const peerOf = [...memory.open].find(({ received }) => received.includes(call));
  assert.equal(memory.open.size, 2);
  await gateway.reload({ access: accessOf({}, []) });
  await memory.until(() => (memory.open.size === 1 ? true : undefined));
  peerOf?.send(result(call, { content: [] }));
  assert.equal((await waiting).answer.kind, 'result', 'a call in flight finishes');
});
