import assert from 'node:assert/strict';
import { test } from 'node:test';
import { LIMITS } from '../../src/limits.ts';
import type { Principal } from '../../src/policy/principal.ts';
import { testCore, type TestClient, toolCall } from '../support/core.ts';
import { memoryUpstream, type MemoryUpstream, type Peer, result } from '../support/memory-upstream.ts';
import { modernRequest } from '../support/modern-client.ts';
import { stopTime } from '../support/stopped-time.ts';

const TIMEOUT = { timeout: 120_000 };
const ECHO = { name: 'echo', inputSchema: { type: 'object' } };
const RESOURCES = { resources: { subscribe: true }, tools: { listChanged: true }, logging: {} };
const FILE = { uri: 'file:///a', name: 'a' };

const principal = (key: string): Principal => ({ key, label: key, scopes: [] });

/** An upstream whose tool answers with the number of the conversation it was called in. */
function counting(script: Partial<Parameters<typeof memoryUpstream>[0]> = {}): MemoryUpstream {
  const memory = memoryUpstream({
    lists: { tools: [ECHO], resources: [FILE] },
    capabilities: RESOURCES,
    request: (peer, request) => peer.send(result(request, { conversation: memory.peers.indexOf(peer) })),
    ...script,
  });
  return memory;
}

async function conversation(client: TestClient): Promise<unknown> {
  return (await client.result('tools/call', toolCall('up__echo')))['conversation'];
}

function methodsOf(peer: Peer | undefined): string[] {
  return (peer?.received ?? []).flatMap((message) => ('method' in message ? [message.method] : []));
}

// D6
test('isolation by session: each session has its own connection, and keeps it', TIMEOUT, async () => {
  const memory = counting();
  await using gateway = await testCore({ up: { memory } });
  const [a, b] = [await gateway.connect(), await gateway.connect()];
  const first = [await conversation(a), await conversation(b)];
  assert.notEqual(first[0], first[1]);
  assert.deepEqual([await conversation(a), await conversation(b)], first);
});

// D6
test('isolation by principal: sessions share a connection per principal', TIMEOUT, async () => {
  const memory = counting();
  await using gateway = await testCore({ up: { memory, isolation: 'principal' } });
  const [ann, bob] = [principal('ann'), principal('bob')];
  const a = await conversation(await gateway.connect({ principal: ann }));
  assert.equal(await conversation(await gateway.connect({ principal: ann })), a);
  assert.notEqual(await conversation(await gateway.connect({ principal: bob })), a);
});

// D6
test('isolation shared: all sessions and listings use one connection', TIMEOUT, async () => {
  const memory = counting();
  await using gateway = await testCore({ up: { memory, isolation: 'shared' } });
  const clients = [await gateway.connect(), await gateway.connect({ principal: principal('bob') })];
  assert.deepEqual(await Promise.all(clients.map(conversation)), [0, 0]);
  assert.equal(memory.peers.length, 1);
});

// D6
test('isolation by call: each call has a connection that ends with it', TIMEOUT, async () => {
  const memory = counting();
  await using gateway = await testCore({ up: { memory, isolation: 'call' } });
  const client = await gateway.connect();
  const seen = await Promise.all([1, 2, 3].map(() => conversation(client)));
  assert.equal(new Set(seen).size, 3);
  assert.ok(memory.open.size <= 1, `${memory.open.size} open`);
});

// D6
test('isolation by call: subscribing is refused, and opens no connection', TIMEOUT, async () => {
  const memory = counting();
  await using gateway = await testCore({ up: { memory, isolation: 'call' } });
  const client = await gateway.connect();
  await client.result('resources/list');
  const { starts } = memory;
  for (let i = 0; i < 4; i++) {
    const { answer } = await client.request('resources/subscribe', { uri: 'up+file:///a' });
    assert.ok(answer.kind === 'error' && /keeps no subscriptions/.test(answer.error.message));
    await client.request('resources/unsubscribe', { uri: 'up+file:///a' });
  }
  assert.equal(memory.starts, starts);
});

// SEC-12
test('a session’s own connections end with it', TIMEOUT, async () => {
  const memory = counting();
  await using gateway = await testCore({ up: { memory } });
  const client = await gateway.connect();
  await conversation(client);
  const before = memory.open.size;
  await gateway.core.gateway.endSession(client.session);
  await memory.until(() => memory.open.size < before || undefined);
});

// SEC-12
test('a connection opening to list for a session does not outlive it', TIMEOUT, async (t) => {
  // Else the sweep of idle connections would close it too.
  stopTime(t);
  const opening = Promise.withResolvers<void>();
  const memory: MemoryUpstream = counting({
    start: () => (memory.starts === 1 ? Promise.resolve() : opening.promise),
  });
  await using gateway = await testCore({ up: { memory } });
  // The first client gets the process that read the lists.
  await conversation(await gateway.connect());
  const client = await gateway.connect({ capabilities: { sampling: {} } });
  const listing = client.request('tools/list');
  await memory.until(() => memory.starts >= 2 || undefined);
  await gateway.core.gateway.endSession(client.session);
  opening.resolve();
  await memory.until(() => memory.open.size === 2 || undefined);
  await listing;
  await memory.until(() => memory.open.size === 1 || undefined);
});

// SEC-12
test('a session that ends while its connection opens leaves none; its call is answered', TIMEOUT, async (t) => {
  stopTime(t);
  const opening = Promise.withResolvers<void>();
  const memory: MemoryUpstream = counting({
    start: () => (memory.starts === 1 ? Promise.resolve() : opening.promise),
  });
  await using gateway = await testCore({ up: { memory } });
  await conversation(await gateway.connect());
  const client = await gateway.connect();
  const call = client.request('tools/call', toolCall('up__echo'));
  await memory.until(() => memory.starts >= 2 || undefined);
  await gateway.core.gateway.endSession(client.session);
  opening.resolve();
  await memory.until(() => memory.open.size === 2 || undefined);
  const { answer } = await call;
  assert.equal(answer.kind, 'error');
  assert.equal(memory.requests('tools/call').length, 1);
  await memory.until(() => memory.open.size === 1 || undefined);
});

//
test('an upstream gets no capabilities that the client’s revision does not have', TIMEOUT, async () => {
  const memory = counting();
  await using gateway = await testCore({ up: { memory } });
  const capabilities = { elicitation: { form: {}, url: {} }, sampling: { tools: {} }, roots: { listChanged: true } };
  const declared = async (revision: string) => {
    await conversation(await gateway.connect({ capabilities, revision }));
    return memory.peers.at(-1)?.capabilities;
  };
  assert.equal((await declared('2025-03-26'))?.raw('elicitation'), undefined);
  assert.equal((await declared('2025-06-18'))?.object('elicitation')?.raw('url'), undefined);
  assert.equal((await declared('2025-06-18'))?.object('sampling')?.raw('tools'), undefined);
  assert.equal((await declared('2025-11-25'))?.object('elicitation')?.raw('url'), '{}');
});

// D4
test('lists of one session’s own connection do not reach another session', TIMEOUT, async () => {
  const unlocked = new Set<Peer>();
  const memory: MemoryUpstream = memoryUpstream({
    listsOf: (peer) => ({ tools: unlocked.has(peer) ? [ECHO, { ...ECHO, name: 'secret' }] : [ECHO] }),
    request: (peer, request) => {
      if (request.method === 'tools/call') unlocked.add(peer);
      peer.send(result(request, {}));
    },
  });
  await using gateway = await testCore({ up: { memory } });
  const capabilities = { roots: {} };
  const ann = await gateway.connect({ capabilities, principal: principal('ann') });
  await ann.result('tools/call', toolCall('up__echo'));
  await ann.result('tools/list');
  const bob = await gateway.connect({ capabilities, principal: principal('bob') });
  const { tools } = await bob.result('tools/list');
  assert.deepEqual(tools, [{ ...ECHO, name: 'up__echo' }]);
});

//
test('a message of no call reaches no client if two sessions share a connection', TIMEOUT, async () => {
  const memory = counting();
  await using gateway = await testCore({ up: { memory, isolation: 'principal' } });
  const clients = [await gateway.connect(), await gateway.connect()];
  await Promise.all(clients.map(conversation));
  const [peer] = memory.peers.filter((one) => methodsOf(one).includes('tools/call'));
  peer?.send('{"jsonrpc":"2.0","method":"notifications/message","params":{"level":"error","data":"whose?"}}');
  peer?.send('{"jsonrpc":"2.0","id":"q","method":"roots/list"}');
  const answer = await memory.until(() => peer?.received.find(({ kind }) => kind === 'error' || kind === 'result'));
  assert.equal(answer.kind, 'error');
  assert.deepEqual(
    clients.flatMap(({ listened }) => listened),
    [],
  );
});

// D6
test('an unsubscribe does not end another session’s subscription on the connection', TIMEOUT, async () => {
  const memory = counting();
  await using gateway = await testCore({ up: { memory, isolation: 'principal' } });
  const [a, b] = [await gateway.connect(), await gateway.connect()];
  for (const client of [a, b]) await client.result('resources/subscribe', { uri: 'up+file:///a' });
  await b.result('resources/unsubscribe', { uri: 'up+file:///a' });
  await conversation(b);
  assert.equal(memory.requests('resources/unsubscribe').length, 0);
});

// SEC-12
test('a principal’s connection closes despite a subscription of an ended session', TIMEOUT, async () => {
  const memory = counting();
  await using gateway = await testCore({ up: { memory, isolation: 'principal', maxConnections: 1 } });
  const ann = await gateway.connect({ principal: principal('ann') });
  await ann.result('resources/subscribe', { uri: 'up+file:///a' });
  await gateway.core.gateway.endSession(ann.session);
  const bob = await gateway.connect({ principal: principal('bob') });
  assert.equal(typeof (await conversation(bob)), 'number');
});

// N-88
test('a client beyond the connections of an upstream is told which setting bounds them', TIMEOUT, async (t) => {
  const time = stopTime(t);
  const memory = counting();
  await using gateway = await testCore({ up: { memory, maxConnections: 1 } });
  await conversation(await gateway.connect());
  const refusal = /Overloaded: all connections of upstream \\"up\\" are in use .* \(its setting maxConnections: 1\)/;
  const second = await gateway.connect();
  await assert.rejects(time.passUntil(conversation(second), 100), refusal);
});

// N-88
test('the only connection of a remote upstream goes to a client that waits for it', TIMEOUT, async (t) => {
  const time = stopTime(t);
  const memory = counting();
  const target = { kind: 'http', url: 'http://127.0.0.1:9/mcp', headers: {} } as const;
  await using gateway = await testCore({ up: { memory, target, maxConnections: 1 } });
  const client = await gateway.connect();
  await client.result('tools/list');
  assert.equal(await time.passUntil(conversation(client), 100), 1);
});

for (const maxConnections of [1, 2]) {
  // N-88
  test(`connections that wait for changes in two eras go to clients: ${maxConnections}`, TIMEOUT, async (t) => {
    const time = stopTime(t);
    const both = { supportedVersions: ['2026-07-28'], protocolVersion: '2025-11-25', serverInfo: { name: 'memory' } };
    const memory: MemoryUpstream = counting({
      isRaw: true,
      request: (peer, request) => {
        const answer = { ...both, resultType: 'complete', capabilities: { tools: {} } };
        peer.send(result(request, { ...answer, conversation: memory.peers.indexOf(peer) }));
      },
    });
    const target = { kind: 'http', url: 'http://127.0.0.1:9/mcp', headers: {} } as const;
    await using gateway = await testCore({ up: { memory, target, maxConnections, era: 'auto' } });
    const client = await gateway.connect();
    await time.passUntil(client.result('tools/list'), 100);
    await time.passUntil(modernRequest(gateway, 'tools/list').reply, 100);
    assert.equal(typeof (await time.passUntil(conversation(client), 100)), 'number');
  });
}

// D6
test('concurrent opens never exceed the connections that the config allows', TIMEOUT, async (t) => {
  const time = stopTime(t);
  let most = 0;
  const memory: MemoryUpstream = counting({
    start: async () => {
      await new Promise((resolve) => setImmediate(resolve));
      most = Math.max(most, memory.open.size + 1);
    },
  });
  await using gateway = await testCore({ up: { memory, maxConnections: 3, queueMs: 1_000 } });
  const clients = await Promise.all(Array.from({ length: 10 }, () => gateway.connect()));
  const calls = clients.map((client) => client.request('tools/call', toolCall('up__echo')));
  await time.passUntil(Promise.all(calls), 100);
  assert.ok(memory.open.size <= 3 && most <= 3, `${memory.open.size} open, at most ${most}`);
});

// REL-14
test('the quota of processes covers all upstreams; a released process frees its share', TIMEOUT, async (t) => {
  const time = stopTime(t);
  const held: (() => void)[] = [];
  const memory: MemoryUpstream = counting({
    request: (peer, request) => {
      held.push(() => peer.send(result(request, {})));
    },
  });
  await using gateway = await testCore({ up: { memory, queueMs: 1_000 } }, { limits: { processes: 3 } });
  const clients: TestClient[] = [];
  for (let n = 1; n <= 3; n++) {
    const client = await gateway.connect();
    clients.push(client);
    void client.request('tools/call', toolCall('up__echo'));
    await memory.until(() => held.length === n || undefined);
  }
  const last = await gateway.connect();
  const refused = await time.passUntil(last.request('tools/call', toolCall('up__echo')), 100);
  assert.ok(refused.answer.kind === 'error');
  assert.partialDeepStrictEqual(refused.answer.error.data, { code: 'overloaded', executed: 'no', retryable: true });
  assert.ok(memory.open.size <= 3);

  for (const client of clients) await gateway.core.gateway.endSession(client.session);
  const again = last.request('tools/call', toolCall('up__echo'));
  await memory.until(() => held.length === 4 || undefined);
  held.at(-1)?.();
  assert.equal((await again).answer.kind, 'result');
});

// N-03
test('at the limit of processes a new session is refused, live ones keep theirs', TIMEOUT, async (t) => {
  const time = stopTime(t);
  const memory = counting();
  const other = counting();
  await using gateway = await testCore(
    { up: { memory, queueMs: 1_000 }, other: { memory: other, queueMs: 1_000 } },
    { limits: { processes: 3 } },
  );
  const clients = [await gateway.connect(), await gateway.connect(), await gateway.connect()];
  const seen = [];
  for (const client of clients) seen.push(await conversation(client));
  const newcomer = await gateway.connect();
  const { answer } = await time.passUntil(newcomer.request('tools/call', toolCall('up__echo')), 100);
  assert.ok(answer.kind === 'error');
  assert.partialDeepStrictEqual(answer.error.data, { code: 'overloaded', executed: 'no', retryable: true });
  assert.match(answer.error.message, /all processes .*gateway\.limits\.processes: 3/);
  const again = [];
  for (const client of clients) again.push(await conversation(client));
  assert.deepEqual(again, seen);
});

// N-03
test('a waiting session gets the process that another one releases', TIMEOUT, async () => {
  const memory = counting();
  await using gateway = await testCore({ up: { memory, maxConnections: 2 } }, { limits: { processes: 3 } });
  const clients = [await gateway.connect(), await gateway.connect()];
  for (const client of clients) await conversation(client);
  const newcomer = conversation(await gateway.connect());
  const [first] = clients;
  assert.ok(first !== undefined);
  await gateway.core.gateway.endSession(first.session);
  assert.equal(typeof (await newcomer), 'number');
});

// N-03
test('a process that only reads lists is closed for a session', TIMEOUT, async () => {
  const memory = counting();
  const other = counting();
  const limits = { processes: 2 };
  await using gateway = await testCore({ up: { memory }, other: { memory: other } }, { limits });
  const [a, b] = [await gateway.connect(), await gateway.connect()];
  await a.result('tools/list');
  assert.deepEqual([await conversation(a), typeof (await conversation(b))], [0, 'number']);
  assert.equal(other.open.size, 0);
});

// N-07
test('the process that read the lists serves the first session', TIMEOUT, async () => {
  const memory = counting();
  await using gateway = await testCore({ up: { memory } });
  const client = await gateway.connect();
  await client.result('tools/list');
  assert.equal(await conversation(client), 0);
  assert.equal(memory.starts, 1);
  assert.notEqual(await conversation(await gateway.connect()), 0);
});

// N-07
test('the process that reads the first lists gets the first client’s capabilities', TIMEOUT, async () => {
  const memory = counting();
  await using gateway = await testCore({ up: { memory } });
  const client = await gateway.connect({ capabilities: { sampling: {} } });
  await client.result('tools/list');
  assert.equal(await conversation(client), 0);
  assert.equal(memory.starts, 1);
  assert.notEqual(memory.peers[0]?.capabilities.raw('sampling'), undefined);
});

// N-07
test('a process serves no client while its lists are read', TIMEOUT, async () => {
  const grown = new Set<Peer>();
  let held: Promise<void> | undefined;
  const tools = ['grow', 'grown'].map((name) => ({ name, inputSchema: { type: 'object' } }));
  const memory = memoryUpstream({
    hold: () => held ?? Promise.resolve(),
    listsOf: (peer) => ({ tools: grown.has(peer) ? tools : tools.slice(0, 1) }),
    request: (peer, request) => {
      grown.add(peer);
      peer.send(result(request, { content: [] }));
    },
  });
  await using gateway = await testCore({ up: { memory } });
  await (await gateway.connect()).result('tools/list');
  await gateway.restart();
  const { promise, resolve } = Promise.withResolvers<undefined>();
  held = promise;
  await (await gateway.connect()).result('tools/call', toolCall('up__grow'));
  resolve(undefined);
  const other = await gateway.connect();
  const { tools: listed } = await other.result('tools/list');
  assert.deepEqual(listed, [{ name: 'up__grow', inputSchema: { type: 'object' } }]);
});

// N-60
test('200 sessions of one remote upstream keep their connections on the defaults', TIMEOUT, async () => {
  const memory = counting();
  const target = { kind: 'http', url: 'http://127.0.0.1:9/mcp', headers: {} } as const;
  await using gateway = await testCore({ up: { memory, target, concurrency: 1_024, maxConnections: 10_000 } });
  const clients = await Promise.all(Array.from({ length: 200 }, () => gateway.connect({ listens: false })));
  const seen = await Promise.all(clients.map(conversation));
  assert.equal(new Set(seen).size, 200);
  assert.deepEqual(await Promise.all(clients.map(conversation)), seen);
});

test('a client keeps its lists while others with many other capabilities come and go', TIMEOUT, async () => {
  await using gateway = await testCore({ up: { memory: counting() } });
  const client = await gateway.connect({ principal: principal('ann'), capabilities: { roots: {} } });
  const { tools } = await client.result('tools/list');
  const own = await conversation(client);
  for (let n = 0; n <= LIMITS.offersPerUpstream; n++) {
    const other = await gateway.connect({ principal: principal('bob'), capabilities: { elicitation: { n } } });
    await other.result('tools/list');
    await gateway.core.gateway.endSession(other.session);
  }
  assert.deepEqual((await client.result('tools/list'))['tools'], tools);
  assert.equal(await conversation(client), own);
});

/** Makes calls that end their process. Returns the messages of their errors. */
async function crash(client: TestClient, times: number, time: { pass(ms: number): void }): Promise<string[]> {
  const messages: string[] = [];
  for (let n = 0; n < times; n++) {
    time.pass(1_000);
    const { answer } = await client.request('tools/call', toolCall('up__echo', { crash: true }));
    messages.push(answer.kind === 'error' ? answer.error.message : '');
  }
  return messages;
}

function crashing(): MemoryUpstream {
  return counting({
    request: (peer, request) => {
      if (request.params?.raw('arguments')?.includes('crash') === true) return peer.crash('was killed');
      return peer.send(result(request, { content: [] }));
    },
  });
}

for (const isolation of ['session', 'principal', 'call'] as const) {
  // REL-10
  test(`isolation ${isolation}: calls that end processes pause their principal alone`, TIMEOUT, async (t) => {
    const memory = crashing();
    await using gateway = await testCore({ up: { memory, isolation } });
    const [ann, bob] = [principal('ann'), principal('bob')];
    const client = await gateway.connect({ principal: ann });
    await client.result('tools/list');
    const time = stopTime(t);
    const messages = await crash(client, 6, time);
    assert.deepEqual(
      messages.map((text) => /not available: calls of this principal/.test(text)),
      [...Array(5).fill(false), true],
    );
    const starts = memory.starts;
    const again = await gateway.connect({ principal: ann });
    assert.match((await crash(again, 1, time))[0] ?? '', /calls of this principal have ended its process 5 times/);
    assert.equal(memory.starts, starts);
    const other = await gateway.connect({ principal: bob });
    assert.deepEqual((await other.result('tools/call', toolCall('up__echo')))['content'], []);
    time.pass(60_000);
    assert.deepEqual((await client.result('tools/call', toolCall('up__echo')))['content'], []);
  });
}

// REL-10
test('processes that the calls of several principals end are a crash loop for all', TIMEOUT, async (t) => {
  const memory = crashing();
  await using gateway = await testCore({ up: { memory } });
  const clients = await Promise.all(['ann', 'bob'].map((key) => gateway.connect({ principal: principal(key) })));
  const time = stopTime(t);
  for (let round = 0; round < 3; round++) for (const client of clients) await crash(client, 1, time);
  const other = await gateway.connect({ principal: principal('cora') });
  assert.match((await crash(other, 1, time))[0] ?? '', /crash loop/);
});
