import assert from 'node:assert/strict';
import { test } from 'node:test';
import { testCore, toolCall } from '../support/core.ts';
import { legacyUpstream, modernUpstream } from '../support/http-upstream.ts';
import { memoryUpstream, result } from '../support/memory-upstream.ts';
import { ModernClient, modernRequest } from '../support/modern-client.ts';

const TIMEOUT = { timeout: 120_000 };

for (const [era, start] of [
  ['legacy', legacyUpstream],
  ['modern', modernUpstream],
] as const) {
  // M-018
  test(`clients get at most 100 completion values of a ${era} upstream`, TIMEOUT, async () => {
    const values = Array.from({ length: 150 }, (_, i) => `v${i}`);
    await using up = await start({
      capabilities: { prompts: {}, completions: {} },
      prompts: [{ name: 'p' }],
      answers: { 'completion/complete': () => ({ completion: { values } }) },
    });
    await using gateway = await testCore({ up: up.config });
    const params = { ref: { type: 'ref/prompt', name: 'up__p' }, argument: { name: 'a', value: '' } };
    for (const client of [await gateway.connect(), new ModernClient(gateway)]) {
      const { completion } = await client.result('completion/complete', params);
      assert.deepEqual(completion, { values: values.slice(0, 100), total: 150, hasMore: true });
    }
  });
}

const TOOL = { name: 'echo', inputSchema: { type: 'object' } };

test('questions with equal keys are a fault of their upstream: the call may have run', TIMEOUT, async () => {
  const asks = '{"a":{"method":"roots/list"},"a":{"method":"roots/list"}}';
  await using up = await modernUpstream({
    tools: [TOOL],
    answers: {
      'tools/call': ({ id, response }) => {
        const text = `{"jsonrpc":"2.0","id":${JSON.stringify(id)},"result":{"resultType":"input_required","inputRequests":${asks}}}`;
        response.writeHead(200, { 'content-type': 'application/json' }).end(text);
        return undefined;
      },
    },
  });
  await using gateway = await testCore({ up: up.config });
  const capabilities = { roots: {} };
  const client = await gateway.connect({ capabilities });
  const { answer } = await client.request('tools/call', toolCall('up__echo'));
  const modern = await modernRequest(gateway, 'tools/call', toolCall('up__echo'), { capabilities }).reply;
  for (const error of [answer.kind === 'error' ? answer.error : undefined, modern.error]) {
    assert.partialDeepStrictEqual(error, { code: -31012, data: { code: 'upstream-protocol', executed: 'unknown' } });
  }
});

test('a state of a task that cannot be read is a fault of its upstream', TIMEOUT, async () => {
  const state = { taskId: 't', status: 'working', createdAt: '2026-01-01T00:00:00Z', ttl: null };
  const memory = memoryUpstream({
    capabilities: { tools: {}, tasks: { requests: { tools: { call: {} } } } },
    lists: { tools: [{ ...TOOL, execution: { taskSupport: 'required' } }] },
    request: (peer, request) => {
      if (request.method === 'tools/call') peer.send(result(request, { task: state }));
      else peer.send(result(request, state).replace('"status"', '"status":"failed","status"'));
    },
  });
  await using gateway = await testCore({ up: { memory } });
  const capabilities = { extensions: { 'io.modelcontextprotocol/tasks': {} } };
  const client = new ModernClient(gateway, capabilities);
  const { taskId } = await client.result('tools/call', toolCall('up__echo'));
  const { error } = await modernRequest(gateway, 'tasks/get', { taskId }, { capabilities }).reply;
  assert.partialDeepStrictEqual(error, { code: -31012, data: { code: 'upstream-protocol', upstream: 'up' } });
});
