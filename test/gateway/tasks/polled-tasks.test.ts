import assert from 'node:assert/strict';
import { test } from 'node:test';
import type { Request } from '../../../src/protocol/jsonrpc.ts';
import { testCore, toolCall } from '../../support/core.ts';
import { memoryUpstream, type Peer, result } from '../../support/memory-upstream.ts';
import { ModernClient } from '../../support/modern-client.ts';

const TIMEOUT = { timeout: 120_000 };
const KNOWS = { extensions: { 'io.modelcontextprotocol/tasks': {} } };
const TIMES = { createdAt: '2026-01-01T00:00:00Z', lastUpdatedAt: '2026-01-01T00:00:00Z' };
const DONE = { content: [{ type: 'text', text: 'done' }] };

/** A server of 2025-11-25 whose tool `job` creates a task that has ended. The test answers the requests about it. */
function endedTask(status: 'completed' | 'failed') {
  const state = { taskId: 'inner', status, ...TIMES, ttl: 60_000 };
  let isEager = false;
  const held = new Map<string, (() => void)[]>([
    ['tasks/get', []],
    ['tasks/result', []],
  ]);
  const answerOf = (peer: Peer, request: Request) => {
    const { id, method } = request;
    if (method === 'tools/call') return peer.send(result(request, { task: { ...state, status: 'working' } }));
    if (method === 'tasks/get') return peer.send(result(request, state));
    if (status === 'completed') return peer.send(result(request, DONE));
    return peer.send(`{"jsonrpc":"2.0","id":${id},"error":{"code":-32602,"message":"failed"}}`);
  };
  const memory = memoryUpstream({
    capabilities: { tools: {}, tasks: { requests: { tools: { call: {} } } } },
    lists: { tools: [{ name: 'job', inputSchema: { type: 'object' }, execution: { taskSupport: 'required' } }] },
    request: (peer, request) => {
      const holding = isEager ? undefined : held.get(request.method);
      if (holding === undefined) answerOf(peer, request);
      else holding.push(() => answerOf(peer, request));
    },
  });
  /** Answers the oldest request of a method that has none, which may still have to come. */
  const answer = async (method: 'tasks/get' | 'tasks/result') => {
    const oldest = await memory.until(() => held.get(method)?.shift());
    oldest();
  };
  /** Answers each further request at once. */
  const setEager = () => void (isEager = true);
  return { memory, answer, setEager };
}

for (const status of ['completed', 'failed'] as const) {
  test(`two polls of a ${status} task get its outcome, also one after the other`, TIMEOUT, async () => {
    const { memory, answer } = endedTask(status);
    await using gateway = await testCore({ up: { memory } });
    const client = new ModernClient(gateway, KNOWS);
    const { taskId } = await client.result('tools/call', toolCall('up__job'));
    const [first, second] = [client.result('tasks/get', { taskId }), client.result('tasks/get', { taskId })];
    await memory.until(() => memory.requests('tasks/get')[1]);
    await answer('tasks/get');
    await answer('tasks/result');
    assert.equal((await first)['status'], status);
    await answer('tasks/get');
    // Its answer may be the same request's.
    if (status === 'failed') await answer('tasks/result');
    assert.equal((await second)['status'], status);
  });
}

for (const order of [
  ['tasks/result', 'tasks/get'],
  ['tasks/get', 'tasks/result'],
] as const) {
  test(`two polls of a failed task get its outcome, if ${order.join(' comes just before ')}`, TIMEOUT, async () => {
    const { memory, answer, setEager } = endedTask('failed');
    await using gateway = await testCore({ up: { memory } });
    const client = new ModernClient(gateway, KNOWS);
    const { taskId } = await client.result('tools/call', toolCall('up__job'));
    const polls = [client.result('tasks/get', { taskId }), client.result('tasks/get', { taskId })];
    await memory.until(() => memory.requests('tasks/get')[1]);
    await answer('tasks/get');
    await memory.until(() => memory.requests('tasks/result')[0]);
    for (const method of order) void answer(method);
    setEager();
    for (const poll of polls) assert.equal((await poll)['status'], 'failed');
  });
}

test('the late poll of a task that has ended cancels no later poll', TIMEOUT, async () => {
  const { memory, answer } = endedTask('completed');
  await using gateway = await testCore({ up: { memory } });
  const client = new ModernClient(gateway, KNOWS);
  const { taskId } = await client.result('tools/call', toolCall('up__job'));
  const [first, late] = [client.result('tasks/get', { taskId }), client.result('tasks/get', { taskId })];
  await memory.until(() => memory.requests('tasks/get')[1]);
  await answer('tasks/get');
  await answer('tasks/result');
  await first;
  const again = client.result('tasks/get', { taskId });
  await memory.until(() => memory.requests('tasks/get')[2]);
  await answer('tasks/get');
  await answer('tasks/get');
  await answer('tasks/result');
  for (const state of [await late, await again]) assert.equal(state['status'], 'completed');
});
