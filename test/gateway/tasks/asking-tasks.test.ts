import assert from 'node:assert/strict';
import { test } from 'node:test';
import { toolCall, testCore } from '../../support/core.ts';
import { memoryUpstream, type MemoryUpstream, result } from '../../support/memory-upstream.ts';
import { ModernClient } from '../../support/modern-client.ts';
import { coreTaskUpstream } from '../../support/task-upstreams.ts';

const TIMEOUT = { timeout: 120_000 };
const KNOWS = { extensions: { 'io.modelcontextprotocol/tasks': {} } };
const TIMES = { createdAt: '2026-01-01T00:00:00Z', lastUpdatedAt: '2026-01-01T00:00:00Z' };
const PAGE = { method: 'elicitation/create', params: { mode: 'url', message: 'Log in', url: 'https://bad.example/' } };
const FORM = { method: 'elicitation/create', params: { message: 'Sure?', requestedSchema: { type: 'object' } } };
const ASKS = { resultType: 'input_required', requestState: 'raw', inputRequests: { q: PAGE } };
const ODD = { resultType: 'com.example/odd', content: [] };

/** A modern server whose tool `job` creates a task. @param answers the members of its answers, by method. */
function asking(answers: Readonly<Record<string, object>>): MemoryUpstream {
  const state = { taskId: 'inner', status: 'working', ...TIMES, ttlMs: null, pollIntervalMs: 10 };
  const capabilities = { tools: {}, ...KNOWS };
  const own: Readonly<Record<string, object>> = {
    'server/discover': { supportedVersions: ['2026-07-28'], capabilities, ttlMs: 0, cacheScope: 'private' },
    'tools/call': { resultType: 'task', ...state },
    'tasks/get': state,
  };
  return memoryUpstream({
    isRaw: true,
    lists: { tools: [{ name: 'job', inputSchema: { type: 'object' } }] },
    request: (peer, request) => {
      const { method } = request;
      peer.send(result(request, { resultType: 'complete', ...own[method], ...answers[method] }));
    },
  });
}

//
for (const answer of [ASKS, ODD]) {
  const type = answer.resultType;
  test(`an answer of type ${type} to a request about a task fails it`, TIMEOUT, async () => {
    const memory = asking({ 'tasks/update': answer, 'tasks/cancel': answer });
    await using gateway = await testCore({ up: { memory, era: 'modern', clientFeatures: [] } });
    const client = new ModernClient(gateway, { ...KNOWS, elicitation: { url: {} } });
    const { taskId } = await client.result('tools/call', toolCall('up__job'));
    for (const method of ['tasks/update', 'tasks/cancel']) {
      const { data } = await client.error(method, { taskId, inputResponses: {} });
      assert.equal(Object(data).code, 'upstream-protocol', method);
    }
  });

  // M-029
  test(`a task whose result is of type ${type} has failed`, TIMEOUT, async () => {
    const memory = asking({ 'tasks/get': { status: 'completed', result: answer } });
    await using gateway = await testCore({ up: { memory, era: 'modern', clientFeatures: [] } });
    const client = new ModernClient(gateway, { ...KNOWS, elicitation: { url: {} } });
    const { taskId } = await client.result('tools/call', toolCall('up__job'));
    const state = await client.result('tasks/get', { taskId });
    assert.deepEqual([state['status'], state['result']], ['failed', undefined]);
    assert.equal(Object(state['error']).data.code, 'upstream-protocol');
  });

  test(`a call whose task ends with a result of type ${type} fails`, TIMEOUT, async () => {
    const memory = asking({ 'tasks/get': { status: 'completed', result: answer } });
    await using gateway = await testCore({
      up: { memory, era: 'modern', isolation: 'call', clientFeatures: [] },
    });
    const client = new ModernClient(gateway, { ...KNOWS, elicitation: { url: {} } });
    const { data } = await client.error('tools/call', toolCall('up__job'));
    assert.equal(Object(data).code, 'upstream-protocol');
  });
}

//
test('the answer that creates a task asks nothing: its state does', TIMEOUT, async () => {
  const asks = { status: 'input_required', inputRequests: { q: FORM }, requestState: 'raw' };
  const memory = asking({ 'tools/call': asks, 'tasks/get': asks });
  await using gateway = await testCore({ up: { memory, era: 'modern' } });
  const client = new ModernClient(gateway, { ...KNOWS, elicitation: {} });
  const created = await client.result('tools/call', toolCall('up__job'));
  assert.deepEqual([created['status'], created['inputRequests']], ['input_required', undefined]);
  assert.equal(created['requestState'], undefined);
  const { taskId } = created;
  assert.deepEqual(Object.keys(Object((await client.result('tasks/get', { taskId }))['inputRequests'])), ['q']);
});

//
test('a modern task asks a client only what its request declares', TIMEOUT, async () => {
  let question: object = PAGE;
  const asks = {
    status: 'input_required',
    get inputRequests() {
      return { q: question };
    },
  };
  await using gateway = await testCore({ up: { memory: asking({ 'tasks/get': asks }), era: 'modern' } });
  const client = new ModernClient(gateway, KNOWS);
  const { taskId } = await client.result('tools/call', toolCall('up__job'));
  const refused = await client.error('tasks/get', { taskId });
  assert.deepEqual([refused.code, Object(refused.data).requiredCapabilities], [-32_021, { elicitation: { url: {} } }]);
  question = { method: 'foo/bar' };
  assert.equal(Object((await client.error('tasks/get', { taskId })).data).code, 'upstream-protocol');
});

//
test('a legacy task asks a client only what its request declares', TIMEOUT, async () => {
  const { memory } = coreTaskUpstream((task, peer) => {
    const _meta = { 'io.modelcontextprotocol/related-task': { taskId: task.id } };
    task.status = 'input_required';
    const asked = { jsonrpc: '2.0', id: 'q', method: FORM.method, params: { ...FORM.params, _meta } };
    peer.send(JSON.stringify(asked));
  });
  await using gateway = await testCore({ up: { memory } });
  const client = new ModernClient(gateway, { ...KNOWS, elicitation: {} });
  const { taskId } = await client.result('tools/call', toolCall('up__job'));
  const refused = await new ModernClient(gateway, KNOWS).error('tasks/get', { taskId });
  assert.deepEqual([refused.code, Object(refused.data).requiredCapabilities], [-32_021, { elicitation: { form: {} } }]);
  const state = await client.result('tasks/get', { taskId });
  assert.deepEqual([state['status'], Object.keys(Object(state['inputRequests']))], ['input_required', ['user_input']]);
});

test('members of a legacy state ask a modern client nothing', TIMEOUT, async () => {
  const state = { taskId: 'inner', status: 'working', ...TIMES, ttl: 60_000, ...ASKS, result: ASKS };
  const memory = memoryUpstream({
    capabilities: { tools: {}, tasks: { requests: { tools: { call: {} } } } },
    lists: { tools: [{ name: 'job', inputSchema: { type: 'object' }, execution: { taskSupport: 'required' } }] },
    request: (peer, request) => {
      const isCall = request.method === 'tools/call';
      peer.send(result(request, isCall ? { task: state } : { ...state, status: 'cancelled' }));
    },
  });
  await using gateway = await testCore({ up: { memory } });
  const client = new ModernClient(gateway, KNOWS);
  const created = await client.result('tools/call', toolCall('up__job'));
  const ended = await client.result('tasks/get', { taskId: created['taskId'] });
  assert.deepEqual([created['status'], ended['status']], ['working', 'cancelled']);
  for (const told of [created, ended]) {
    assert.deepEqual([told['inputRequests'], told['requestState'], told['result']], [undefined, undefined, undefined]);
  }
});
