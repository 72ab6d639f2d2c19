import assert from 'node:assert/strict';
import { test } from 'node:test';
import { diffConfigs } from '../../../src/config/changes/diff.ts';
import { GatewayError } from '../../../src/errors.ts';
import { Session } from '../../../src/gateway/clients/session.ts';
import { Sessions } from '../../../src/gateway/clients/sessions.ts';
import { SESSION_ENDED } from '../../../src/gateway/exchange/owners.ts';
import { Attachments } from '../../../src/gateway/handles/attachments.ts';
import { Offers } from '../../../src/gateway/lists/offers.ts';
import { RawObject } from '../../../src/json/json.ts';
import type { StartTransport } from '../../../src/upstream/rpc/transport.ts';
import { TestClient, type TestCore, testCore, toolCall } from '../../support/core.ts';
import { JoinedProcesses } from '../../support/joined-processes.ts';
import { memoryUpstream, result } from '../../support/memory-upstream.ts';
import { modernRequest } from '../../support/modern-client.ts';
import { waitUntil } from '../../support/wait-until.ts';

const TIMEOUT = { timeout: 120_000 };
const ANN = { key: 'ann', label: 'ann', scopes: [] };

test('only the whole id of a session in memory is known without asking for its owner', TIMEOUT, async () => {
  await using gateway = await testCore({ up: { memory: memoryUpstream({}) } });
  const { session } = await gateway.connect();
  const { id } = session;
  const tag = id.slice(id.lastIndexOf('.'));
  const known = () => [id, `other${tag}`, tag, ''].map((one) => gateway.core.gateway.hasSession(one));
  assert.deepEqual(known(), [true, false, false, false]);
  await gateway.core.gateway.endSession(session);
  assert.deepEqual(known(), [false, false, false, false]);
});

test('a session is opened only by the process that owns it', TIMEOUT, async () => {
  const processes = new JoinedProcesses();
  await using gateway = await testCore({ up: { memory: memoryUpstream({}) } }, {}, processes);
  const other = processes.join();
  other.serve(gateway.core.gateway);
  processes.claimant = other.name;
  await assert.rejects(gateway.connect(), /belongs to another process/);
  processes.claimant = new GatewayError('overloaded', { message: 'the store is away' });
  await assert.rejects(gateway.connect(), /the store is away/);
  assert.equal(gateway.core.sessions.size, 0);
  processes.claimant = undefined;
  await gateway.connect();
});

// REL-28
test('a new session is claimed while its lists are read, so that no two waits add up', TIMEOUT, async (t) => {
  const reading = t.mock.method(Offers.prototype, 'loadCatalog');
  const processes = new JoinedProcesses();
  const join = processes.join.bind(processes);
  const claims: string[] = [];
  processes.join = () => {
    const owners = join();
    const ownerOf = owners.ownerOf.bind(owners);
    owners.ownerOf = async (owned) => {
      claims.push(owned.kind);
      await waitUntil(() => reading.mock.callCount() > 0);
      return await ownerOf(owned);
    };
    return owners;
  };
  await using gateway = await testCore({ up: { memory: memoryUpstream({}) } }, {}, processes);
  await gateway.connect();
  assert.deepEqual(claims, ['session']);
});

test('a session that is released, or has ended, may be had by other processes', TIMEOUT, async () => {
  const processes = new JoinedProcesses();
  await using gateway = await testCore({ up: { memory: memoryUpstream({}) } }, {}, processes);
  const other = processes.join();
  const { session: opened } = await gateway.connect();
  const [session] = gateway.core.sessions;
  assert.ok(session !== undefined);
  const owned = { kind: 'session', session: session.ref } as const;
  assert.equal((await other.ownerOf(owned)).kind, 'elsewhere');
  gateway.core.sessions.releaseAll(true);
  assert.equal((await other.ownerOf(owned)).kind, 'here');
  other.release(session.ref);

  const { id, caller } = opened;
  const { gateway: front } = gateway.core;
  const restore = async () => {
    assert.equal((await front.ownerOfSession(id, caller.principal, caller.view)).kind, 'here');
    return await front.findSession(id, caller.principal, caller.view);
  };
  const restored = await restore();
  assert.ok(restored !== undefined);
  assert.equal((await other.ownerOf(owned)).kind, 'elsewhere');
  await front.endSession(restored);
  assert.equal(await restore(), undefined);
  assert.equal((await other.ownerOf(owned)).kind, 'here');
});

test('a session that another process gets while it is restored is not served', TIMEOUT, async () => {
  const processes = new JoinedProcesses();
  await using gateway = await testCore({ up: { memory: memoryUpstream({}) } }, {}, processes);
  const other = processes.join();
  const { session: opened } = await gateway.connect();
  const [session] = gateway.core.sessions;
  assert.ok(session !== undefined);
  gateway.core.sessions.releaseAll(true);
  const { gateway: front, sessions } = gateway.core;
  const { id, caller } = opened;
  const find = async () => await front.findSession(id, caller.principal, caller.view);
  assert.equal((await front.ownerOfSession(id, caller.principal, caller.view)).kind, 'here');
  other.release(session.ref);
  await other.ownerOf({ kind: 'session', session: session.ref });
  await assert.rejects(find, { code: 'store-unavailable' });
  assert.equal(sessions.size, 0);
  other.release(session.ref);
  assert.equal((await front.ownerOfSession(id, caller.principal, caller.view)).kind, 'here');
  assert.equal((await find())?.id, id);
});

// SEC-10
test('nobody is asked for the owner of an id that is invented, or of another principal', TIMEOUT, async () => {
  const processes = new JoinedProcesses();
  await using gateway = await testCore({ up: { memory: memoryUpstream({}) } }, {}, processes);
  const { session } = await gateway.connect();
  const { id, caller } = session;
  const { gateway: front, sessions } = gateway.core;
  sessions.releaseAll(true);
  processes.claimant = new GatewayError('overloaded', { message: 'somebody was asked' });
  const bob = { key: 'bob', label: 'bob', scopes: [] };
  for (const [text, principal, view] of [
    ['invented', caller.principal, caller.view],
    [`${id}x`, caller.principal, caller.view],
    [id, bob, caller.view],
    [id, caller.principal, 'up'],
  ] as const) {
    assert.equal((await front.ownerOfSession(text, principal, view)).kind, 'here');
    assert.equal(await front.findSession(text, principal, view), undefined);
  }
  await assert.rejects(async () => await front.ownerOfSession(id, caller.principal, caller.view), /somebody was asked/);
});

// R10
test('a session that is given away moves, and its requests finish where they are', TIMEOUT, async () => {
  const processes = new JoinedProcesses();
  const memory = memoryUpstream({
    lists: { tools: [{ name: 'act', inputSchema: { type: 'object' } }] },
    // The script answers when the test says so.
    request: () => undefined,
  });
  await using gateway = await testCore({ up: { memory } }, {}, processes);
  const other = processes.join();
  const client = await gateway.connect();
  const { session } = client;
  const calling = client.request('tools/call', toolCall('up__act'), { id: '7' });
  const called = await memory.until(() => memory.requests('tools/call')[0]);
  const [own] = gateway.core.sessions;
  assert.ok(own !== undefined);
  const owned = { kind: 'session', session: own.ref } as const;
  assert.equal((await other.ownerOf(owned)).kind, 'elsewhere');

  gateway.core.handOver();
  assert.equal(gateway.core.gateway.hasSession(session.id), false);
  assert.equal(gateway.core.sessions.size, 0);
  assert.equal((await other.ownerOf(owned)).kind, 'here');
  const { principal, view } = session.caller;
  const { gateway: front } = gateway.core;
  const cancel = { kind: 'notification', method: 'notifications/cancelled' } as const;
  const params = RawObject.of({ requestId: 8 });
  // Only its own client can reach what is left of it.
  void front.handleLateMessage(session.id, { ...principal, key: 'other' }, view, {
    ...cancel,
    params: RawObject.of({ requestId: 7 }),
  });
  void front.handleLateMessage(`x${session.id}`, principal, view, {
    ...cancel,
    params: RawObject.of({ requestId: 7 }),
  });
  void front.handleLateMessage(session.id, principal, view, { ...cancel, params });
  memory.peers.at(-1)?.send(result(called, { content: [] }));
  assert.equal((await calling).answer.kind, 'result');
});

// R10
test('a session that was given away is told once of the state that stays behind', TIMEOUT, async () => {
  const memory = memoryUpstream({
    lists: { tools: [{ name: 'act', inputSchema: { type: 'object' } }] },
    request: () => undefined,
  });
  await using gateway = await testCore({ up: { memory } }, {}, new JoinedProcesses());
  const client = await gateway.connect();
  const calls = ['7', '8'].map((id) => client.request('tools/call', toolCall('up__act'), { id }));
  await memory.until(() => memory.requests('tools/call')[1]);
  gateway.core.handOver();
  const losses: unknown[] = [];
  for (const [index, calling] of calls.entries()) {
    const called = memory.requests('tools/call')[index];
    assert.ok(called !== undefined);
    memory.peers.at(-1)?.send(result(called, { content: [] }));
    const { answer } = await calling;
    assert.ok(answer.kind === 'result');
    losses.push(JSON.parse(answer.result)._meta?.['io.linkspan/stateLost']);
  }
  assert.partialDeepStrictEqual(losses, [{ upstream: 'up', reason: 'restored' }, undefined]);
});

/** An upstream whose sessions other processes can continue. `left` has whether they may, each time that this changes. */
function attachable() {
  const memory = memoryUpstream({ lists: { tools: [{ name: 'act', inputSchema: { type: 'object' } }] } });
  const left: boolean[] = [];
  const start: StartTransport = async (...args) => ({
    ...(await memory.start(...args)),
    session: { id: 'of the upstream', cookies: [] },
    attach: () => undefined,
    setLeft: (value) => void left.push(value),
  });
  const target = { kind: 'http', url: 'http://127.0.0.1:9/mcp', headers: {} } as const;
  return { up: { memory: { ...memory, start }, target, canAttach: true }, left };
}

/** Restarts a gateway. Returns a client that has called its upstream before. */
async function clientOfBefore(gateway: TestCore): Promise<TestClient> {
  const client = await gateway.connect();
  await client.result('tools/call', toolCall('up__act'));
  const [before] = gateway.core.sessions;
  await waitUntil(() => before?.attachable?.has('up') === true);
  await gateway.restart();
  return client;
}

// R10
test('a session stays at the upstream that has continued it, if it cannot be stored', TIMEOUT, async (t) => {
  const { up, left } = attachable();
  await using gateway = await testCore({ up });
  const client = await clientOfBefore(gateway);
  // As a store refuses the write of a process from which the session has moved.
  t.mock.method(Sessions.prototype, 'save', () => Promise.reject(new GatewayError('store-unavailable')));
  const { id, caller } = client.session;
  await gateway.core.gateway.findSession(id, caller.principal, caller.view);
  const [restored] = gateway.core.sessions;
  await waitUntil(() => restored?.links.has('up') === true);
  assert.equal(left.at(-1), false, 'it is continued');
  gateway.core.handOver();
  assert.equal(left.at(-1), true);
});

test('a session that is restored during a reload has the filters of after it', TIMEOUT, async (t) => {
  const { up } = attachable();
  await using gateway = await testCore({ up });
  const client = await clientOfBefore(gateway);
  const { config, core } = gateway;
  const next = { ...config, upstreams: config.upstreams.map((one) => ({ ...one, excludeTools: ['act'] })) };
  const unsealing = t.mock.method(Attachments.prototype, 'unseal', async () => {
    await core.apply(next, diffConfigs(config, next));
  });
  const { id, caller } = client.session;
  const session = await core.gateway.findSession(id, caller.principal, caller.view);
  assert.equal(unsealing.mock.callCount(), 1);
  const restored = new TestClient(() => core, session ?? client.session, RawObject.EMPTY, false);
  await assert.rejects(restored.result('tools/call', toolCall('up__act')), /up__act/);
  assert.equal(up.memory.requests('tools/call').length, 1);
});

// R10
test('a cancellation reaches a request of a session that was given away', TIMEOUT, async () => {
  const processes = new JoinedProcesses();
  const memory = memoryUpstream({
    lists: { tools: [{ name: 'act', inputSchema: { type: 'object' } }] },
    request: () => undefined,
  });
  await using gateway = await testCore({ up: { memory } }, {}, processes);
  const client = await gateway.connect();
  const { session } = client;
  const calling = client.send('tools/call', toolCall('up__act'), { id: '7' });
  await memory.until(() => memory.requests('tools/call')[0]);
  gateway.core.handOver();
  const params = RawObject.of({ requestId: 7 });
  void gateway.core.gateway.handleLateMessage(session.id, session.caller.principal, session.caller.view, {
    kind: 'notification',
    method: 'notifications/cancelled',
    params,
  });
  assert.equal((await calling).answer, undefined);
});

/** Processes of which the former one of a session says when it has handled the end of that session. */
function withFormer() {
  const processes = new JoinedProcesses();
  const join = processes.join.bind(processes);
  const ended = Promise.withResolvers<void>();
  const messages: string[] = [];
  processes.join = () => ({
    ...join(),
    formerOf: () => ({
      forward: () => Promise.reject(new Error('this process has no HTTP')),
      handleModernRequest: () => assert.fail('a modern request'),
      handleMessage: (_session, message) => {
        messages.push(message.kind === 'notification' ? message.method : message.kind);
        return ended.promise;
      },
    }),
  });
  return { processes, ended, messages };
}

/** A session in memory that an earlier process had. */
async function restored(gateway: Awaited<ReturnType<typeof testCore>>) {
  const { gateway: front } = gateway.core;
  const { id, caller } = (await gateway.connect()).session;
  gateway.core.handOver();
  assert.equal((await front.ownerOfSession(id, caller.principal, caller.view)).kind, 'here');
  const session = await front.findSession(id, caller.principal, caller.view);
  assert.ok(session !== undefined);
  return session;
}

// R10
test('a session is released when the process that had it before has ended its requests', TIMEOUT, async () => {
  const { processes, ended, messages } = withFormer();
  await using gateway = await testCore({ up: {} }, {}, processes);
  const { gateway: front, sessions } = gateway.core;
  const session = await restored(gateway);
  const ends = [front.endSession(session), front.endSession(session)];
  assert.deepEqual(messages, [SESSION_ENDED.method]);
  processes.revoke(session.ref);
  assert.equal(sessions.size, 1);
  ended.resolve();
  await Promise.all(ends);
  assert.equal(sessions.size, 0);
});

// R10
test('a session that is ending is found by no request, here or in another process', TIMEOUT, async () => {
  const { processes, ended } = withFormer();
  await using gateway = await testCore({ up: {} }, {}, processes);
  const { gateway: front, sessions } = gateway.core;
  const session = await restored(gateway);
  const { id, caller } = session;
  const find = async () => await front.findSession(id, caller.principal, caller.view);
  const ending = front.endSession(session);
  assert.equal(await find(), undefined);
  gateway.core.handOver();
  assert.equal((await front.ownerOfSession(id, caller.principal, caller.view)).kind, 'here');
  assert.equal(await find(), undefined, 'it is stored that it has ended');
  ended.resolve();
  await ending;
  assert.ok([...sessions.all()].every((one) => one !== session));
});

// R10
test('a session that is ending is ended at its upstreams though its process leaves', TIMEOUT, async () => {
  for (const leaves of ['hands over', 'stops'] as const) {
    const { processes, ended } = withFormer();
    const { up, left } = attachable();
    await using gateway = await testCore({ up }, {}, processes);
    const { gateway: front, sessions } = gateway.core;
    const session = Session.from(await restored(gateway));
    const client = new TestClient(() => gateway.core, session, RawObject.EMPTY, false);
    await client.result('tools/call', toolCall('up__act'));
    await waitUntil(() => session.attachable?.has('up') === true);
    const ending = front.endSession(session);
    if (leaves === 'hands over') gateway.core.handOver();
    else sessions.releaseAll(true);
    ended.resolve();
    await ending;
    assert.deepEqual([sessions.size, session.links.size, left.includes(true)], [0, 0, false], leaves);
  }
});

// R10
test('the end of a session ends its requests in the process that has given it away', TIMEOUT, async () => {
  const processes = new JoinedProcesses();
  const join = processes.join.bind(processes);
  processes.join = () => ({
    ...join(),
    // The same process stands for both, since only it can open the id.
    formerOf: () => ({
      forward: () => Promise.reject(new Error('this process has no HTTP')),
      handleModernRequest: () => assert.fail('a modern request'),
      handleMessage: ({ id, caller: { principal, view } }, message) =>
        gateway.core.gateway.handleLateMessage(id, principal, view, message),
    }),
  });
  const memory = memoryUpstream({
    lists: { tools: [{ name: 'act', inputSchema: { type: 'object' } }] },
    request: () => undefined,
  });
  await using gateway = await testCore({ up: { memory } }, {}, processes);
  const { gateway: front } = gateway.core;
  const client = await gateway.connect();
  const { id, caller } = client.session;
  const calling = client.request('tools/call', toolCall('up__act'));
  await memory.until(() => memory.requests('tools/call')[0]);
  gateway.core.handOver();
  assert.equal((await front.ownerOfSession(id, caller.principal, caller.view)).kind, 'here');
  const restored = await front.findSession(id, caller.principal, caller.view);
  assert.ok(restored !== undefined && restored !== client.session);
  await front.endSession(restored);
  const { answer } = await calling;
  assert.ok(answer.kind === 'error');
  assert.partialDeepStrictEqual(answer.error.data, { code: 'cancelled' });
});

// R10 N-77
test('a removed principal loses the requests of sessions that were given away', TIMEOUT, async () => {
  const memory = memoryUpstream({
    lists: { tools: [{ name: 'act', inputSchema: { type: 'object' } }] },
    request: () => undefined,
  });
  await using gateway = await testCore({ up: { memory } }, {}, new JoinedProcesses());
  const { sessions } = gateway.core;
  const [ann, bob] = [await gateway.connect({ principal: ANN }), await gateway.connect()];
  const calls = [ann, bob].map((client) => client.request('tools/call', toolCall('up__act')));
  await memory.until(() => memory.requests('tools/call')[1]);
  gateway.core.handOver();
  const later = { ...ANN, scopes: ['later'] };
  sessions.updatePrincipals((principal) => (principal.key === ANN.key ? later : principal));
  assert.equal(ann.session.caller.principal, later);
  await sessions.endWhere(({ principal }) => principal === ANN.key);
  const answer = await calls[0];
  assert.equal(answer?.answer.kind, 'error');
  await sessions.endWhere(({ principal }) => principal === bob.session.caller.principal.key);
  assert.equal((await calls[1])?.answer.kind, 'error');
});

test('a client whose endpoint is removed while it opens a session is told so', TIMEOUT, async () => {
  const profile = { id: 'p', upstreams: ['up'], includeTools: undefined, excludeTools: [], renames: {} };
  await using gateway = await testCore({ up: { memory: memoryUpstream({}) } }, { profiles: [profile] });
  const { config } = gateway;
  const without = { ...config, profiles: [] };
  const opening = gateway.connect({ view: 'p' });
  const asking = modernRequest(gateway, 'tools/list', {}, { view: 'p' }).reply;
  await gateway.core.apply(without, diffConfigs(config, without));
  await assert.rejects(opening, /session-unknown/);
  assert.equal(Object((await asking).error?.data).code, 'session-unknown');
});
