import assert from 'node:assert/strict';
import { once } from 'node:events';
import { test } from 'node:test';
import { LOCAL } from '../../src/policy/principal.ts';
import { TestClient, type TestCore, testCore, toolCall } from '../support/core.ts';
import { memoryUpstream, type Peer, result } from '../support/memory-upstream.ts';
import { stopTime } from '../support/stopped-time.ts';

const TIMEOUT = { timeout: 120_000 };
const ECHO = { name: 'echo', inputSchema: { type: 'object' } };
const UPDATED = 'notifications/resources/updated';
const RESOURCES = { resources: { subscribe: true }, tools: {}, logging: {} };

/** The same client after a restart of the gateway: it goes on with its session id. */
async function resume(gateway: TestCore, client: TestClient): Promise<TestClient> {
  const session = await gateway.core.gateway.findSession(client.session.id, LOCAL, '');
  assert.ok(session, 'the session is unknown');
  return new TestClient(() => gateway.core, session, client.initialized, true);
}

// D7
test('after a restart a session continues with its log level and subscriptions', TIMEOUT, async () => {
  const memory = memoryUpstream({
    capabilities: RESOURCES,
    lists: { tools: [ECHO], resources: [{ uri: 'file:///a', name: 'a' }] },
  });
  await using gateway = await testCore({ up: { memory } });
  const before = await gateway.connect();
  await before.result('logging/setLevel', { level: 'alert' });
  await before.result('resources/subscribe', { uri: 'up+file:///a' });
  await gateway.restart();
  const first = memory.peers.length;

  const client = await resume(gateway, before);
  await client.result('tools/call', toolCall('up__echo'));
  const peer = memory.peers
    .slice(first)
    .find((one) => one.received.some((m) => 'method' in m && m.method === 'tools/call'));
  const requests = (peer?.received ?? []).flatMap((m) =>
    m.kind === 'request' ? [`${m.method} ${m.params?.toString() ?? ''}`] : [],
  );
  assert.ok(requests.includes('resources/subscribe {"uri":"file:///a"}'), requests.join());
  assert.ok(requests.includes('logging/setLevel {"level":"alert"}'), requests.join());
  peer?.send('{"jsonrpc":"2.0","method":"notifications/message","params":{"level":"error","data":"too little"}}');
  peer?.send('{"jsonrpc":"2.0","method":"notifications/resources/updated","params":{"uri":"file:///a"}}');
  // One update for changes during the restart, and one for the change after it.
  // A restored session is told that lists may have changed, too, in any order.
  const updates = () => client.listened.filter((message) => 'method' in message && message.method === UPDATED);
  await client.until(() => (updates().length === 2 ? true : undefined));
});

// D7
test('after a restart a client that only listens gets updates', TIMEOUT, async () => {
  const memory = memoryUpstream({ capabilities: RESOURCES, lists: { resources: [{ uri: 'file:///a', name: 'a' }] } });
  await using gateway = await testCore({ up: { memory } });
  const before = await gateway.connect();
  await before.result('resources/subscribe', { uri: 'up+file:///a' });
  await gateway.restart();
  const first = memory.requests('resources/subscribe').length;
  await resume(gateway, before);
  await memory.until(() => memory.requests('resources/subscribe')[first]);
});

// D4
test('after a restart the whole list is served, also while the upstream is down', TIMEOUT, async () => {
  let isUp = true;
  const memory = memoryUpstream({
    lists: { tools: [ECHO] },
    start: () => (isUp ? Promise.resolve() : new Promise(() => undefined)),
  });
  await using gateway = await testCore({ up: { memory } });
  await gateway.connect();
  isUp = false;
  await gateway.restart();
  const client = await gateway.connect();
  assert.partialDeepStrictEqual(await client.result('tools/list'), { tools: [{ name: 'up__echo' }] });
});

// D4
test('after a restart a client gets the lists for its capabilities', TIMEOUT, async () => {
  const capable = { ...ECHO, name: 'for-capable' };
  const memory = memoryUpstream({
    listsOf: (peer: Peer) => ({ tools: peer.capabilities.raw('sampling') === undefined ? [ECHO] : [ECHO, capable] }),
  });
  await using gateway = await testCore({ up: { memory } });
  const names = async () => {
    const client = await gateway.connect({ capabilities: { sampling: {} } });
    const { tools } = await client.result('tools/list');
    assert.ok(Array.isArray(tools));
    return tools.map((tool: { name: string }) => tool.name);
  };
  assert.deepEqual(await names(), ['up__echo', 'up__for-capable']);
  await gateway.restart();
  assert.deepEqual(await names(), ['up__echo', 'up__for-capable']);
});

test('a deleted session stays unknown, also after a restart', TIMEOUT, async () => {
  const memory = memoryUpstream({ lists: { tools: [ECHO] } });
  await using gateway = await testCore({ up: { memory } });
  const client = await gateway.connect();
  await gateway.core.gateway.endSession(client.session);
  assert.ok(client.session.closed.aborted);
  assert.equal(await gateway.core.gateway.findSession(client.session.id, LOCAL, ''), undefined);
  await gateway.restart();
  assert.equal(await gateway.core.gateway.findSession(client.session.id, LOCAL, ''), undefined);
});

// S-001 SEC-10
test('a session is unknown to other principals and endpoints, in memory or not', TIMEOUT, async () => {
  const memory = memoryUpstream({ lists: { tools: [ECHO] } });
  await using gateway = await testCore({ up: { memory } });
  const { id } = (await gateway.connect()).session;
  const other = { key: 'other', label: 'other', scopes: [] };
  for (let round = 0; round < 2; round++) {
    assert.equal(await gateway.core.gateway.findSession(id, other, ''), undefined);
    assert.equal(await gateway.core.gateway.findSession(id, LOCAL, 'up'), undefined);
    assert.ok(await gateway.core.gateway.findSession(id, LOCAL, ''));
    await gateway.restart();
  }
});

// S-001
test('a request of another principal with a session’s id does not end the session', TIMEOUT, async () => {
  await using gateway = await testCore({ up: { memory: memoryUpstream({}) } });
  const { id } = (await gateway.connect()).session;
  await gateway.restart();
  const other = { key: 'other', label: 'other', scopes: [] };
  const [strangers, own] = await Promise.all([
    gateway.core.gateway.findSession(id, other, ''),
    gateway.core.gateway.findSession(id, LOCAL, ''),
  ]);
  assert.equal(strangers, undefined);
  assert.ok(own);
});

// L-014
test('an answer to a question from before a restart answers no new question', TIMEOUT, async () => {
  const memory = memoryUpstream({
    lists: { tools: [ECHO] },
    request: (peer) =>
      peer.send('{"jsonrpc":"2.0","id":"q","method":"elicitation/create","params":{"message":"Sure?"}}'),
    response: (peer, response) => {
      const outcome = response.kind === 'result' ? response.result : 'error';
      const call = peer.received.find((m) => m.kind === 'request' && m.method === 'tools/call');
      if (call?.kind === 'request') peer.send(result(call, { content: [{ type: 'text', text: outcome }] }));
    },
  });
  await using gateway = await testCore({ up: { memory } });
  const before = await gateway.connect({ capabilities: { elicitation: {} } });
  const asked = Promise.withResolvers<string>();
  const call = before.request('tools/call', toolCall('up__echo'), {
    onMessage: (message) => {
      if (message.kind === 'request') asked.resolve(message.id);
    },
  });
  const old = await asked.promise;
  await gateway.restart();
  await call;

  const client = await resume(gateway, before);
  const { answer } = await client.request('tools/call', toolCall('up__echo'), {
    onMessage: (message) => {
      if (message.kind !== 'request') return;
      client.answer(old, { action: 'accept', content: { of: 'old' } });
      client.answer(message.id, { action: 'decline' });
    },
  });
  assert.ok(answer.kind === 'result');
  assert.ok(!answer.result.includes('old'), answer.result);
});

test('a session id fits into a header, however much the client declares', TIMEOUT, async () => {
  await using gateway = await testCore({ up: { memory: memoryUpstream({}) } });
  const client = await gateway.connect({ capabilities: { experimental: { blob: 'x'.repeat(20_000) } } });
  assert.ok(client.session.id.length < 4_096, `${client.session.id.length} characters`);
});

// M-008
test('a cursor still works after a restart if the list is the same', TIMEOUT, async () => {
  const tools = Array.from({ length: 1_200 }, (_, n) => ({ ...ECHO, name: `tool${n}` }));
  await using gateway = await testCore({ up: { memory: memoryUpstream({ lists: { tools } }) } });
  const before = await gateway.connect();
  const { nextCursor: cursor } = await before.result('tools/list');
  await gateway.restart();
  const client = await resume(gateway, before);
  const page = await client.result('tools/list', { cursor });
  assert.ok(Array.isArray(page['tools']));
  assert.equal(page['tools'].length, 200);
});

// N-31
test('maxAge ends a session in memory, and its stream', TIMEOUT, async (t) => {
  const time = stopTime(t);
  const memory = memoryUpstream({ lists: { tools: [ECHO] } });
  const sessions = {
    required: true,
    idleMs: 60_000,
    maxAgeMs: 500,
    parkMs: 60_000,
    keepAliveMs: 15_000,
    eventLimit: 1,
    eventLimitBytes: 1,
  };
  await using gateway = await testCore({ up: { memory } }, { sessions });
  const client = await gateway.connect();
  const find = () => gateway.core.gateway.findSession(client.session.id, LOCAL, '');
  time.pass(sessions.maxAgeMs - 1);
  assert.ok(await find());
  time.pass(1);
  assert.equal(await find(), undefined, 'the id is still accepted');
  assert.equal(client.session.closed.aborted, false);
  await time.passUntil(once(client.session.closed, 'abort'), 1_000);
});
