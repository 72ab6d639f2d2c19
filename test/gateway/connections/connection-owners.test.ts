import assert from 'node:assert/strict';
import { test } from 'node:test';
import { diffConfigs } from '../../../src/config/changes/diff.ts';
import type { UpstreamConfig } from '../../../src/config/values/upstream-config.ts';
import { GatewayError } from '../../../src/errors.ts';
import { ClientGroups } from '../../../src/gateway/clients/client-group.ts';
import type { Principal } from '../../../src/policy/principal.ts';
import { type TestCore, testCore, toolCall } from '../../support/core.ts';
import { JoinedProcesses } from '../../support/joined-processes.ts';
import { type MemoryUpstream, memoryUpstream, result } from '../../support/memory-upstream.ts';
import { type ModernOptions, modernRequest } from '../../support/modern-client.ts';
import { stopTime } from '../../support/stopped-time.ts';
import { waitUntil } from '../../support/wait-until.ts';

const TIMEOUT = { timeout: 120_000 };
const HTTP = { kind: 'http', url: 'http://127.0.0.1:9/mcp', headers: {} } as const;
const principal = (key: string): Principal => ({ key, label: key, scopes: [] });

interface Joined extends AsyncDisposable {
  readonly joined: JoinedProcesses;
  readonly processes: readonly [TestCore, TestCore];
  /** Makes a call at a process. */
  call(at: 0 | 1, options?: ModernOptions): Promise<void>;
  /** Returns the number of calls that the upstream got from each process. */
  counts(): readonly number[];
  readonly upstreams: readonly MemoryUpstream[];
}

/** Starts two processes of one gateway. The upstream of each counts its calls. */
async function join(own: Partial<UpstreamConfig> = {}): Promise<Joined> {
  const joined = new JoinedProcesses();
  const upstream = (): MemoryUpstream =>
    memoryUpstream({
      capabilities: { tools: { listChanged: true }, resources: { subscribe: true } },
      lists: {
        tools: [{ name: 'act', inputSchema: { type: 'object' } }],
        resources: [{ uri: 'file:///a', name: 'a' }],
      },
      request: (peer, request) => peer.send(result(request, { content: [] })),
    });
  const upstreams = [upstream(), upstream()] as const;
  const [first, second] = upstreams;
  const cores = [
    await testCore({ up: { memory: first, ...own } }, {}, joined),
    await testCore({ up: { memory: second, ...own } }, {}, joined),
  ] as const;
  return {
    joined,
    processes: cores,
    upstreams,
    call: async (at, options) => {
      const { error } = await modernRequest(cores[at], 'tools/call', toolCall('up__act'), options).reply;
      assert.equal(error, undefined);
    },
    counts: () => upstreams.map((memory) => memory.requests('tools/call').length),
    [Symbol.asyncDispose]: async () => {
      for (const core of cores) await core[Symbol.asyncDispose]();
    },
  };
}

for (const isolation of ['session', 'principal'] as const) {
  test(`with isolation ${isolation}, requests of a principal go to one process`, TIMEOUT, async () => {
    await using joined = await join({ isolation });
    for (const at of [1, 0, 0, 1] as const) await joined.call(at);
    await joined.call(0, { capabilities: { elicitation: {} } });
    assert.deepEqual(joined.counts(), [0, 5]);
    await joined.call(0, { principal: principal('bob') });
    await joined.call(1, { principal: principal('bob') });
    assert.deepEqual(joined.counts(), [2, 5], 'another principal has a connection of its own');
    await joined.call(0, { view: 'up' });
    assert.deepEqual(joined.counts(), isolation === 'session' ? [3, 5] : [2, 6], 'so has another endpoint');
  });
}

for (const isolation of ['shared', 'call'] as const) {
  test(`with isolation ${isolation}, requests are sent where they arrive`, TIMEOUT, async () => {
    await using joined = await join({ isolation });
    for (const at of [1, 0, 0] as const) await joined.call(at);
    assert.deepEqual(joined.counts(), [2, 1]);
  });
}

test('requests to a remote upstream of an older revision go to one process', TIMEOUT, async () => {
  await using joined = await join({ target: HTTP });
  for (const at of [0, 1, 1] as const) await joined.call(at);
  assert.deepEqual(joined.counts(), [3, 0]);
});

test('a request that is too large to be passed on fails at once, and nothing is called', TIMEOUT, async () => {
  await using opened = await join();
  await opened.call(0);
  opened.joined.blockage = new GatewayError('too-large', { executed: 'no' });
  const { error } = await modernRequest(opened.processes[1], 'tools/call', toolCall('up__act')).reply;
  assert.deepEqual(error?.data, { code: 'too-large', executed: 'no', retryable: false });
  assert.deepEqual(opened.counts(), [1, 0]);
});

test('a connection that is given away is made by the process of the next request', TIMEOUT, async () => {
  await using joined = await join();
  await joined.call(0);
  joined.processes[0].core.handOver();
  await joined.call(1);
  await joined.call(0);
  assert.deepEqual(joined.counts(), [1, 2]);
});

test('a connection that nobody uses any more is free for other processes', TIMEOUT, async (t) => {
  stopTime(t);
  await using joined = await join({ idleMs: 1 });
  await joined.call(0);
  const { core } = joined.processes[0];
  const laterMs = performance.now() + 31_000;
  core.sweep(laterMs);
  await joined.call(1);
  assert.deepEqual(joined.counts(), [2, 0], 'it was open until the sweep');
  core.sweep(laterMs + 100_000);
  core.sweep(laterMs + 200_000);
  await joined.call(1);
  assert.deepEqual(joined.counts(), [2, 1]);
});

test('after a change of the isolation, all clients of a principal go to one process', TIMEOUT, async () => {
  await using joined = await join({ isolation: 'session' });
  await joined.call(1);
  for (const { core, config } of joined.processes) {
    const upstreams = config.upstreams.map((upstream) => ({ ...upstream, isolation: 'principal' as const }));
    const next = { ...config, upstreams };
    await core.apply(next, diffConfigs(config, next));
  }
  await joined.call(0, { view: 'up' });
  await joined.call(1);
  assert.deepEqual(joined.counts(), [2, 1]);
});

test('a connection is used as long as any client of its principal uses it', TIMEOUT, async (t) => {
  const time = stopTime(t);
  await using joined = await join({ idleMs: 1 });
  await joined.call(0);
  const betweenMs = performance.now();
  time.pass(1);
  await joined.call(0, { capabilities: { elicitation: {} } });
  const { core } = joined.processes[0];
  // Closes the links, which show use as well.
  core.sweep(betweenMs + 20_000);
  core.sweep(betweenMs + 30_000);
  await joined.call(1);
  assert.deepEqual(joined.counts(), [3, 0]);
});

for (const notifications of [{ resourceSubscriptions: ['up+file:///a'] }, { toolsListChanged: true }]) {
  test(
    `a stream for ${Object.keys(notifications)[0]} ends when its process loses the connection`,
    TIMEOUT,
    async () => {
      await using joined = await join();
      const [first] = joined.processes;
      await joined.call(0);
      const listen = async () => {
        const stream = modernRequest(first, 'subscriptions/listen', { notifications });
        await waitUntil(() => stream.messages.length > 0);
        return stream;
      };
      const before = await listen();
      joined.joined.revokeConnections();
      assert.equal((await before.reply).error, undefined);
      await joined.call(1);
      const { messages, call } = await listen();
      const changed = 'toolsListChanged' in notifications ? 'tools/list_changed' : 'resources/updated';
      const params = { uri: 'file:///a' };
      const change = JSON.stringify({ jsonrpc: '2.0', method: `notifications/${changed}`, params });
      for (const peer of joined.upstreams[1]?.open ?? []) peer.send(change);
      await waitUntil(() => messages.length > 1);
      call.close();
      assert.deepEqual(joined.counts(), [1, 1]);
    },
  );
}

test('a sweep does not look at all client groups for each connection', TIMEOUT, async (t) => {
  await using joined = await join();
  for (const key of ['ann', 'ben', 'cid', 'dan']) await joined.call(0, { principal: principal(key) });
  const walks = t.mock.method(ClientGroups.prototype, Symbol.iterator);
  joined.processes[0].core.sweep(performance.now() + 31_000);
  assert.ok(walks.mock.callCount() <= 1, `${walks.mock.callCount()} walks for 4 connections`);
  await joined.call(1, { principal: principal('dan') });
  assert.deepEqual(joined.counts(), [5, 0], 'connections with open links are kept');
});
