import assert from 'node:assert/strict';
import { test } from 'node:test';
import type { Config } from '../../../src/config/values/config.ts';
import type { UpstreamConfig } from '../../../src/config/values/upstream-config.ts';
import { diffConfigs } from '../../../src/config/changes/diff.ts';
import { Session } from '../../../src/gateway/clients/session.ts';
import type { StartTransport } from '../../../src/upstream/rpc/transport.ts';
import { type TestCore, testCore, toolCall, UPSTREAM } from '../../support/core.ts';
import { JoinedProcesses } from '../../support/joined-processes.ts';
import { memoryUpstream, result } from '../../support/memory-upstream.ts';
import { modernRequest } from '../../support/modern-client.ts';
import { waitUntil } from '../../support/wait-until.ts';

const TIMEOUT = { timeout: 120_000 };
const TOOLS = { tools: [{ name: 'wait', inputSchema: { type: 'object' } }] };
const DONE = { content: [] };

/** An upstream whose calls wait until they are released. */
function waiting() {
  const { promise: released, resolve: release } = Promise.withResolvers<undefined>();
  const memory = memoryUpstream({
    capabilities: { tools: {}, logging: {} },
    lists: TOOLS,
    request: (peer, request) => {
      if (request.method === 'tools/call') void released.then(() => peer.send(result(request, DONE)));
      else peer.send(result(request, {}));
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

/** The profile `p` with these upstreams. */
function profile(...upstreams: string[]) {
  return { profiles: [{ id: 'p', upstreams, includeTools: undefined, excludeTools: [], renames: {} }] };
}

async function toolsOf(client: Awaited<ReturnType<TestCore['connect']>>): Promise<readonly string[]> {
  const { tools } = await client.result('tools/list');
  assert.ok(Array.isArray(tools));
  return tools.map(({ name }: { name: string }) => name);
}

const CHANGED = 'notifications/tools/list_changed';

for (const start of ['eager', 'lazy'] as const) {
  test(`an added upstream with start: ${start} is announced and can be called`, TIMEOUT, async () => {
    const [a, b] = [waiting(), waiting()];
    await using gateway = await testCore(
      { a: { memory: a.memory }, b: { memory: b.memory } },
      { upstreams: [upstream('a')] },
    );
    const client = await gateway.connect();
    assert.deepEqual(await toolsOf(client), ['a__wait']);
    await change(gateway, gateway.config, { upstreams: [upstream('a'), upstream('b', { start })] });
    await client.waitForMessage(CHANGED);
    assert.deepEqual(await toolsOf(client), ['a__wait', 'b__wait']);
    b.release();
    assert.deepEqual(await client.result('tools/call', toolCall('b__wait')), DONE);
    const own = await gateway.connect({ view: 'b' });
    assert.deepEqual(await toolsOf(own), ['wait']);
  });
}

test('a client is told of an upstream that was never listed when its profile gets it', TIMEOUT, async () => {
  const [a, b] = [waiting(), waiting()];
  await using gateway = await testCore({ a: { memory: a.memory }, b: { memory: b.memory } }, profile('a'));
  const client = await gateway.connect({ view: 'p' });
  assert.deepEqual(await toolsOf(client), ['a__wait']);
  await change(gateway, gateway.config, profile('a', 'b'));
  await client.waitForMessage(CHANGED);
  assert.deepEqual(await toolsOf(client), ['a__wait', 'b__wait']);
});

test('an upstream that no client has used is started when a reload makes it eager', TIMEOUT, async () => {
  const a = waiting();
  await using gateway = await testCore({ a: { memory: a.memory } });
  await change(gateway, gateway.config, { upstreams: [upstream('a', { start: 'eager' })] });
  await a.memory.until(() => a.memory.requests('tools/list')[0]);
});

test('a removed upstream finishes its calls; other users notice only the list', TIMEOUT, async () => {
  const [a, b] = [waiting(), waiting()];
  await using gateway = await testCore({ a: { memory: a.memory }, b: { memory: b.memory } });
  const client = await gateway.connect();
  await toolsOf(client);
  const calls = ['a__wait', 'b__wait'].map((name) => client.result('tools/call', toolCall(name)));
  await b.memory.until(() => b.memory.requests('tools/call')[0]);
  await a.memory.until(() => a.memory.requests('tools/call')[0]);
  const [kept] = a.memory.open;
  const { drained } = await change(gateway, gateway.config, { upstreams: [upstream('a')] });
  await client.waitForMessage(CHANGED);
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

test('a call at a removed upstream fails with a reason after the drain deadline', TIMEOUT, async () => {
  const a = waiting();
  await using gateway = await testCore({ a: { memory: a.memory } });
  const client = await gateway.connect();
  await toolsOf(client);
  const call = client.result('tools/call', toolCall('a__wait'));
  const failed = assert.rejects(call, /was removed or replaced by a reload, and .* longer than gateway\.reload\.drain/);
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
  assert.equal(old.received.filter((message) => 'method' in message && message.method === 'tools/call').length, 1);
  a.release();
  assert.deepEqual([await before, (await after)['content']], [DONE, []]);
  await drained;
  assert.equal(a.memory.open.has(old), false);
  assert.equal(a.memory.open.size > 0, true, 'the connection of the client to the new upstream stays');
  assert.deepEqual((await client.result('tools/call', toolCall('a__wait')))['content'], []);
});

test('a restarted upstream finishes its calls; new calls use the new process', TIMEOUT, async () => {
  const a = waiting();
  await using gateway = await testCore({ a: { memory: a.memory } });
  const client = await gateway.connect();
  await toolsOf(client);
  const before = client.result('tools/call', toolCall('a__wait'));
  await a.memory.until(() => a.memory.requests('tools/call')[0]);
  const [old] = a.memory.open;
  const stopped = gateway.core.upstreamChanges.restart('a', 60_000);
  const after = client.result('tools/call', toolCall('a__wait'));
  await a.memory.until(() => a.memory.requests('tools/call')[1]);
  assert.ok(old !== undefined && a.memory.open.has(old), 'the old process runs while its call is in flight');
  assert.equal(old.received.filter((message) => 'method' in message && message.method === 'tools/call').length, 1);
  a.release();
  assert.deepEqual(await before, DONE);
  assert.deepEqual((await after)['content'], []);
  assert.equal(await stopped, 0, 'no request was cut short');
  assert.equal(a.memory.open.has(old), false);
  assert.deepEqual(await toolsOf(client), ['a__wait']);
});

test('a call that waited for a slot during a restart ends on the old process', TIMEOUT, async () => {
  const a = waiting();
  await using gateway = await testCore({ a: { memory: a.memory, concurrency: 1 } });
  const client = await gateway.connect();
  await toolsOf(client);
  const calls = [1, 2].map(() => client.result('tools/call', toolCall('a__wait')));
  await a.memory.until(() => a.memory.requests('tools/call')[0]);
  const [old] = a.memory.open;
  const stopped = gateway.core.upstreamChanges.restart('a', 60_000);
  a.release();
  for (const call of calls) assert.deepEqual((await call)['content'], []);
  assert.equal(await stopped, 0);
  assert.equal(old?.received.filter((message) => 'method' in message && message.method === 'tools/call').length, 2);
});

test('a restart tells how many connections it closed before their requests had ended', TIMEOUT, async () => {
  const a = waiting();
  await using gateway = await testCore({ a: { memory: a.memory } });
  const client = await gateway.connect();
  await toolsOf(client);
  const failed = assert.rejects(client.result('tools/call', toolCall('a__wait')), /upstream/);
  await a.memory.until(() => a.memory.requests('tools/call')[0]);
  assert.equal(await gateway.core.upstreamChanges.restart('a', 20), 1);
  await failed;
});

// N-88
test('an upstream with a mistake tells the place of the last reload', TIMEOUT, async () => {
  const a = waiting();
  await using gateway = await testCore({ a: { memory: a.memory, problem: 'wrong (c.yaml:1:1)' } });
  const [failed] = gateway.core.upstreams.values();
  assert.equal(failed?.lifecycle.reason, 'wrong (c.yaml:1:1)');
  const { config } = await change(gateway, gateway.config, {
    upstreams: [upstream('a', { problem: 'wrong (c.yaml:2:1)' })],
  });
  assert.deepEqual([...gateway.core.upstreams.values()], [failed]);
  assert.equal(failed.lifecycle.reason, 'wrong (c.yaml:2:1)');

  const client = await gateway.connect();
  await change(gateway, config, { upstreams: [upstream('a')] });
  a.release();
  assert.deepEqual(await client.result('tools/call', toolCall('a__wait')), DONE);
});

test('a disabled upstream stays so after a reload that changes it, until it is removed', TIMEOUT, async () => {
  const a = waiting();
  a.release();
  await using gateway = await testCore({ a: { memory: a.memory } });
  const client = await gateway.connect();
  await client.result('tools/call', toolCall('a__wait'));
  const { upstreamChanges } = gateway.core;
  await upstreamChanges.disable('a', 'an operator has disabled it', 20);
  const refused = () => assert.rejects(client.result('tools/call', toolCall('a__wait')), /an operator has disabled it/);
  await refused();
  const updated = await change(gateway, gateway.config, { upstreams: [upstream('a', { concurrency: 3 })] });
  await refused();
  assert.equal(gateway.core.upstreams.get('a')?.config.problem, 'an operator has disabled it');
  const replaced = await change(gateway, updated.config, { upstreams: [upstream('a', { isolation: 'principal' })] });
  await replaced.drained;
  await refused();
  assert.equal(upstreamChanges.isDisabled('a'), true);
  await upstreamChanges.restart('a', 20);
  assert.deepEqual((await client.result('tools/call', toolCall('a__wait')))['content'], []);
  assert.equal(gateway.core.upstreams.get('a')?.config.isolation, 'principal', 'with the config of the reload');

  await upstreamChanges.disable('a', 'an operator has disabled it', 20);
  const removed = await change(gateway, replaced.config, { upstreams: [] });
  await removed.drained;
  await change(gateway, removed.config, { upstreams: [upstream('a')] });
  assert.equal(upstreamChanges.isDisabled('a'), false);
  await waitUntil(async () => (await toolsOf(client)).length === 1);
  assert.deepEqual((await client.result('tools/call', toolCall('a__wait')))['content'], []);
});

test('a subscription moves to the new process of a restarted upstream', TIMEOUT, async () => {
  const memory = memoryUpstream({
    capabilities: { resources: { subscribe: true } },
    lists: { resources: [{ uri: 'file:///a', name: 'a' }] },
    request: (peer, request) => peer.send(result(request, {})),
  });
  await using gateway = await testCore({ a: { memory } });
  const client = await gateway.connect();
  const { resources } = await client.result('resources/list');
  assert.ok(Array.isArray(resources));
  await client.result('resources/subscribe', { uri: resources[0].uri });
  assert.equal(memory.requests('resources/subscribe').length, 1);
  await gateway.core.upstreamChanges.restart('a', 60_000);
  await memory.until(() => memory.requests('resources/subscribe')[1]);
  await client.waitForMessage('notifications/resources/updated');
});

for (const { what, without } of [
  { what: 'was removed', without: [] },
  { what: 'kept none', without: [upstream('a', { isolation: 'call' })] },
]) {
  test(`a session is subscribed again at an upstream that ${what} for a while`, TIMEOUT, async () => {
    const { memory } = observable('a');
    await using gateway = await testCore({ a: { memory } });
    const client = await gateway.connect();
    const count = (method: string) => memory.requests(method).length;
    await client.result('resources/subscribe', { uri: 'a+test://a' });
    const { drained } = await change(gateway, gateway.config, { upstreams: without });
    await drained;
    await change(gateway, { ...gateway.config, upstreams: without }, { upstreams: gateway.config.upstreams });
    await memory.until(() => memory.requests('resources/subscribe')[1]);
    await client.waitForMessage('notifications/resources/updated');
    await client.result('resources/unsubscribe', { uri: 'a+test://a' });
    assert.deepEqual([count('resources/subscribe'), count('resources/unsubscribe')], [2, 1]);
  });
}

test('a session restored while its upstream is away is subscribed once it is back', TIMEOUT, async () => {
  const { memory } = observable('a');
  await using gateway = await testCore({ a: { memory } }, {}, new JoinedProcesses());
  const client = await gateway.connect();
  const { id, caller } = client.session;
  for (const uri of ['a+test://b', 'a+test://a']) await client.result('resources/subscribe', { uri });
  const { drained } = await change(gateway, gateway.config, { upstreams: [] });
  await drained;
  gateway.core.handOver();
  const front = gateway.core.gateway;
  assert.equal((await front.ownerOfSession(id, caller.principal, caller.view)).kind, 'here');
  const session = await front.findSession(id, caller.principal, caller.view);
  assert.ok(session !== undefined);
  const { answer } = await client.request('resources/unsubscribe', { uri: 'a+test://b' }, { session });
  assert.equal(answer.kind, 'result');
  await change(gateway, { ...gateway.config, upstreams: [] }, { upstreams: gateway.config.upstreams });
  const again = await memory.until(() => memory.requests('resources/subscribe')[2]);
  assert.equal(again.params?.string('uri'), 'test://a', 'and not what it has ended meanwhile');
});

test('a session is subscribed again once its endpoint has the upstream, not before', TIMEOUT, async () => {
  const [{ memory }, other] = [observable('a'), observable('b')];
  await using gateway = await testCore({ a: { memory }, b: { memory: other.memory } }, profile('a', 'b'));
  const client = await gateway.connect({ view: 'p' });
  const subscribed = () => memory.requests('resources/subscribe').length;
  await client.result('resources/subscribe', { uri: 'a+test://a' });
  const b = gateway.config.upstreams.filter(({ id }) => id === 'b');
  const removed = await change(gateway, gateway.config, { ...profile('b'), upstreams: b });
  await removed.drained;
  const back = await change(gateway, removed.config, { upstreams: gateway.config.upstreams });
  await client.result('resources/subscribe', { uri: 'b+test://b' });
  assert.equal(subscribed(), 1);
  await change(gateway, back.config, profile('a', 'b'));
  await memory.until(() => (subscribed() === 2 ? true : undefined));
  await client.waitForMessage('notifications/resources/updated');
});

test('a session ends its connection to an upstream that leaves its endpoint', TIMEOUT, async () => {
  const [a, b, waits] = [observable('a'), waiting(), waiting()];
  b.release();
  const memories = { a: { memory: a.memory }, b: { memory: b.memory }, waits: { memory: waits.memory } };
  await using gateway = await testCore(memories, profile('a', 'b', 'waits'));
  const client = await gateway.connect({ view: 'p' });
  await client.result('resources/subscribe', { uri: 'a+test://a' });
  await client.result('tools/call', toolCall('b__wait'));
  const call = client.result('tools/call', toolCall('waits__wait'));
  await waits.memory.until(() => waits.memory.requests('tools/call')[0]);
  await change(gateway, gateway.config, profile('a'));
  await b.memory.until(() => (b.memory.open.size === 0 ? true : undefined));
  assert.deepEqual([a.memory.open.size, waits.memory.open.size], [1, 1]);
  waits.release();
  assert.deepEqual(await call, DONE, 'a call in flight finishes');
  await change(gateway, { ...gateway.config, ...profile('a') }, profile('b', 'waits'));
  await a.memory.until(() => (a.memory.open.size === 0 ? true : undefined));
  const { _meta: meta } = await client.result('tools/call', toolCall('b__wait'));
  assert.partialDeepStrictEqual(meta, { 'io.linkspan/stateLost': { upstream: 'b', reason: 'replaced' } });
});

test('a restored session has no connection to an upstream that has left its endpoint', TIMEOUT, async () => {
  const [a, b] = [waiting(), waiting()];
  for (const { release } of [a, b]) release();
  const start: StartTransport = async (...args) => ({
    ...(await b.memory.start(...args)),
    session: { id: 'of the upstream', cookies: [] },
    attach: () => undefined,
  });
  const target = { kind: 'http', url: 'http://127.0.0.1:9/mcp', headers: {} } as const;
  const remote = { memory: { ...b.memory, start }, target, canAttach: true };
  const processes = new JoinedProcesses();
  await using gateway = await testCore({ a: { memory: a.memory }, b: remote }, profile('a', 'b'), processes);
  const client = await gateway.connect({ view: 'p' });
  await client.result('tools/call', toolCall('b__wait'));
  const { id, caller } = client.session;
  const before = Session.from(client.session);
  await waitUntil(() => before.attachable?.has('b') === true);
  gateway.core.handOver();
  await change(gateway, gateway.config, profile('a'));
  const front = gateway.core.gateway;
  await front.ownerOfSession(id, caller.principal, caller.view);
  const restored = await front.findSession(id, caller.principal, caller.view);
  assert.ok(restored);
  assert.deepEqual([...Session.from(restored).linkPromises.keys()], []);
});

test('an upstream that is replaced while it is listed is listed again', TIMEOUT, async () => {
  const first = Promise.withResolvers<undefined>();
  const memory = memoryUpstream({
    capabilities: { tools: {} },
    // The first process answers only after the second one.
    hold: async (peer) => (peer === memory.peers[0] ? await first.promise : undefined),
    listsOf: (peer) => (peer === memory.peers[0] ? { tools: [] } : TOOLS),
  });
  // The first list waits for the process that does not answer.
  await using gateway = await testCore({ a: { memory } }, { lists: { waitMs: 100 } });
  const client = await gateway.connect();
  await memory.until(() => memory.requests('tools/list')[0]);
  const { drained } = await change(gateway, gateway.config, { upstreams: [upstream('a', { isolation: 'principal' })] });
  await waitUntil(async () => (await toolsOf(client)).includes('a__wait'));
  first.resolve(undefined);
  await drained;
  assert.deepEqual(await toolsOf(client), ['a__wait']);
});

test('the series of a removed upstream and endpoint are gone', TIMEOUT, async () => {
  const [a, b] = [waiting(), waiting()];
  await using gateway = await testCore({ a: { memory: a.memory }, b: { memory: b.memory } });
  const client = await gateway.connect();
  await toolsOf(client);
  b.release();
  await client.result('tools/call', toolCall('b__wait'));
  const seriesOf = async (label: string) =>
    (await gateway.metrics.text()).split('\n').filter((line) => line.startsWith('linkspan') && line.includes(label));
  assert.ok((await seriesOf('upstream="b"')).length > 5 && (await seriesOf('view="b"')).length > 0);
  const { drained } = await change(gateway, gateway.config, { upstreams: [upstream('a')] });
  await drained;
  assert.deepEqual([...(await seriesOf('upstream="b"')), ...(await seriesOf('view="b"'))], []);
  assert.ok((await seriesOf('upstream="a"')).length > 5);
});

test('the state of a removed upstream is not in the metrics while it drains', TIMEOUT, async () => {
  const [a, b] = [waiting(), waiting()];
  await using gateway = await testCore({ a: { memory: a.memory }, b: { memory: b.memory } });
  const client = await gateway.connect();
  await toolsOf(client);
  const call = client.result('tools/call', toolCall('b__wait'));
  await b.memory.until(() => b.memory.requests('tools/call')[0]);
  const up = /^linkspan_upstream_(?:up|state_info)\{.*upstream="b"/m;
  assert.match(await gateway.metrics.text(), up);
  const { drained } = await change(gateway, gateway.config, { upstreams: [upstream('a')] });
  assert.doesNotMatch(await gateway.metrics.text(), up);
  b.release();
  await call;
  await drained;
});

test('upstreams have the order of the config after a reload that moves them', TIMEOUT, async () => {
  await using gateway = await testCore({ a: { memory: waiting().memory }, b: { memory: waiting().memory } });
  const order = () => [...gateway.core.upstreams.values()].map(({ id }) => id);
  assert.deepEqual(order(), ['a', 'b']);
  await change(gateway, gateway.config, { upstreams: [upstream('b'), upstream('a')] });
  assert.deepEqual(order(), ['b', 'a']);
});

test('a changed concurrency holds for an upstream that is running', TIMEOUT, async () => {
  const a = waiting();
  await using gateway = await testCore({ a: { memory: a.memory } });
  const client = await gateway.connect();
  await toolsOf(client);
  await change(gateway, gateway.config, { upstreams: [upstream('a', { concurrency: 1, queueMs: 60_000 })] });
  const calls = [1, 2].map(() => client.result('tools/call', toolCall('a__wait')));
  await a.memory.until(() => a.memory.requests('tools/call')[0]);
  await waitUntil(async () =>
    /^linkspan_upstream_requests_queued\{upstream="a"\} 1$/m.test(await gateway.metrics.text()),
  );
  assert.equal(a.memory.requests('tools/call').length, 1, 'the second call waits for the first one');
  a.release();
  assert.deepEqual(await Promise.all(calls), [DONE, DONE]);
});

test('a changed limit of processes holds for the next session', TIMEOUT, async () => {
  const a = waiting();
  a.release();
  await using gateway = await testCore({ a: { memory: a.memory } }, { upstreams: [upstream('a', { queueMs: 50 })] });
  const [client, other] = [await gateway.connect(), await gateway.connect()];
  await client.result('tools/call', toolCall('a__wait'));
  const { limits } = gateway.config;
  await change(gateway, gateway.config, { limits: { ...limits, processes: 1 } });
  await assert.rejects(other.result('tools/call', toolCall('a__wait')), /limits\.processes/);
});

test('the lists of a restarted upstream are read again, and the change is announced', TIMEOUT, async () => {
  const memory = memoryUpstream({
    capabilities: { tools: {} },
    listsOf: (peer) => (peer === memory.peers[0] ? { tools: [] } : TOOLS),
  });
  await using gateway = await testCore({ a: { memory } });
  const client = await gateway.connect();
  assert.deepEqual(await toolsOf(client), []);
  await Promise.all([gateway.core.upstreamChanges.restart('a', 1_000), gateway.core.startUpstream('a')]);
  await client.waitForMessage(CHANGED);
  assert.deepEqual(await toolsOf(client), ['a__wait']);
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
  await client.waitForMessage(CHANGED);
  assert.deepEqual(await toolsOf(client), ['x_wait']);
  assert.deepEqual(await client.result('tools/call', toolCall('x_wait')), DONE);
  assert.equal(a.memory.starts, 1);
});

test('a call at a removed endpoint is finished while its client listens', TIMEOUT, async () => {
  const { memory, release } = waiting();
  await using gateway = await testCore({ a: { memory } });
  const listen = modernRequest(gateway, 'subscriptions/listen', { notifications: {} }, { view: 'a' });
  await waitUntil(() => listen.messages.length > 0);
  const call = modernRequest(gateway, 'tools/call', toolCall('wait'), { view: 'a' });
  await memory.until(() => memory.requests('tools/call')[0]);
  const { drained } = await change(gateway, gateway.config, { upstreams: [] });
  release();
  const { error } = await call.reply;
  assert.equal(error, undefined);
  await drained;
  await listen.reply;
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
  const notification = await client.waitForMessage('notifications/message');
  assert.match(String('params' in notification ? notification.params : ''), /\/mcp\/p was removed/);
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
  await assert.rejects(client.result('tools/list'), /1 requests are already in flight/);
  await change(gateway, config, { limits });
  assert.ok('tools' in (await client.result('tools/list')));
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

const UPDATED = 'notifications/resources/updated';

/** An upstream with a resource `test://<id>`, and a function that reports a change of it or of a part. */
function observable(id: string) {
  const memory = memoryUpstream({
    capabilities: { resources: { subscribe: true } },
    lists: { resources: [{ uri: `test://${id}`, name: id }] },
  });
  const update = (part = '') => {
    const params = { uri: `test://${id}${part}` };
    for (const peer of memory.open) peer.send(JSON.stringify({ jsonrpc: '2.0', method: UPDATED, params }));
  };
  return { memory, update };
}

/** Opens a subscription stream to resources, and waits until they are acknowledged. */
async function listenTo(gateway: TestCore, uris: readonly string[]) {
  const listen = modernRequest(gateway, 'subscriptions/listen', { notifications: { resourceSubscriptions: uris } });
  await waitUntil(() => listen.messages.length > 0);
  const params = listen.messages.map((message) => JSON.parse(String('params' in message ? message.params : '{}')));
  assert.deepEqual(params[0].notifications, { resourceSubscriptions: uris });
  const updated = () =>
    listen.messages.flatMap((message) =>
      'method' in message && message.method === UPDATED ? [message.params?.string('uri')] : [],
    );
  return { ...listen, updated };
}

//
test('a stream gets its updates after a reload that changes published URIs', TIMEOUT, async () => {
  const { memory, update } = observable('a');
  await using gateway = await testCore({ a: { memory } });
  const [published, own] = [await listenTo(gateway, ['a+test://a']), await listenTo(gateway, ['test://a'])];
  await change(gateway, gateway.config, { upstreams: [upstream('a', { rawUris: true })] });
  await waitUntil(async () => {
    const { result: listed } = await modernRequest(gateway, 'resources/list').reply;
    return JSON.stringify(listed).includes('"test://a"');
  });
  update();
  update('/part');
  await waitUntil(() => published.updated().length === 2 && own.updated().length === 2);
  assert.deepEqual(new Set(published.updated()), new Set(['a+test://a', 'test://a/part']));
  assert.deepEqual(new Set(own.updated()), new Set(['test://a', 'test://a/part']));
});

//
test('a stream hears of a new connection by the name that its client has used', TIMEOUT, async () => {
  const { memory } = observable('a');
  await using gateway = await testCore({ a: { memory } });
  const own = await listenTo(gateway, ['test://a']);
  for (const peer of memory.open) peer.crash();
  await waitUntil(() => own.updated().length > 0);
  assert.deepEqual(own.updated(), ['test://a']);
});

for (const { what, upstreams } of [
  { what: 'is removed', upstreams: [upstream('b')] },
  { what: 'keeps none any more', upstreams: [upstream('a', { isolation: 'call' }), upstream('b')] },
]) {
  //
  test(`a stream ends that is subscribed at an upstream which ${what}`, TIMEOUT, async () => {
    const [a, b] = [observable('a'), observable('b')];
    await using gateway = await testCore({ a: { memory: a.memory }, b: { memory: b.memory } });
    const lost = await listenTo(gateway, ['a+test://a', 'b+test://b']);
    const kept = await listenTo(gateway, ['b+test://b']);
    await change(gateway, gateway.config, { upstreams });
    assert.partialDeepStrictEqual((await lost.reply).result, { resultType: 'complete' });
    b.update();
    await waitUntil(() => kept.updated().length > 0);
  });
}
