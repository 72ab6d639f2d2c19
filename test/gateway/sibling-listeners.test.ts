import assert from 'node:assert/strict';
import { suite, test } from 'node:test';
import type { UpstreamConfig } from '../../src/config/values/upstream-config.ts';
import { LIMITS } from '../../src/limits.ts';
import type { Principal } from '../../src/policy/principal.ts';
import { testCore, type TestCore, toolCall } from '../support/core.ts';
import { memoryUpstream, type MemoryUpstream, type Peer, result } from '../support/memory-upstream.ts';
import { type ModernOptions, type ModernRequest, modernRequest } from '../support/modern-client.ts';

const TIMEOUT = { timeout: 120_000 };
const URI = 'up+test://a';
const UPDATED = 'notifications/resources/updated';
const ACKNOWLEDGED = 'notifications/subscriptions/acknowledged';
const LIST_CHANGED = 'notifications/tools/list_changed';
/** Clients with these have connections of their own, and one for each call. */
const CAN_BE_ASKED = { capabilities: { elicitation: {} } };
const OTHER: Principal = { key: 'other', label: 'other', scopes: [] };

/** A server that keeps subscriptions for each conversation. `touch` changes its resource, `grow` its tools, `hold` waits. */
function keeper(resources: readonly string[] = ['test://a']): MemoryUpstream {
  const subscribed = new WeakMap<Peer, Set<string>>();
  const grown = new WeakSet<Peer>();
  const of = (peer: Peer) => subscribed.get(peer) ?? new Set<string>();
  return memoryUpstream({
    capabilities: { tools: { listChanged: true }, resources: { subscribe: true } },
    listsOf: (peer) => ({
      tools: ['touch', 'grow', 'hold', ...(grown.has(peer) ? ['grown'] : [])].map((name) => ({
        name,
        inputSchema: { type: 'object' },
      })),
      resources: resources.map((uri) => ({ uri, name: uri })),
    }),
    request: (peer, request) => {
      const uri = request.params?.string('uri') ?? '';
      if (request.method === 'resources/subscribe') subscribed.set(peer, of(peer).add(uri));
      if (request.method === 'resources/unsubscribe') of(peer).delete(uri);
      const tool = request.method === 'tools/call' ? request.params?.string('name') : undefined;
      if (tool === 'hold') return;
      if (tool === 'touch' && of(peer).has('test://a')) update(peer);
      if (tool === 'grow') {
        grown.add(peer);
        peer.send(`{"jsonrpc":"2.0","method":"${LIST_CHANGED}"}`);
      }
      peer.send(result(request, { content: [] }));
    },
  });
}

/** The same in the modern era: one process for all that a principal does at an endpoint. */
function modernKeeper(): MemoryUpstream {
  const listening = new WeakMap<Peer, string>();
  const complete = { resultType: 'complete', ttlMs: 0, cacheScope: 'private' };
  const meta = (id: string) => ({ _meta: { 'io.modelcontextprotocol/subscriptionId': Number(id) } });
  const send = (peer: Peer, method: string, params: object = {}) => {
    const id = listening.get(peer);
    if (id !== undefined) peer.send(JSON.stringify({ jsonrpc: '2.0', method, params: { ...params, ...meta(id) } }));
  };
  return memoryUpstream({
    isRaw: true,
    lists: { tools: ['grow', 'touch'].map((name) => ({ name, inputSchema: { type: 'object' } })) },
    request: (peer, request) => {
      if (request.method === 'server/discover') {
        const capabilities = { tools: { listChanged: true } };
        return peer.send(result(request, { ...complete, supportedVersions: ['2026-07-28'], capabilities }));
      }
      if (request.method === 'subscriptions/listen') {
        listening.set(peer, request.id);
        const notifications: unknown = JSON.parse(request.params?.raw('notifications') ?? '{}');
        return send(peer, ACKNOWLEDGED, { notifications });
      }
      if (request.params?.string('name') === 'grow') send(peer, LIST_CHANGED);
      return peer.send(result(request, { ...complete, content: [] }));
    },
  });
}

function update(peer: Peer): void {
  peer.send(JSON.stringify({ jsonrpc: '2.0', method: UPDATED, params: { uri: 'test://a' } }));
}

function listen(gateway: TestCore, notifications: object, options: ModernOptions = {}): Listener {
  const acknowledged = Promise.withResolvers<void>();
  const waiting = new Set<() => void>();
  const request = modernRequest(
    gateway,
    'subscriptions/listen',
    { notifications },
    {
      ...options,
      onMessage: (message) => {
        if (!('method' in message)) return;
        if (message.method === ACKNOWLEDGED) acknowledged.resolve();
        for (const look of waiting) look();
      },
    },
  );
  const received = () => request.messages.flatMap((message) => ('method' in message ? [message.method] : [])).slice(1);
  return {
    request,
    acknowledged: acknowledged.promise,
    received,
    waitFor: (method, count = 1) =>
      new Promise((resolve) => {
        const look = () => {
          if (received().filter((one) => one === method).length >= count) resolve();
        };
        waiting.add(look);
        look();
      }),
  };
}

interface Listener {
  readonly request: ModernRequest;
  readonly acknowledged: Promise<void>;
  /** The notifications after the acknowledgement, by method. */
  received(): readonly string[];
  waitFor(method: string, count?: number): Promise<void>;
}

async function call(gateway: TestCore, tool: string, options: ModernOptions = CAN_BE_ASKED): Promise<void> {
  const { error } = await modernRequest(gateway, 'tools/call', toolCall(`up__${tool}`), options).reply;
  assert.equal(error, undefined);
}

const RESOURCE = { resourceSubscriptions: [URI] };
const TOOLS = { toolsListChanged: true };

/** The conversations in which this was asked. */
function inputRequiredIn(memory: MemoryUpstream, method: string): readonly Peer[] {
  return memory.peers.filter((peer) =>
    peer.received.some((message) => message.kind === 'request' && message.method === method),
  );
}

// N-47
suite('a listener gets changes made by a call of the same principal', () => {
  for (const isolation of ['session', 'principal', 'shared'] satisfies UpstreamConfig['isolation'][]) {
    test(`in a resource, over another connection, isolation ${isolation}`, TIMEOUT, async () => {
      const memory = keeper();
      await using gateway = await testCore({ up: { memory, isolation } });
      const listener = listen(gateway, RESOURCE);
      await listener.acknowledged;
      await call(gateway, 'touch');
      await listener.waitFor(UPDATED);
      assert.deepEqual(listener.received(), [UPDATED]);
    });

    test(`in the lists, over another connection, isolation ${isolation}`, TIMEOUT, async () => {
      const memory = keeper();
      await using gateway = await testCore({ up: { memory, isolation } });
      const listener = listen(gateway, TOOLS);
      await listener.acknowledged;
      await call(gateway, 'grow');
      await listener.waitFor(LIST_CHANGED);
    });
  }

  test('over a connection that was opened before it listened', TIMEOUT, async () => {
    const memory = keeper();
    await using gateway = await testCore({ up: { memory } });
    await call(gateway, 'touch');
    const listener = listen(gateway, RESOURCE);
    await listener.acknowledged;
    await call(gateway, 'touch');
    await listener.waitFor(UPDATED);
  });

  test('over the connection of one call beside another', TIMEOUT, async () => {
    const memory = keeper();
    await using gateway = await testCore({ up: { memory } });
    const listener = listen(gateway, { ...RESOURCE, ...TOOLS }, CAN_BE_ASKED);
    await listener.acknowledged;
    const held = modernRequest(gateway, 'tools/call', toolCall('up__hold'), CAN_BE_ASKED);
    await memory.until(() => memory.requests('tools/call')[0]);
    await call(gateway, 'touch');
    assert.equal(inputRequiredIn(memory, 'tools/call').length, 2, 'not a connection of its own');
    await listener.waitFor(UPDATED);
    await call(gateway, 'grow');
    await listener.waitFor(LIST_CHANGED);
    held.call.cancel('enough');
    await held.reply;
  });

  test('at another endpoint', TIMEOUT, async () => {
    const memory = keeper();
    await using gateway = await testCore({ up: { memory } });
    const listener = listen(gateway, { resourceSubscriptions: ['test://a'], ...TOOLS }, { view: 'up' });
    await listener.acknowledged;
    await call(gateway, 'touch');
    await listener.waitFor(UPDATED);
    await call(gateway, 'grow');
    await listener.waitFor(LIST_CHANGED);
  });

  test('in the lists of a modern process, without another subscription', TIMEOUT, async () => {
    const memory = modernKeeper();
    await using gateway = await testCore({ up: { memory, era: 'modern' } });
    const listener = listen(gateway, TOOLS);
    await listener.acknowledged;
    // The stream of the process stands once it was listed.
    await call(gateway, 'touch');
    await memory.until(() => inputRequiredIn(memory, 'subscriptions/listen').length > 0 || undefined);
    await call(gateway, 'grow');
    await listener.waitFor(LIST_CHANGED);
  });
});

// N-47
suite('a listener gets no change', () => {
  test('of what another principal changes', TIMEOUT, async () => {
    const memory = keeper();
    await using gateway = await testCore({ up: { memory } });
    const [own, foreign] = [
      listen(gateway, { ...RESOURCE, ...TOOLS }),
      listen(gateway, { ...RESOURCE, ...TOOLS }, { principal: OTHER }),
    ];
    await Promise.all([own.acknowledged, foreign.acknowledged]);
    for (const tool of ['touch', 'grow']) await call(gateway, tool);
    await Promise.all([own.waitFor(UPDATED), own.waitFor(LIST_CHANGED)]);
    assert.deepEqual(foreign.received(), []);
    // A change by its own principal arrives.
    await call(gateway, 'grow', { ...CAN_BE_ASKED, principal: OTHER });
    await foreign.waitFor(LIST_CHANGED);
    assert.deepEqual(foreign.received(), [LIST_CHANGED]);
  });

  test('of what a session of the same principal changes on its own connection', TIMEOUT, async () => {
    const memory = keeper();
    await using gateway = await testCore({ up: { memory } });
    const listener = listen(gateway, { ...RESOURCE, ...TOOLS });
    await listener.acknowledged;
    const session = await gateway.connect();
    for (const tool of ['touch', 'grow']) await session.result('tools/call', toolCall(`up__${tool}`));
    await session.waitForMessage(LIST_CHANGED);
    assert.deepEqual(listener.received(), []);
  });
});

// N-47
suite('subscriptions on the connections of sibling groups', () => {
  test('end with the listener', TIMEOUT, async () => {
    const memory = keeper();
    await using gateway = await testCore({ up: { memory } });
    await call(gateway, 'touch');
    const listener = listen(gateway, RESOURCE);
    await listener.acknowledged;
    assert.equal(memory.requests('resources/subscribe').length, 2);
    listener.request.call.close();
    await listener.request.reply;
    await memory.until(() => memory.requests('resources/unsubscribe').length === 2 || undefined);
  });

  test('stay until the last of two listeners ends', TIMEOUT, async () => {
    const memory = keeper();
    await using gateway = await testCore({ up: { memory } });
    await call(gateway, 'touch');
    const [a, b] = [listen(gateway, RESOURCE), listen(gateway, RESOURCE, { capabilities: { sampling: {} } })];
    await Promise.all([a.acknowledged, b.acknowledged]);
    a.request.call.close();
    await a.request.reply;
    await call(gateway, 'touch');
    await b.waitFor(UPDATED);
    b.request.call.close();
    await b.request.reply;
    await memory.until(() => memory.requests('resources/unsubscribe').length === 3 || undefined);
    assert.equal(memory.requests('resources/subscribe').length, 3, 'one for each connection');
  });

  test('keep no connection open', TIMEOUT, async () => {
    const memory = keeper();
    // Shorter than groups are kept, so that only the connection is closed.
    const idleMs = 1_000;
    await using gateway = await testCore({ up: { memory, idleMs } });
    const listener = listen(gateway, RESOURCE);
    await listener.acknowledged;
    await call(gateway, 'touch');
    const [called] = inputRequiredIn(memory, 'tools/call');
    const [listening] = inputRequiredIn(memory, 'resources/subscribe');
    assert.ok(called !== undefined && listening !== undefined && called !== listening);
    gateway.core.sweep(performance.now() + 2 * idleMs);
    await memory.until(() => !memory.open.has(called) || undefined);
    assert.ok(memory.open.has(listening));
  });

  test('are bounded: limit siblingSubscriptions', TIMEOUT, async () => {
    const names = Array.from({ length: LIMITS.siblingSubscriptions + 1 }, (_, n) => `test://${n}`);
    const memory = keeper(names);
    await using gateway = await testCore({ up: { memory } });
    const halves = [names.slice(0, 600), names.slice(600)];
    for (const half of halves) {
      const listener = listen(gateway, { resourceSubscriptions: half.map((uri) => `up+${uri}`) });
      await listener.acknowledged;
    }
    await call(gateway, 'touch');
    const [called] = inputRequiredIn(memory, 'tools/call');
    const asked = called?.received.filter((one) => one.kind === 'request' && one.method === 'resources/subscribe');
    assert.equal(asked?.length, LIMITS.siblingSubscriptions);
    assert.match(await gateway.metrics.text(), /linkspan_limit_reached_total\{limit="siblingSubscriptions"\} 1/);
  });
});

// N-47 N-92
test('one change that many connections report is announced once', TIMEOUT, async () => {
  const memory = keeper();
  await using gateway = await testCore({ up: { memory } });
  const sets = [{ elicitation: {} }, { sampling: {} }, { roots: {} }, { elicitation: {}, sampling: {} }];
  for (const capabilities of sets) await call(gateway, 'touch', { capabilities });
  const listener = listen(gateway, { ...RESOURCE, ...TOOLS });
  await listener.acknowledged;
  for (const peer of memory.open) update(peer);
  await call(gateway, 'grow');
  await listener.waitFor(LIST_CHANGED);
  assert.deepEqual(
    listener.received().filter((method) => method === UPDATED),
    [UPDATED],
  );
});

// N-92
test('changes that one connection reports each are all announced', TIMEOUT, async () => {
  const memory = keeper();
  await using gateway = await testCore({ up: { memory } });
  const sets = [{ elicitation: {} }, { sampling: {} }];
  for (const capabilities of sets) await call(gateway, 'touch', { capabilities });
  const listener = listen(gateway, RESOURCE);
  await listener.acknowledged;
  for (const [at, capabilities] of sets.entries()) {
    await call(gateway, 'touch', { capabilities });
    await listener.waitFor(UPDATED, at + 1);
  }
});
