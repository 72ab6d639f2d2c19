import assert from 'node:assert/strict';
import { test } from 'node:test';
import { setImmediate as nextTurn } from 'node:timers/promises';
import type { Isolation } from '../../src/config/values/upstream-config.ts';
import { GatewayError } from '../../src/errors.ts';
import { LIMITS } from '../../src/limits.ts';
import type { Principal } from '../../src/policy/principal.ts';
import type { Message } from '../../src/protocol/jsonrpc.ts';
import { HttpStatusError } from '../../src/upstream/rpc/http-status-error.ts';
import { NeedsAuthorizationError } from '../../src/upstream/rpc/needs-authorization-error.ts';
import { testCore, type TestClient, toolCall } from '../support/core.ts';
import { ModernClient } from '../support/modern-client.ts';
import { memoryUpstream, result } from '../support/memory-upstream.ts';
import { stopTime } from '../support/stopped-time.ts';

const TIMEOUT = { timeout: 120_000 };
const TOOLS_CHANGED = 'notifications/tools/list_changed';
const TARGET = { kind: 'http', url: 'http://127.0.0.1:1/mcp', headers: {} } as const;

const principal = (key: string): Principal => ({ key, label: key, scopes: [] });

/** A remote upstream that shows each principal a tool of its own, and refuses the credentials of `mallory`. */
function personal() {
  const memory = memoryUpstream({
    listsOf: ({ audience }) => ({ tools: [{ name: `of_${audience}`, inputSchema: { type: 'object' } }] }),
    start: async ({ audience }) => {
      if (audience !== 'mallory') return;
      throw new GatewayError('upstream-unavailable', { message: 'refused' }, new HttpStatusError(401));
    },
    request: (peer, request) => peer.send(result(request, { for: peer.audience })),
  });
  const upstream = (isolation: Isolation) =>
    ({ up: { memory, isolation, target: TARGET, credentials: 'principal' } }) as const;
  return { memory, upstream };
}

async function toolsOf(client: TestClient): Promise<unknown> {
  const { tools } = await client.result('tools/list');
  return Array.isArray(tools) ? tools.map(({ name }) => name) : tools;
}

for (const isolation of ['shared', 'session', 'principal', 'call'] as const) {
  test(`each principal uses its own credentials and lists: isolation ${isolation}`, TIMEOUT, async () => {
    const { memory, upstream } = personal();
    await using gateway = await testCore(upstream(isolation));
    for (const name of ['anna', 'bert', 'anna']) {
      const client = await gateway.connect({ principal: principal(name) });
      assert.deepEqual(await toolsOf(client), [`up__of_${name}`]);
      const answer = await client.result('tools/call', toolCall(`up__of_${name}`));
      assert.equal(answer['for'], name);
    }
    assert.deepEqual(new Set(memory.peers.map(({ audience }) => audience)), new Set(['anna', 'bert']));
  });
}

test('refused credentials of one principal leave the upstream ready for the others', TIMEOUT, async () => {
  const { upstream } = personal();
  await using gateway = await testCore(upstream('shared'));
  const anna = await gateway.connect({ principal: principal('anna') });
  assert.deepEqual(await toolsOf(anna), ['up__of_anna']);
  const mallory = await gateway.connect({ principal: principal('mallory') });
  assert.deepEqual(await toolsOf(mallory), []);
  const state = () => gateway.core.upstreams.get('up')?.lifecycle;
  assert.equal(state()?.phase, 'ready');
  const bert = await gateway.connect({ principal: principal('bert') });
  assert.deepEqual(await toolsOf(bert), ['up__of_bert']);
  assert.equal((await anna.result('tools/call', toolCall('up__of_anna')))['for'], 'anna');
  assert.deepEqual([state()?.phase, state()?.attempts], ['ready', 0]);
});

for (const phase of ['configured', 'ready'] as const) {
  test(`a call of a principal without credentials says why at once: upstream ${phase}`, TIMEOUT, async () => {
    let isSignedIn = false;
    const memory = memoryUpstream({
      lists: { tools: [{ name: 'echo', inputSchema: { type: 'object' } }] },
      start: async ({ audience }) => {
        if (audience !== 'bert' || isSignedIn) return;
        const detail = { message: 'bert has to sign in again', executed: 'no', retryable: false } as const;
        throw new GatewayError('upstream-unavailable', detail, new NeedsAuthorizationError('none'));
      },
      request: (peer, request) => peer.send(result(request, { for: peer.audience })),
    });
    await using gateway = await testCore({ up: { memory, target: TARGET, credentials: 'principal' } });
    if (phase === 'ready') {
      const anna = await gateway.connect({ principal: principal('anna') });
      await anna.result('tools/call', toolCall('up__echo'));
    }
    const bert = await gateway.connect({ principal: principal('bert') });
    const names = ['up__echo', 'up__other'].flatMap((name) => [name, name]);
    const first = await bert.request('tools/call', toolCall('up__echo'));
    const others = await Promise.all(names.map((name) => bert.request('tools/call', toolCall(name))));
    for (const { answer } of [first, ...others]) {
      const error = answer.kind === 'error' ? answer.error : undefined;
      assert.match(error?.message ?? '', /bert has to sign in again/);
      const data = { code: 'upstream-unavailable', executed: 'no', retryable: false, upstream: 'up' };
      assert.partialDeepStrictEqual(error?.data, data);
    }
    assert.equal(gateway.core.upstreams.get('up')?.lifecycle.phase, phase);
    isSignedIn = true;
    assert.equal((await bert.result('tools/call', toolCall('up__echo')))['for'], 'bert');
    const { answer } = await bert.request('tools/call', toolCall('up__other'));
    assert.equal(answer.kind === 'error' && answer.error.message, 'Unknown tool: up__other');
  });
}

test('lists of one principal that could not be read are read again after 5 s', TIMEOUT, async (t) => {
  let isFailing = true;
  const memory = memoryUpstream({
    lists: { tools: [{ name: 'echo', inputSchema: { type: 'object' } }] },
    hold: async (peer) => {
      if (isFailing && peer.audience === 'bert') peer.crash('was reset');
    },
    request: (peer, request) => peer.send(result(request, { for: peer.audience })),
  });
  await using gateway = await testCore({ up: { memory, target: TARGET, credentials: 'principal' } });
  const anna = await gateway.connect({ principal: principal('anna') });
  await anna.result('tools/call', toolCall('up__echo'));
  const bert = await gateway.connect({ principal: principal('bert') });
  const { answer } = await bert.request('tools/call', toolCall('up__echo'));
  assert.equal(answer.kind, 'error');
  isFailing = false;
  const time = stopTime(t);
  time.pass(5_001);
  const called = bert.result('tools/call', toolCall('up__echo'));
  assert.equal((await time.passUntil(called, 100))['for'], 'bert');
});

for (const era of ['legacy', 'modern'] as const) {
  test(`a ${era} client that only listens hears of lists that could not be read before`, TIMEOUT, async (t) => {
    let isFailing = true;
    const memory = memoryUpstream({
      lists: { tools: [{ name: 'echo', inputSchema: { type: 'object' } }] },
      hold: async (peer) => {
        if (isFailing) peer.crash('was reset');
      },
    });
    await using gateway = await testCore({ up: { memory, target: TARGET, credentials: 'principal' } });
    const time = stopTime(t);
    const bert = principal('bert');
    const heard = Promise.withResolvers<void>();
    let listing: Promise<{ readonly tools?: unknown }>;
    if (era === 'modern') {
      const client = new ModernClient(gateway, {}, bert);
      const onMessage = ({ kind, ...message }: Message) => {
        if (kind === 'notification' && 'method' in message && message.method === TOOLS_CHANGED) heard.resolve();
      };
      client.request('subscriptions/listen', { notifications: { toolsListChanged: true } }, { onMessage });
      listing = client.result('tools/list');
    } else {
      const client = await time.passUntil(gateway.connect({ principal: bert }), 1);
      client.waitForMessage(TOOLS_CHANGED).then(() => heard.resolve(), heard.reject);
      listing = client.result('tools/list');
    }
    assert.deepEqual((await time.passUntil(listing, 1)).tools, []);
    const before = memory.starts;
    // The second failure is repeated too.
    await time.passUntil(
      memory.until(() => (memory.starts > before ? true : undefined)),
      100,
    );
    isFailing = false;
    await time.passUntil(heard.promise, 100);
  });
}

test('refused credentials of the first principal leave the upstream as it was', TIMEOUT, async (t) => {
  const { memory, upstream } = personal();
  await using gateway = await testCore(upstream('shared'));
  const mallory = await gateway.connect({ principal: principal('mallory') });
  assert.deepEqual(await toolsOf(mallory), []);
  assert.equal(gateway.core.upstreams.get('up')?.lifecycle.phase, 'configured');
  const before = memory.starts;
  const time = stopTime(t);
  const client = new ModernClient(gateway, {}, principal('mallory'));
  client.request('subscriptions/listen', { notifications: { toolsListChanged: true } });
  assert.deepEqual((await time.passUntil(client.result('tools/list'), 1))['tools'], []);
  for (let minute = 0; minute < 5; minute++) await time.passUntil(nextTurn(), 60_000);
  assert.equal(memory.starts, before + 1, 'a refusal is not repeated without a request');
});

test('a change of lists is announced to the clients of its principal alone', TIMEOUT, async () => {
  const { memory, upstream } = personal();
  await using gateway = await testCore(upstream('shared'));
  const [anna, bert] = [
    await gateway.connect({ principal: principal('anna') }),
    await gateway.connect({ principal: principal('bert') }),
  ];
  for (const client of [anna, bert]) await toolsOf(client);
  await anna.result('tools/call', toolCall('up__of_anna'));
  const listed = memory.requests('tools/list').length;
  const peer = memory.peers.find(({ audience }) => audience === 'anna');
  peer?.send('{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}');
  await anna.waitForMessage(TOOLS_CHANGED);
  assert.equal(memory.requests('tools/list').length, listed + 1);
  assert.deepEqual(bert.listened, []);
});

test('a changed list of one principal that could not be read is read again', TIMEOUT, async () => {
  let isFailing = false;
  const tools = [{ name: 'echo', inputSchema: { type: 'object' } }];
  const memory = memoryUpstream({
    lists: { tools },
    hold: async (peer, { id }) => {
      if (isFailing) peer.send(`{"jsonrpc":"2.0","id":${id},"error":{"code":-32603,"message":"no lists"}}`);
      isFailing = false;
    },
    request: (peer, request) => peer.send(result(request, { for: peer.audience })),
  });
  const up = { memory, target: TARGET, credentials: 'principal', isolation: 'shared' } as const;
  await using gateway = await testCore({ up });
  const bert = await gateway.connect({ principal: principal('bert') });
  await bert.result('tools/call', toolCall('up__echo'));
  tools.push({ name: 'other', inputSchema: { type: 'object' } });
  isFailing = true;
  memory.peers[0]?.send('{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}');
  await bert.waitForMessage(TOOLS_CHANGED);
  assert.deepEqual(await toolsOf(bert), ['up__echo', 'up__other']);
});

test('any number of principals that are connected keep their lists', TIMEOUT, async () => {
  const { memory, upstream } = personal();
  await using gateway = await testCore(upstream('shared'));
  const names = Array.from({ length: LIMITS.offersPerUpstream + 8 }, (_, n) => `p${n}`);
  const clients = await Promise.all(names.map((name) => gateway.connect({ principal: principal(name) })));
  for (const client of clients) await toolsOf(client);
  for (const [n, client] of clients.entries()) {
    assert.equal((await client.result('tools/call', toolCall(`up__of_p${n}`)))['for'], `p${n}`);
    assert.deepEqual(await toolsOf(client), [`up__of_p${n}`]);
  }
  assert.equal(memory.requests('tools/list').length, clients.length);
});
