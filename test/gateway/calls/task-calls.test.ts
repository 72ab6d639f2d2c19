import assert from 'node:assert/strict';
import { test } from 'node:test';
import type { Request } from '../../../src/protocol/jsonrpc.ts';
import { testCore, toolCall } from '../../support/core.ts';
import { memoryUpstream, result } from '../../support/memory-upstream.ts';
import { inputRequiredIn, modernRequest } from '../../support/modern-client.ts';

const TIMEOUT = { timeout: 120_000 };
const EXTENSIONS = { extensions: { 'io.modelcontextprotocol/tasks': {} } };
const ELICITATION = { elicitation: { form: {} } };
const QUESTION = { message: 'Sure?', requestedSchema: { type: 'object', properties: {} } };

/** A server of 2025-11-25 that asks a question before it makes a task of a call. The task ends at its first `tasks/get`. */
function askingFirst() {
  const state = (status: string) => ({ taskId: 't', status, createdAt: '', lastUpdatedAt: '', ttl: 60_000 });
  let call: Request | undefined;
  return memoryUpstream({
    capabilities: { tools: {}, tasks: { cancel: {}, requests: { tools: { call: {} } } } },
    lists: { tools: [{ name: 'job', inputSchema: { type: 'object' }, execution: { taskSupport: 'required' } }] },
    request: (peer, request) => {
      if (request.method === 'tasks/get') return peer.send(result(request, state('completed')));
      if (request.method !== 'tools/call') return peer.send(result(request, { content: [] }));
      call = request;
      const params = JSON.stringify(QUESTION);
      peer.send(`{"jsonrpc":"2.0","id":"q","method":"elicitation/create","params":${params}}`);
    },
    response: (peer) => {
      if (call !== undefined) peer.send(result(call, { task: { ...state('working'), pollInterval: 10 } }));
    },
  });
}

test('the task of a call that fails by its question is cancelled, and kept by nothing', TIMEOUT, async () => {
  const memory = askingFirst();
  await using gateway = await testCore({ up: { memory } });
  const called = modernRequest(gateway, 'tools/call', toolCall('up__job'), { capabilities: EXTENSIONS });
  assert.equal((await called.reply).error?.code, -32021);
  const cancelled = await memory.until(() => memory.requests('tasks/cancel')[0]);
  assert.equal(cancelled.params?.string('taskId'), 't');
  const links = [...(gateway.core.upstreams.get('up')?.links() ?? [])];
  assert.deepEqual(
    links.map(({ tasks }) => tasks.size).filter((size) => size > 0),
    [],
  );
});

//
test('a retry that declares no tasks gets the outcome of the task', TIMEOUT, async () => {
  const memory = askingFirst();
  await using gateway = await testCore({ up: { memory } });
  const capabilities = { ...EXTENSIONS, ...ELICITATION };
  const asked = inputRequiredIn(
    await modernRequest(gateway, 'tools/call', toolCall('up__job'), { capabilities }).reply,
  );
  const answers = Object.keys(asked.inputRequests).map((key) => [key, { action: 'accept', content: {} }]);
  const { requestState } = asked;
  const retry = { ...toolCall('up__job'), inputResponses: Object.fromEntries(answers), requestState };
  const { reply } = modernRequest(gateway, 'tools/call', retry, { capabilities: ELICITATION });
  const { resultType, content } = (await reply).result ?? {};
  assert.deepEqual([resultType, content], ['complete', []]);
});
