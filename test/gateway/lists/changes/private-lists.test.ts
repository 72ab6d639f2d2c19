import assert from 'node:assert/strict';
import { test } from 'node:test';
import { setImmediate as nextTurn } from 'node:timers/promises';
import { GatewayError } from '../../../../src/errors.ts';
import { LIMITS } from '../../../../src/limits.ts';
import type { Principal } from '../../../../src/policy/principal.ts';
import type { Message, Request } from '../../../../src/protocol/jsonrpc.ts';
import { type TestClient, testCore, type TestCore, toolCall } from '../../../support/core.ts';
import { GatewayParts } from '../../../support/gateway-parts.ts';
import { memoryUpstream, type MemoryUpstream, type Peer, result } from '../../../support/memory-upstream.ts';
import { ModernClient, modernRequest } from '../../../support/modern-client.ts';
import { waitUntil } from '../../../support/wait-until.ts';

const TIMEOUT = { timeout: 120_000 };
const LIST_CHANGED = 'notifications/tools/list_changed';
const STORM = `{"jsonrpc":"2.0","method":"${LIST_CHANGED}"}`;
const TOOL = { name: 'echo', inputSchema: { type: 'object' } };
const CLIENTS = 200;
const HTTP = { kind: 'http', url: 'http://127.0.0.1:9/mcp', headers: {} } as const;
/** Each session has a connection of its own. */
const PRIVATE = { target: HTTP, maxConnections: 2 * CLIENTS };

/** Holds list requests until they are released, and counts the most at once. */
class Gate {
  readonly #waiting = new Map<() => void, string>();
  readonly #onChange = new Set<() => void>();
  #isOpen = true;
  readonly peaks = new Map<string, number>();
  peak = 0;

  /** Begins to hold list requests. */
  shut(): void {
    this.#isOpen = false;
  }

  /** Releases all held list requests, and holds no later ones. */
  open(): void {
    this.#isOpen = true;
    for (const go of this.#waiting.keys()) go();
    this.#waiting.clear();
  }

  /** Releases the list requests held at present. */
  release(): void {
    const waiting = [...this.#waiting.keys()];
    this.#waiting.clear();
    for (const go of waiting) go();
  }

  count(upstream: string): number {
    return [...this.#waiting.values()].filter((one) => one === upstream).length;
  }

  async hold(upstream: string): Promise<void> {
    if (this.#isOpen) return;
    await new Promise<void>((resolve) => {
      this.#waiting.set(resolve, upstream);
      this.peaks.set(upstream, Math.max(this.peaks.get(upstream) ?? 0, this.count(upstream)));
      this.peak = Math.max(this.peak, this.#waiting.size);
      for (const onChange of this.#onChange) onChange();
    });
  }

  /** Resolves when the condition is true. Checks it after each held list request. */
  async until(holds: () => boolean): Promise<void> {
    while (!holds()) {
      await new Promise<void>((resolve) => {
        const onChange = () => {
          this.#onChange.delete(onChange);
          resolve();
        };
        this.#onChange.add(onChange);
      });
    }
  }
}

function held(gate: Gate, upstream: string): MemoryUpstream {
  return memoryUpstream({ lists: { tools: [TOOL] }, hold: () => gate.hold(upstream) });
}

/** Opens sessions, each with its own connection to each of these upstreams. */
async function sessions(gateway: TestCore, count: number, upstreams: readonly string[]): Promise<TestClient[]> {
  const clients: TestClient[] = [];
  for (let n = 0; n < count; n++) {
    const client = await gateway.connect();
    for (const id of upstreams) await client.result('tools/call', toolCall(`${id}__echo`));
    clients.push(client);
  }
  return clients;
}

/** Reports a change of lists on every connection of a session. */
function storm(memory: MemoryUpstream): void {
  for (const peer of memory.open) if (peer.received.some(isCall)) peer.send(STORM);
}

/** Resolves after the tasks that are queued in this process have run. */
async function turns(): Promise<void> {
  for (let turn = 0; turn < 20; turn++) await nextTurn();
}

async function limitsReached(gateway: TestCore, limit: string): Promise<number> {
  const text = await gateway.metrics.text();
  return Number(new RegExp(`linkspan_limit_reached_total\\{limit="${limit}"\\} (\\d+)`).exec(text)?.[1] ?? 0);
}

// N-63
test('many list_changed at once are queued: limit privateListingsPerUpstream', TIMEOUT, async () => {
  const gate = new Gate();
  const memory = held(gate, 'up');
  await using gateway = await testCore({ up: { memory, ...PRIVATE } });
  const clients = await sessions(gateway, CLIENTS, ['up']);
  gate.shut();
  storm(memory);
  await gate.until(() => gate.count('up') === LIMITS.privateListingsPerUpstream);
  await turns();
  gate.open();
  for (const client of clients) await client.waitForMessage(LIST_CHANGED);
  assert.equal(gate.peak, LIMITS.privateListingsPerUpstream);
  const waited = CLIENTS - LIMITS.privateListingsPerUpstream;
  assert.equal(await limitsReached(gateway, 'privateListingsPerUpstream'), waited);
});

// N-63
test('an upstream with many connections does not delay listings of others', TIMEOUT, async () => {
  const gate = new Gate();
  const [big, small] = [held(gate, 'big'), held(gate, 'small')];
  await using gateway = await testCore({ big: { memory: big, ...PRIVATE }, small: { memory: small, ...PRIVATE } });
  await sessions(gateway, 50, ['big']);
  const [client] = await sessions(gateway, 1, ['small']);
  gate.shut();
  storm(big);
  await gate.until(() => gate.count('big') === LIMITS.privateListingsPerUpstream);
  storm(small);
  await gate.until(() => gate.count('small') === 1);
  gate.open();
  await client?.waitForMessage(LIST_CHANGED);
});

// N-63
test('listings of all upstreams are queued: limit privateListings', TIMEOUT, async () => {
  const gate = new Gate();
  const ids = Array.from(
    { length: LIMITS.privateListings / LIMITS.privateListingsPerUpstream + 1 },
    (_, n) => `up${n}`,
  );
  const each = ids.map((id) => ({ id, memory: held(gate, id) }));
  await using gateway = await testCore(Object.fromEntries(each.map(({ id, memory }) => [id, { memory, ...PRIVATE }])));
  const clients = await sessions(gateway, LIMITS.privateListingsPerUpstream, ids);
  gate.shut();
  for (const { memory } of each) storm(memory);
  await gate.until(() => gate.peak === LIMITS.privateListings);
  await turns();
  // The last upstream comes next, whichever listing ends.
  const last = ids.at(-1) ?? '';
  assert.equal(gate.count(last), 0);
  gate.release();
  await gate.until(() => gate.count(last) > 0);
  gate.open();
  for (const client of clients) await client.waitForMessage(LIST_CHANGED);
  assert.equal(gate.peak, LIMITS.privateListings);
  assert.equal(await limitsReached(gateway, 'privateListings'), LIMITS.privateListingsPerUpstream);
});

// N-63
test('a connection that always reports changes does not delay others', TIMEOUT, async () => {
  const gate = new Gate();
  const memory = held(gate, 'up');
  await using gateway = await testCore({ up: { memory, ...PRIVATE } });
  await sessions(gateway, 2 * LIMITS.privateListingsPerUpstream, ['up']);
  const peers = [...memory.open].filter((peer) => peer.received.some(isCall));
  const noisy = peers.slice(0, LIMITS.privateListingsPerUpstream);
  const listed = () =>
    new Set(peers.filter((peer) => peer.received.findLastIndex(isList) > peer.received.findIndex(isCall)));
  gate.shut();
  for (const peer of peers) peer.send(STORM);
  await gate.until(() => listed().size === noisy.length);
  for (const peer of noisy) peer.send(STORM);
  gate.release();
  await gate.until(() => listed().size === peers.length);
  gate.open();
});

// N-63
test('a connection that closes while it waits is not listed, and others are', TIMEOUT, async () => {
  const gate = new Gate();
  const memory = held(gate, 'up');
  await using gateway = await testCore({ up: { memory, ...PRIVATE } });
  const clients = await sessions(gateway, 2 * LIMITS.privateListingsPerUpstream, ['up']);
  gate.shut();
  storm(memory);
  await gate.until(() => gate.count('up') === LIMITS.privateListingsPerUpstream);
  const [gone, ...kept] = clients.slice(LIMITS.privateListingsPerUpstream);
  const count = memory.requests('tools/list').length;
  assert.ok(gone !== undefined);
  await gateway.core.gateway.endSession(gone.session);
  gate.open();
  for (const client of kept) await client.waitForMessage(LIST_CHANGED);
  assert.equal(memory.requests('tools/list').length, count + kept.length);
});

// N-63
test('connections that listen again after a break are listed in the queue', TIMEOUT, async () => {
  const gate = new Gate();
  const listens = new Map<Peer, Request>();
  const complete = { resultType: 'complete', ttlMs: 0, cacheScope: 'private' };
  const memory = memoryUpstream({
    isRaw: true,
    lists: { tools: [TOOL] },
    hold: () => gate.hold('up'),
    request: (peer, request) => {
      if (request.method === 'server/discover') {
        const capabilities = { tools: { listChanged: true } };
        return peer.send(result(request, { ...complete, supportedVersions: ['2026-07-28'], capabilities }));
      }
      if (request.method !== 'subscriptions/listen') return peer.send(result(request, { ...complete, content: [] }));
      listens.set(peer, request);
      const method = 'notifications/subscriptions/acknowledged';
      const _meta = { 'io.modelcontextprotocol/subscriptionId': Number(request.id) };
      return peer.send(JSON.stringify({ jsonrpc: '2.0', method, params: { notifications: {}, _meta } }));
    },
  });
  await using gateway = await testCore({ up: { memory, era: 'modern' } });
  for (let n = 0; n < 3 * LIMITS.privateListingsPerUpstream; n++) {
    const principal: Principal = { key: `user ${n}`, label: `user ${n}`, scopes: [] };
    const { error } = await modernRequest(gateway, 'tools/call', toolCall('up__echo'), { principal }).reply;
    assert.equal(error, undefined);
  }
  gate.shut();
  const before = memory.requests('subscriptions/listen').length;
  for (const [peer, request] of listens) peer.send(result(request, {}));
  await memory.until(() => memory.requests('subscriptions/listen').length >= before + listens.size || undefined);
  await turns();
  gate.open();
  await memory.until(() => memory.requests('tools/list').length > listens.size || undefined);
  assert.equal(gate.peak, LIMITS.privateListingsPerUpstream);
});

// N-21 N-63
test('large lists of single connections beyond the limit are not kept', TIMEOUT, async () => {
  const large = Array.from({ length: 60 }, (_, n) => ({ ...TOOL, name: `own${n}`, description: 'x'.repeat(250_000) }));
  const memory = memoryUpstream({
    lists: { tools: [TOOL] },
    listsOf: (peer) => {
      const at = memory.peers.indexOf(peer);
      return { tools: peer.received.some(isCall) ? [{ ...TOOL, name: `of${at}` }, ...large] : [TOOL] };
    },
  });
  await using gateway = await testCore({ up: { memory, ...PRIVATE } });
  const clients = await sessions(gateway, 3, ['up']);
  const peers = [...memory.open].filter((peer) => peer.received.some(isCall));
  const names = async (client: TestClient | undefined) => {
    const { tools } = Object((await client?.result('tools/list')) ?? {});
    return tools.map(({ name }: { readonly name: string }) => name).slice(0, 1);
  };
  for (const peer of peers) {
    peer.send(STORM);
    await clients[peers.indexOf(peer)]?.waitForMessage(LIST_CHANGED);
  }
  const own = peers.map((peer) => `up__of${memory.peers.indexOf(peer)}`);
  assert.deepEqual(await Promise.all(clients.map(names)), [[own[0]], [own[1]], ['up__echo']]);
  assert.equal(await limitsReached(gateway, 'privateListBytesPerUpstream'), 1);
  const [first, , last] = clients;
  assert.ok(first !== undefined);
  await gateway.core.gateway.endSession(first.session);
  peers[2]?.send(STORM);
  await waitUntil(async () => (await names(last))[0] === own[2]);
});

function isCall(message: Message): boolean {
  return message.kind === 'request' && message.method === 'tools/call';
}

function isList(message: Message): boolean {
  return message.kind === 'request' && message.method === 'tools/list';
}

test('a change that is reported during a listing that fails is read afterwards', TIMEOUT, async () => {
  const held: Request[] = [];
  const memory = memoryUpstream({
    lists: { tools: [TOOL] },
    hold: (_peer, request) => (held.push(request) > 1 ? Promise.resolve() : new Promise(() => undefined)),
  });
  await using at = new GatewayParts({ up: { memory } });
  const outcomes: string[] = [];
  const lists = at.privateLists((_link, outcome) => outcomes.push(outcome));
  const { session } = at.session();
  const link = await at.upstream('up').link(session);
  lists.onChanged(link);
  const { id } = await memory.until(() => held[0]);
  lists.onChanged(link);
  memory.peers[0]?.fail(id, new GatewayError('upstream-timeout'));
  await waitUntil(() => outcomes.length === 2);
  assert.deepEqual(outcomes, ['failed', 'differs']);
  assert.equal(session.ownOffers.get('up')?.tools.length, 1);
});

test('the end of a session during a listing is not logged as a failure', TIMEOUT, async () => {
  const memory = memoryUpstream({ hold: () => new Promise(() => undefined) });
  await using at = new GatewayParts({ up: { memory } });
  const outcomes: string[] = [];
  const lists = at.privateLists((_link, outcome) => outcomes.push(outcome));
  const { session } = at.session();
  lists.onChanged(await at.upstream('up').link(session));
  await memory.until(() => memory.requests('tools/list')[0]);
  at.upstream('up').releaseUser(session);
  await waitUntil(() => outcomes.length === 1);
  assert.deepEqual(
    at.lines.filter((line) => line.includes('changed lists not fetched')),
    [],
  );
});

/** An upstream whose tool `enable` adds one of the tools `extra1` and `extra2` on its connection. */
function enabling(era: 'legacy' | 'modern', gate?: Gate): MemoryUpstream {
  const enabled = new Map<Peer, readonly string[]>();
  const complete = { resultType: 'complete', ttlMs: 0, cacheScope: 'private' };
  const listens = new Map<Peer, object>();
  const notify = (peer: Peer, method: string, params = {}) =>
    peer.send(JSON.stringify({ jsonrpc: '2.0', method, params: { ...params, _meta: listens.get(peer) } }));
  return memoryUpstream({
    isRaw: era === 'modern',
    ...(gate === undefined ? {} : { hold: () => gate.hold('up') }),
    listsOf: (peer) => ({
      tools: ['enable', 'ping', ...(enabled.get(peer) ?? [])].map((name) => ({ ...TOOL, name })),
    }),
    request: (peer, request) => {
      if (request.method === 'server/discover') {
        const capabilities = { tools: { listChanged: true } };
        return peer.send(result(request, { ...complete, supportedVersions: ['2026-07-28'], capabilities }));
      }
      if (request.method === 'subscriptions/listen') {
        listens.set(peer, { 'io.modelcontextprotocol/subscriptionId': Number(request.id) });
        const notifications = { toolsListChanged: true };
        return notify(peer, 'notifications/subscriptions/acknowledged', { notifications });
      }
      peer.send(result(request, { ...complete, content: [] }));
      if (request.params?.string('name') !== 'enable') return;
      gate?.shut();
      enabled.set(peer, enabled.has(peer) ? ['extra1', 'extra2'] : ['extra1']);
      notify(peer, LIST_CHANGED);
    },
  });
}

function namesIn({ tools }: Readonly<Record<string, unknown>>): readonly string[] {
  return Array.isArray(tools) ? tools.map((tool) => String(Object(tool).name)) : [];
}

test('a session that joins a connection gets the lists that it has for itself', TIMEOUT, async () => {
  const memory = enabling('legacy');
  await using gateway = await testCore({ up: { memory, isolation: 'principal' } });
  const first = await gateway.connect();
  await first.result('tools/call', toolCall('up__enable'));
  await first.waitForMessage(LIST_CHANGED);
  const second = await gateway.connect();
  await second.result('tools/call', toolCall('up__ping'));
  assert.ok(namesIn(await second.result('tools/list')).includes('up__extra1'));
  await second.result('tools/call', toolCall('up__extra1'));
});

test('clients of other capabilities get the lists of the connection that they join', TIMEOUT, async () => {
  const memory = enabling('modern');
  await using gateway = await testCore({ up: { memory, era: 'modern' } });
  const [first, second] = [new ModernClient(gateway), new ModernClient(gateway, { elicitation: {} })];
  const names = async (client: ModernClient) => namesIn(await client.result('tools/list'));
  await first.result('tools/call', toolCall('up__enable'));
  await waitUntil(async () => (await names(first)).includes('up__extra1'));
  await second.result('tools/call', toolCall('up__ping'));
  await waitUntil(async () => (await names(second)).includes('up__extra1'));
});

test('clients that join get lists of a change at which nobody had their capabilities', TIMEOUT, async () => {
  const memory = enabling('modern');
  await using gateway = await testCore({ up: { memory, era: 'modern', isolation: 'principal' } });
  const capabilities = { elicitation: {} };
  const first = await gateway.connect();
  const leaving = await gateway.connect({ capabilities });
  await leaving.result('tools/call', toolCall('up__ping'));
  const enable = async () => {
    await first.result('tools/call', toolCall('up__enable'));
    await first.waitForMessage(LIST_CHANGED);
  };
  await enable();
  await waitUntil(async () => namesIn(await leaving.result('tools/list')).includes('up__extra1'));
  await gateway.core.gateway.endSession(leaving.session);
  await enable();
  await waitUntil(async () => namesIn(await first.result('tools/list')).includes('up__extra2'));
  const joining = await gateway.connect({ capabilities });
  await joining.result('tools/call', toolCall('up__ping'));
  await waitUntil(async () => namesIn(await joining.result('tools/list')).includes('up__extra2'));
});

test('clients of other capabilities that join during a listing are listed after it', TIMEOUT, async () => {
  const gate = new Gate();
  const memory = enabling('modern', gate);
  await using gateway = await testCore({ up: { memory, era: 'modern', isolation: 'principal' } });
  const [first, second] = [await gateway.connect(), await gateway.connect({ capabilities: { elicitation: {} } })];
  await second.result('tools/list');
  await first.result('tools/call', toolCall('up__enable'));
  await gate.until(() => gate.count('up') > 0);
  await second.result('tools/call', toolCall('up__ping'));
  gate.open();
  await waitUntil(async () => namesIn(await second.result('tools/list')).includes('up__extra1'));
});

test('a change that a connection without users reports is read for who joins it', TIMEOUT, async () => {
  const names = ['enable', 'ping'];
  const memory = memoryUpstream({ listsOf: () => ({ tools: names.map((name) => ({ ...TOOL, name })) }) });
  await using gateway = await testCore({ up: { memory, isolation: 'principal' } });
  const first = await gateway.connect();
  await first.result('tools/call', toolCall('up__ping'));
  const peer = memory.peers.find(({ received }) => received.some(isCall));
  await gateway.core.gateway.endSession(first.session);
  names.push('extra1');
  peer?.send(STORM);
  const joining = await gateway.connect();
  await joining.result('tools/call', toolCall('up__ping'));
  await waitUntil(async () => namesIn(await joining.result('tools/list')).includes('up__extra1'));
});

for (const [what, capabilities] of [
  ['the only list', { tools: { listChanged: true } }],
  ['one list of several', { tools: { listChanged: true }, prompts: {} }],
] as const) {
  test(`a change that could not be read at once is read later: ${what}`, TIMEOUT, async () => {
    const names = ['echo'];
    let isRefused = false;
    const memory = memoryUpstream({
      capabilities,
      listsOf: () => ({ tools: names.map((name) => ({ ...TOOL, name })) }),
      hold: async (peer, { id, method }) => {
        if (!isRefused || method !== 'tools/list') return;
        isRefused = false;
        peer.send(`{"jsonrpc":"2.0","id":${id},"error":{"code":-32603,"message":"reloading"}}`);
      },
    });
    await using gateway = await testCore({ up: { memory } });
    const client = await gateway.connect();
    await client.result('tools/call', toolCall('up__echo'));
    names.push('more');
    isRefused = true;
    storm(memory);
    await client.waitForMessage(LIST_CHANGED);
    assert.deepEqual(namesIn(await client.result('tools/list')), ['up__echo', 'up__more']);
    await client.result('tools/call', toolCall('up__more'));
  });
}

test('a list that can never be read is not read again and again', TIMEOUT, async () => {
  const names = ['echo'];
  const memory = memoryUpstream({
    capabilities: { tools: { listChanged: true }, prompts: {} },
    listsOf: () => ({ tools: names.map((name) => ({ ...TOOL, name })) }),
    hold: async (peer, { id, method }) => {
      if (method === 'prompts/list') peer.fail(id, new GatewayError('upstream-protocol'));
    },
  });
  await using at = new GatewayParts({ up: { memory } });
  const upstream = at.upstream('up');
  const { session } = at.session();
  await assert.rejects(upstream.refresh('legacy', session, ''));
  const outcomes: string[] = [];
  const lists = at.privateLists((_link, outcome) => outcomes.push(outcome));
  names.push('more');
  lists.onChanged(await upstream.link(session));
  await waitUntil(() => outcomes.length === 1);
  assert.deepEqual(outcomes, ['differs']);
  assert.equal(session.ownOffers.get('up')?.tools.length, 2);
});
