import assert from 'node:assert/strict';
import { test } from 'node:test';
import { testCore, toolCall } from '../support/core.ts';
import { memoryUpstream, result } from '../support/memory-upstream.ts';
import { extensionUpstream } from '../support/task-upstreams.ts';

const TIMEOUT = { timeout: 120_000 };
const DRAIN_MS = 60_000;
const TOOLS = { tools: [{ name: 'wait', inputSchema: { type: 'object' } }] };

/** An upstream whose calls wait until they are released. */
function waiting() {
  const { promise: released, resolve: release } = Promise.withResolvers<undefined>();
  const memory = memoryUpstream({
    lists: TOOLS,
    request: (peer, request) => void released.then(() => peer.send(result(request, { content: [] }))),
  });
  return { memory, release: () => release(undefined) };
}

test('a removed upstream finishes its calls, takes no new ones, and closes connections', TIMEOUT, async () => {
  const { memory, release } = waiting();
  await using gateway = await testCore({ up: { memory } });
  const client = await gateway.connect();
  const call = client.result('tools/call', toolCall('up__wait'));
  await memory.until(() => memory.requests('tools/call')[0]);
  const removed = gateway.core.upstreams.remove('up', DRAIN_MS);
  assert.equal(gateway.core.upstreams.has('up'), false);
  await assert.rejects(client.result('tools/call', toolCall('up__wait')));
  assert.equal(memory.open.size > 0, true, 'the call under way keeps its connection');
  release();
  assert.deepEqual((await call)['content'], []);
  await removed;
  assert.equal(memory.open.size, 0);
});

test('a removed upstream is stopped if its calls do not end in time', TIMEOUT, async () => {
  const { memory } = waiting();
  await using gateway = await testCore({ up: { memory } });
  const client = await gateway.connect();
  const call = client.result('tools/call', toolCall('up__wait'));
  const failed = assert.rejects(call);
  await memory.until(() => memory.requests('tools/call')[0]);
  await gateway.core.upstreams.remove('up', 1);
  assert.equal(memory.open.size, 0);
  await failed;
});

test('an upstream is replaced while a call is in flight at the old one', TIMEOUT, async () => {
  const [before, after] = [waiting(), waiting()];
  await using gateway = await testCore({ up: { memory: before.memory } });
  await using other = await testCore({ up: { memory: after.memory } });
  const client = await gateway.connect();
  const call = client.result('tools/call', toolCall('up__wait'));
  await before.memory.until(() => before.memory.requests('tools/call')[0]);
  const upstream = other.core.upstreams.get('up');
  assert.ok(upstream !== undefined);
  const replaced = gateway.core.upstreams.replace(upstream, DRAIN_MS);
  assert.equal(gateway.core.upstreams.get('up'), upstream);
  before.release();
  await call;
  await replaced;
  assert.equal(before.memory.open.size, 0);
});

test('a removed upstream waits for a task of a client that does not poll', TIMEOUT, async () => {
  const ask = { method: 'elicitation/create', params: { message: 'Sure?', requestedSchema: { type: 'object' } } };
  const { memory, tasks } = extensionUpstream((task) =>
    Object.assign(task, { status: 'input_required', inputRequests: { k: ask } }),
  );
  await using gateway = await testCore({ up: { memory, era: 'modern' } });
  const client = await gateway.connect({ capabilities: { elicitation: {} } });
  const { promise: asked, resolve: onAsked } = Promise.withResolvers<string>();
  const call = client.request('tools/call', toolCall('up__job'), {
    onMessage: (message) => message.kind === 'request' && onAsked(message.id),
  });
  const id = await asked;
  const upstream = gateway.core.upstreams.get('up');
  assert.equal(await upstream?.drain(1), 1, 'the connection of the call, on which nothing is in flight');
  const removed = gateway.core.upstreams.remove('up', DRAIN_MS);
  client.answer(id, { action: 'accept', content: {} });
  await memory.until(() => memory.requests('tasks/update')[0]);
  Object.assign(tasks[0] ?? {}, { status: 'completed', result: { content: [] } });
  assert.deepEqual((await call).answer, { kind: 'result', result: '{"content":[]}' });
  assert.equal(await removed, 0);
});

test('a set has at most one upstream with each id', TIMEOUT, async () => {
  const { memory } = waiting();
  await using gateway = await testCore({ up: { memory } });
  const { upstreams } = gateway.core;
  const upstream = upstreams.get('up');
  assert.ok(upstream !== undefined);
  assert.throws(() => upstreams.add(upstream), /"up" exists already/);
  await assert.rejects(upstreams.remove('none', 0), /there is no upstream "none"/);
});
