import assert from 'node:assert/strict';
import { test } from 'node:test';
import type { Config, UpstreamConfig } from '../../src/config/config.ts';
import { diffConfigs } from '../../src/config/diff.ts';
import { type TestCore, testCore, toolCall, UPSTREAM } from '../support/core.ts';
import { memoryUpstream, result } from '../support/memory-upstream.ts';
import { waitUntil } from '../support/wait-until.ts';

const TIMEOUT = { timeout: 20_000 };
const TOOLS = { tools: [{ name: 'wait', inputSchema: { type: 'object' } }] };
const DONE = { content: [] };

/** An upstream whose calls wait until they are released. */
function waiting() {
  const { promise: released, resolve: release } = Promise.withResolvers<undefined>();
  const memory = memoryUpstream({
    capabilities: { tools: {}, logging: {} },
    lists: TOOLS,
    request: (peer, request) => {
      if (request.method === 'tools/call') void released.then(() => peer.say(result(request, DONE)));
      else peer.say(result(request, {}));
    },
  });
  return { memory, release: () => release(undefined) };
}

function upstream(id: string, own: Partial<UpstreamConfig> = {}): UpstreamConfig {
  return { ...UPSTREAM, id, title: id, prefix: `${id}__`, ...own };
}

/** Applies a change of the running config. Returns the new config and the end of the drain. */
async function change({ core }: TestCore, running: Config, changed: Partial<Config>) {
  const config = { ...running, ...changed };
  return { config, ...(await core.apply(config, diffConfigs(running, config))) };
}

async function toolsOf(client: Awaited<ReturnType<TestCore['connect']>>): Promise<readonly string[]> {
  const { tools } = await client.result('tools/list');
  assert.ok(Array.isArray(tools));
  return tools.map(({ name }: { name: string }) => name);
}

const CHANGED = 'notifications/tools/list_changed';

test('an added upstream is announced and can be called', TIMEOUT, async () => {
  const [a, b] = [waiting(), waiting()];
  await using gateway = await testCore(
    { a: { memory: a.memory }, b: { memory: b.memory } },
    { upstreams: [upstream('a')] },
  );
  const client = await gateway.connect();
  assert.deepEqual(await toolsOf(client), ['a__wait']);
  await change(gateway, gateway.config, { upstreams: [upstream('a'), upstream('b', { start: 'eager' })] });
  await client.heard(CHANGED);
  assert.deepEqual(await toolsOf(client), ['a__wait', 'b__wait']);
  b.release();
  assert.deepEqual(await client.result('tools/call', toolCall('b__wait')), DONE);
  const own = await gateway.connect({ view: 'b' });
  assert.deepEqual(await toolsOf(own), ['wait']);
});

test('a removed upstream finishes its calls, and users of the others notice the list only', TIMEOUT, async () => {
  const [a, b] = [waiting(), waiting()];
  await using gateway = await testCore({ a: { memory: a.memory }, b: { memory: b.memory } });
  const client = await gateway.connect();
  await toolsOf(client);
  const calls = ['a__wait', 'b__wait'].map((name) => client.result('tools/call', toolCall(name)));
  await b.memory.until(() => b.memory.requests('tools/call')[0]);
  await a.memory.until(() => a.memory.requests('tools/call')[0]);
  const [kept] = a.memory.open;
  const { drained } = await change(gateway, gateway.config, { upstreams: [upstream('a')] });
  await client.heard(CHANGED);
  assert.deepEqual(await toolsOf(client), ['a__wait']);
  await assert.rejects(client.result('tools/call', toolCall('b__wait')), /b__wait/);
  b.release();
  assert.deepEqual(await calls[1], DONE);
  await drained;
  assert.equal(b.memory.open.size, 0);
  a.release();
  assert.deepEqual(await calls[0], DONE);
  assert.deepEqual([[...a.memory.open], a.memory.starts], [[kept], 1]);
});

test('a call at a removed upstream fails with words when the drain deadline has passed', TIMEOUT, async () => {
  const a = waiting();
  await using gateway = await testCore({ a: { memory: a.memory } });
  const client = await gateway.connect();
  await toolsOf(client);
  const call = client.result('tools/call', toolCall('a__wait'));
  const failed = assert.rejects(call, /upstream/);
  await a.memory.until(() => a.memory.requests('tools/call')[0]);
  const { drained } = await change(gateway, gateway.config, { upstreams: [], reload: { watch: true, drainMs: 20 } });
  await drained;
  await failed;
  assert.equal(a.memory.open.size, 0);
});

test('a replaced upstream finishes its calls, and new calls go to the other', TIMEOUT, async () => {
  const a = waiting();
  await using gateway = await testCore({ a: { memory: a.memory } });
  const client = await gateway.connect();
  await toolsOf(client);
  const before = client.result('tools/call', toolCall('a__wait'));
  await a.memory.until(() => a.memory.requests('tools/call')[0]);
  const [old] = a.memory.open;
  const target = { kind: 'stdio', command: 'memory', args: [], env: { A: 'b' }, cwd: undefined } as const;
  const { drained } = await change(gateway, gateway.config, { upstreams: [upstream('a', { target })] });
  const after = client.result('tools/call', toolCall('a__wait'));
  await a.memory.until(() => a.memory.requests('tools/call')[1]);
  assert.ok(old !== undefined && a.memory.open.has(old), 'the call in flight keeps its connection');
  assert.equal(old.heard.filter((message) => 'method' in message && message.method === 'tools/call').length, 1);
  a.release();
  assert.deepEqual([await before, (await after)['content']], [DONE, []]);
  await drained;
  assert.equal(a.memory.open.has(old), false);
  assert.equal(a.memory.open.size > 0, true, 'the connection of the client to the new upstream stays');
  assert.deepEqual((await client.result('tools/call', toolCall('a__wait')))['content'], []);
});

test('a client is told that a replaced upstream has lost the state kept for it', TIMEOUT, async () => {
  const a = waiting();
  a.release();
  await using gateway = await testCore({ a: { memory: a.memory } });
  const client = await gateway.connect();
  await client.result('tools/call', toolCall('a__wait'));
  await change(gateway, gateway.config, { upstreams: [upstream('a', { isolation: 'principal' })] });
  const { _meta: meta } = await client.result('tools/call', toolCall('a__wait'));
  assert.partialDeepStrictEqual(meta, { 'io.linkspan/stateLost': { upstream: 'a', reason: 'replaced' } });
});

test('a changed prefix renames tools while the connection stays', TIMEOUT, async () => {
  const a = waiting();
  a.release();
  await using gateway = await testCore({ a: { memory: a.memory } });
  const client = await gateway.connect();
  await client.result('tools/call', toolCall('a__wait'));
  await change(gateway, gateway.config, { upstreams: [upstream('a', { prefix: 'x_' })] });
  await client.heard(CHANGED);
  assert.deepEqual(await toolsOf(client), ['x_wait']);
  assert.deepEqual(await client.result('tools/call', toolCall('x_wait')), DONE);
  assert.equal(a.memory.starts, 1);
});

test('the session of a removed endpoint is told so, finishes its call, and ends', TIMEOUT, async () => {
  const a = waiting();
  await using gateway = await testCore(
    { a: { memory: a.memory } },
    { profiles: [{ id: 'p', upstreams: ['a'], includeTools: undefined, excludeTools: [], renames: {} }] },
  );
  const [client, other] = [await gateway.connect({ view: 'p' }), await gateway.connect()];
  await toolsOf(client);
  const call = client.result('tools/call', toolCall('a__wait'));
  await a.memory.until(() => a.memory.requests('tools/call')[0]);
  const { drained } = await change(gateway, gateway.config, { profiles: [] });
  assert.equal(gateway.core.gateway.hasView('p'), false);
  const told = await client.heard('notifications/message');
  assert.match(String('params' in told ? told.params : ''), /\/mcp\/p was removed/);
  a.release();
  assert.deepEqual(await call, DONE);
  await drained;
  assert.equal(client.session.closed.aborted, true);
  assert.equal(other.session.closed.aborted, false);
});

test('a limit that is changed holds for the next request', TIMEOUT, async () => {
  const a = waiting();
  await using gateway = await testCore({ a: { memory: a.memory } });
  const client = await gateway.connect();
  await toolsOf(client);
  const first = client.result('tools/call', toolCall('a__wait'));
  await a.memory.until(() => a.memory.requests('tools/call')[0]);
  const { limits } = gateway.config;
  const { config } = await change(gateway, gateway.config, { limits: { ...limits, inFlightPerSession: 1 } });
  await assert.rejects(client.result('ping'), /1 requests in flight/);
  await change(gateway, config, { limits });
  assert.deepEqual(await client.result('ping'), {});
  a.release();
  await first;
});

test('an upstream that comes back is used again', TIMEOUT, async () => {
  const a = waiting();
  a.release();
  await using gateway = await testCore({ a: { memory: a.memory } });
  const client = await gateway.connect();
  let { config } = gateway;
  for (let round = 0; round < 5; round++) {
    const removed = await change(gateway, config, { upstreams: [] });
    await removed.drained;
    assert.equal(a.memory.open.size, 0);
    ({ config } = await change(gateway, removed.config, { upstreams: [upstream('a')] }));
    await waitUntil(async () => (await toolsOf(client)).length === 1);
    assert.deepEqual((await client.result('tools/call', toolCall('a__wait')))['content'], []);
  }
});
