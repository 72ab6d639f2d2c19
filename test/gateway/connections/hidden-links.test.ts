import assert from 'node:assert/strict';
import { test } from 'node:test';
import { diffConfigs } from '../../../src/config/changes/diff.ts';
import { accessOf, ANYONE } from '../../policy/policies.ts';
import { testCore, toolCall } from '../../support/core.ts';
import { memoryUpstream, type Peer, result } from '../../support/memory-upstream.ts';
import { waitUntil } from '../../support/wait-until.ts';

const TIMEOUT = { timeout: 120_000 };
const LISTS = { tools: [{ name: 't', inputSchema: { type: 'object' } }] };
const profile = (...upstreams: readonly string[]) => ({
  profiles: [{ id: 'p', upstreams, includeTools: undefined, excludeTools: [], renames: {} }],
});
const SEEN = accessOf({ some: { upstreams: ['seen'] } }, [{ ...ANYONE, roles: ['some'] }]);

for (const [why, change] of [
  ['that the access policy hides', { access: SEEN }],
  ['that has left the endpoint', profile('seen')],
] as const) {
  test(`an upstream ${why} loses its links, each after its last call`, TIMEOUT, async () => {
    const busy = memoryUpstream({
      lists: LISTS,
      request: (peer, request) => {
        const held = () => peer.send(result(request, { content: [] }));
        if (request.params?.object('arguments')?.raw('hold') === undefined) held();
        else finish = held;
      },
    });
    let finish: (() => void) | undefined;
    const seen = memoryUpstream({ lists: LISTS });
    const upstreams = { busy: { memory: busy }, seen: { memory: seen } };
    await using gateway = await testCore(upstreams, profile('busy', 'seen'));
    const [idle, calling] = [await gateway.connect({ view: 'p' }), await gateway.connect({ view: 'p' })];
    for (const one of [idle, calling]) {
      for (const name of ['busy__t', 'seen__t']) await one.result('tools/call', toolCall(name, {}));
    }
    const reply = calling.result('tools/call', toolCall('busy__t', { hold: true }));
    await waitUntil(() => finish !== undefined);
    await gateway.reload(change);
    await waitUntil(() => busy.open.size === 1);
    finish?.();
    await reply;
    await waitUntil(() => busy.open.size === 0);
    assert.equal(seen.open.size, 2);
  });

  test(`an upstream ${why} loses the link that is opening`, TIMEOUT, async () => {
    let gate = Promise.resolve();
    const slow = memoryUpstream({
      lists: LISTS,
      start: () => gate,
      request: (peer, request) => peer.send(result(request, { content: [] })),
    });
    const upstreams = { slow: { memory: slow }, seen: { memory: memoryUpstream({ lists: LISTS }) } };
    await using gateway = await testCore(upstreams, profile('slow', 'seen'));
    const [first, client] = [await gateway.connect({ view: 'p' }), await gateway.connect({ view: 'p' })];
    await first.result('tools/list');
    await first.result('tools/call', toolCall('slow__t', {}));
    const { promise, resolve } = Promise.withResolvers<void>();
    gate = promise;
    const { starts } = slow;
    const call = client.request('tools/call', toolCall('slow__t', {}));
    await waitUntil(() => slow.starts > starts);
    await gateway.reload(change);
    resolve();
    await call;
    await waitUntil(() => slow.peers.length > starts && slow.open.size === 0);
  });
}

test('the lists of a connection are not those of the next, after its upstream was away', TIMEOUT, async () => {
  const tool = (name: string) => ({ name, inputSchema: { type: 'object' } });
  const enabled = new Set<Peer>();
  const up = memoryUpstream({
    listsOf: (peer) => ({ tools: [tool('enable'), ...(enabled.has(peer) ? [tool('extra')] : [])] }),
    request: (peer, request) => {
      peer.send(result(request, { content: [] }));
      enabled.add(peer);
      peer.send('{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}');
    },
  });
  const upstreams = { up: { memory: up }, seen: { memory: memoryUpstream({ lists: LISTS }) } };
  await using gateway = await testCore(upstreams, profile('up', 'seen'));
  const { config } = gateway;
  const client = await gateway.connect({ view: 'p' });
  const names = async () => {
    const { tools } = await client.result('tools/list');
    return Array.isArray(tools) ? tools.map((one) => String(Object(one).name)) : [];
  };
  await client.result('tools/call', toolCall('up__enable'));
  await waitUntil(async () => (await names()).includes('up__extra'));
  const without = { ...config, ...profile('seen') };
  await gateway.core.apply(without, diffConfigs(config, without));
  await waitUntil(() => up.open.isDisjointFrom(enabled));
  await gateway.core.apply(config, diffConfigs(without, config));
  assert.deepEqual(await names(), ['up__enable', 'seen__t']);
});
