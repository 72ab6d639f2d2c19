import assert from 'node:assert/strict';
import { test } from 'node:test';
import type { Message } from '../../../src/protocol/jsonrpc.ts';
import { GatewayError } from '../../../src/errors.ts';
import { LIMITS } from '../../../src/limits.ts';
import { testCore, type TestClient, type TestCore, toolCall } from '../../support/core.ts';
import { GatewayParts } from '../../support/gateway-parts.ts';
import { memoryUpstream, type MemoryUpstream, result } from '../../support/memory-upstream.ts';
import { stopTime } from '../../support/stopped-time.ts';

const TIMEOUT = { timeout: 120_000 };
const ECHO = { name: 'echo', inputSchema: { type: 'object' } };
const KEY = 'io.linkspan/stateLost';
/** Longer than sessions may be idle in tests. */
const SESSION_IDLE_MS = 61_000;

function scripted(): MemoryUpstream {
  return memoryUpstream({
    lists: { tools: [ECHO] },
    request: (peer, request) => peer.send(result(request, { content: [], _meta: { own: 1 } })),
  });
}

async function metaOf(client: TestClient): Promise<unknown> {
  return (await client.result('tools/call', toolCall('up__echo')))['_meta'];
}

function isLog(message: Message): boolean {
  return 'method' in message && message.method === 'notifications/message';
}

// N-03
test('a lost process is reported by log message, metric and the next answer', TIMEOUT, async () => {
  const memory = scripted();
  await using gateway = await testCore({ up: { memory } });
  const client = await gateway.connect();
  assert.deepEqual(await metaOf(client), { own: 1 });
  memory.peers[0]?.crash();
  const logged = await client.until(() => client.listened.find(isLog));
  assert.ok(logged.kind === 'notification');
  assert.equal(logged.params?.string('level'), 'warning');
  assert.equal(logged.params?.object('data')?.string('upstream'), 'up');
  assert.partialDeepStrictEqual(await metaOf(client), { own: 1, [KEY]: { upstream: 'up', reason: 'crash' } });
  assert.deepEqual(await metaOf(client), { own: 1 }, 'reported once');
  assert.match(await gateway.metrics.text(), /linkspan_upstream_state_lost_total\{upstream="up",reason="crash"\} 1/);
});

// N-03
test('the end of a process that has answered no call is not reported', TIMEOUT, async () => {
  const memory = scripted();
  await using gateway = await testCore({ up: { memory } });
  const client = await gateway.connect();
  await client.result('tools/list');
  memory.peers[0]?.crash();
  assert.deepEqual(await metaOf(client), { own: 1 });
});

// N-03
test('a client with log level error gets no warning about lost state', TIMEOUT, async () => {
  const memory = scripted();
  await using gateway = await testCore({ up: { memory } });
  const client = await gateway.connect();
  await client.result('logging/setLevel', { level: 'error' });
  await metaOf(client);
  memory.peers[0]?.crash();
  assert.partialDeepStrictEqual(await metaOf(client), { [KEY]: { reason: 'crash' } });
  assert.ok(!client.listened.some(isLog));
});

// N-03
test('after a lost upstream session, the repeated call reports the lost state', TIMEOUT, async () => {
  const memory = scripted();
  await using gateway = await testCore({ up: { memory } });
  const client = await gateway.connect();
  await metaOf(client);
  memory.peers[0]?.end(new GatewayError('upstream-session-lost'));
  assert.partialDeepStrictEqual(await metaOf(client), { [KEY]: { reason: 'forgotten' } });
});

// N-03
test('the end of an idle process is reported as lost state', TIMEOUT, async (t) => {
  stopTime(t);
  const memory = scripted();
  await using gateway = await testCore({ up: { memory, idleMs: 1 } });
  const client = await gateway.connect();
  await metaOf(client);
  gateway.core.sweep(performance.now() + 60_000);
  await memory.until(() => memory.open.size === 0 || undefined);
  assert.partialDeepStrictEqual(await metaOf(client), { [KEY]: { upstream: 'up', reason: 'idle' } });
});

// N-03
test('after a restart the first answer of each upstream with state reports the loss', TIMEOUT, async () => {
  const [memory, other] = [scripted(), scripted()];
  await using gateway = await testCore({ up: { memory }, other: { memory: other } });
  const client = await gateway.connect();
  await metaOf(client);
  await gateway.restart();
  const session = await gateway.core.gateway.findSession(client.session.id, client.session.caller.principal, '');
  const call = async (tool: string) => {
    const { answer } = await client.request('tools/call', toolCall(tool), session === undefined ? {} : { session });
    return answer.kind === 'result' ? JSON.parse(answer.result)['_meta'] : answer.error;
  };
  assert.partialDeepStrictEqual(await call('up__echo'), { [KEY]: { upstream: 'up', reason: 'restored' } });
  assert.deepEqual(await call('up__echo'), { own: 1 });
  assert.deepEqual(await call('other__echo'), { own: 1 });
});

/** Lets a session be released as unused. Returns a function that calls in it once it is restored, and returns what the answer tells. */
function release(gateway: TestCore, client: TestClient): () => Promise<unknown> {
  gateway.core.sweep(performance.now() + SESSION_IDLE_MS);
  return async () => {
    const { id, caller } = client.session;
    const session = await gateway.core.gateway.findSession(id, caller.principal, '');
    assert.ok(session !== undefined && session !== client.session, 'it was released');
    const { answer } = await client.request('tools/call', toolCall('up__echo'), { session });
    return answer.kind === 'result' ? JSON.parse(answer.result)['_meta'] : answer.error;
  };
}

for (const isolation of ['shared', 'principal'] as const) {
  const up = { isolation, idleMs: 10 * SESSION_IDLE_MS };

  // N-03
  test(`isolation ${isolation}: an unused session has lost nothing while its process lives`, TIMEOUT, async () => {
    const memory = scripted();
    await using gateway = await testCore({ up: { memory, ...up } });
    const client = await gateway.connect({ listens: false });
    await metaOf(client);
    const call = release(gateway, client);
    assert.deepEqual(await call(), { own: 1 });
    assert.equal(memory.starts, 1);
    memory.peers[0]?.crash();
    await memory.until(() => memory.open.size === 0 || undefined);
    assert.partialDeepStrictEqual(await call(), { [KEY]: { reason: 'crash' } });
  });

  // N-03
  test(`isolation ${isolation}: an unused session is told of the end of its process`, TIMEOUT, async () => {
    const memory = scripted();
    await using gateway = await testCore({ up: { memory, ...up } });
    const client = await gateway.connect({ listens: false });
    await metaOf(client);
    const call = release(gateway, client);
    memory.peers[0]?.crash();
    await memory.until(() => memory.open.size === 0 || undefined);
    // Another client has a new process meanwhile.
    await metaOf(await gateway.connect());
    assert.partialDeepStrictEqual(await call(), { [KEY]: { upstream: 'up', reason: 'restored' } });
    assert.deepEqual(await call(), { own: 1 });
  });
}

// N-03
test('an unused session is told if its call goes on at a replaced upstream', async () => {
  await using parts = new GatewayParts({ up: { memory: scripted(), isolation: 'shared' } });
  const { stateLosses } = parts;
  const { session } = parts.session({ key: 'unused' });
  const upstream = parts.upstream('up');
  const link = await upstream.link(session);
  session.links.set('up', link);
  session.usedUpstreams = new Set(['up']);
  stateLosses.onUnused(session);
  const restored = parts.session({ key: 'unused' }).session;
  stateLosses.onRestored(restored, ['up']);
  assert.deepEqual([...(restored.stateLosses ?? [])], []);
  upstream.retire();
  stateLosses.onLinked(restored, link);
  assert.equal(restored.stateLosses?.get('up')?.reason, 'replaced');
});

test('limit unusedSessionsPerConnection: the one released first is told of a loss', async () => {
  const memory = scripted();
  await using parts = new GatewayParts({ up: { memory, isolation: 'shared' } });
  const { stateLosses } = parts;
  const link = await parts.upstream('up').link(parts.session().session);
  const restored = [...Array(LIMITS.unusedSessionsPerConnection + 1).keys()].map((n) => {
    const { session } = parts.session({ key: `s${n}` });
    session.links.set('up', link);
    session.usedUpstreams = new Set(['up']);
    stateLosses.onUnused(session);
    session.links.clear();
    return session;
  });
  for (const session of restored) {
    stateLosses.onRestored(session, ['up']);
    stateLosses.onLinked(session, link);
  }
  assert.deepEqual(
    restored.filter(({ stateLosses }) => stateLosses !== undefined),
    [restored[0]],
  );
});

// N-03
test('the end of a session is not reported as lost state', TIMEOUT, async () => {
  const memory = scripted();
  await using gateway = await testCore({ up: { memory } });
  const client = await gateway.connect();
  await metaOf(client);
  await gateway.core.gateway.endSession(client.session);
  await memory.until(() => memory.open.size === 0 || undefined);
  assert.doesNotMatch(await gateway.metrics.text(), /state_lost_total\{[^}]*\} [1-9]/);
});
