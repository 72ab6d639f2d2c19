import assert from 'node:assert/strict';
import { test } from 'node:test';
import { LIMITS } from '../../src/limits.ts';
import type { Answer, Request } from '../../src/protocol/jsonrpc.ts';
import { MemoryCounterTable } from '../../src/store/memory/counter-table.ts';
import { SharedCounters } from '../../src/store/shared-counters.ts';
import { accessOf, keyOf } from '../policy/policies.ts';
import { type TestCore, testCore, toolCall } from '../support/core.ts';
import { JoinedProcesses } from '../support/joined-processes.ts';
import { memoryUpstream, type MemoryUpstream, type Peer, result } from '../support/memory-upstream.ts';
import { modernRequest } from '../support/modern-client.ts';
import { stopTime } from '../support/stopped-time.ts';

const TIMEOUT = { timeout: 120_000 };
const ECHO = { name: 'echo', inputSchema: { type: 'object' } };

/** An upstream whose calls are answered when the test says so. */
function holding() {
  const held: { readonly peer: Peer; readonly request: Request }[] = [];
  const memory: MemoryUpstream = memoryUpstream({
    lists: { tools: [ECHO] },
    request: (peer, request) => {
      if (request.method === 'tools/call') held.push({ peer, request });
      else peer.send(result(request, {}));
    },
  });
  const arrived = (count: number) => memory.until(() => (held.length >= count ? true : undefined));
  const release = () => {
    const next = held.shift();
    assert.ok(next);
    next.peer.send(result(next.request, {}));
  };
  return { memory, held, arrived, release };
}

function code(answer: Answer): unknown {
  assert.ok(answer.kind === 'error', JSON.stringify(answer));
  const { data } = answer.error;
  return typeof data === 'object' && data !== null && 'code' in data ? data.code : undefined;
}

// R3
test('calls beyond an upstream’s concurrency are queued, and refused beyond the queue', TIMEOUT, async () => {
  const { memory, held, arrived, release } = holding();
  await using gateway = await testCore({ up: { memory, concurrency: 1, queue: 1 } });
  const client = await gateway.connect();
  const call = () => client.request('tools/call', toolCall('up__echo'));
  const first = call();
  await arrived(1);
  const second = call();
  const { answer } = await call();
  assert.equal(code(answer), 'overloaded');
  assert.ok(answer.kind === 'error');
  assert.partialDeepStrictEqual(answer.error.data, { executed: 'no', retryable: true, upstream: 'up' });
  assert.equal(held.length, 1);
  release();
  assert.equal((await first).answer.kind, 'result');
  await arrived(1);
  release();
  assert.equal((await second).answer.kind, 'result');
});

// R3
test('a call waits in the queue no longer than the config allows', TIMEOUT, async (t) => {
  const time = stopTime(t);
  const { memory, held, arrived, release } = holding();
  await using gateway = await testCore({ up: { memory, concurrency: 1, queueMs: 30 } });
  const client = await gateway.connect();
  const first = client.request('tools/call', toolCall('up__echo'));
  await arrived(1);
  const { answer } = await time.passUntil(client.request('tools/call', toolCall('up__echo')), 30);
  assert.equal(code(answer), 'overloaded');
  assert.equal(held.length, 1);
  release();
  await first;
  const third = client.request('tools/call', toolCall('up__echo'));
  await arrived(1);
  release();
  assert.equal((await third).answer.kind, 'result');
});

// REL-18
test('an upstream with a full queue does not slow another one', TIMEOUT, async () => {
  const { memory, arrived, release } = holding();
  await using gateway = await testCore({
    up: { memory, concurrency: 1 },
    other: { memory: memoryUpstream({ lists: { tools: [ECHO] } }) },
  });
  const client = await gateway.connect();
  const calls = [1, 2, 3].map(() => client.request('tools/call', toolCall('up__echo')));
  await arrived(1);
  await client.result('tools/call', toolCall('other__echo'));
  for (const call of calls) {
    await arrived(1);
    release();
    await call;
  }
});

// REL-06
test('a call cancelled in the queue ends at once and never reaches the upstream', TIMEOUT, async () => {
  const { memory, held, arrived, release } = holding();
  await using gateway = await testCore({ up: { memory, concurrency: 1, queue: 1 } });
  const client = await gateway.connect();
  const first = client.request('tools/call', toolCall('up__echo'));
  await arrived(1);
  const second = client.send('tools/call', toolCall('up__echo'), { id: '"second"' });
  client.notify('notifications/cancelled', { requestId: 'second' });
  assert.equal((await second).answer, undefined);
  const third = client.request('tools/call', toolCall('up__echo'));
  release();
  await first;
  await arrived(1);
  release();
  assert.equal((await third).answer.kind, 'result');
  assert.equal(held.length, 0);
  assert.equal(memory.requests('tools/call').length, 2);
});

// REL-06
test('a call cancelled while its upstream starts ends at once and is never sent', TIMEOUT, async () => {
  const opening = Promise.withResolvers<void>();
  const memory: MemoryUpstream = memoryUpstream({
    lists: { tools: [ECHO] },
    start: () => (memory.starts === 1 ? Promise.resolve() : opening.promise),
  });
  await using gateway = await testCore({ up: { memory } });
  // The first client gets the process that read the lists.
  await (await gateway.connect()).result('tools/call', toolCall('up__echo'));
  const client = await gateway.connect();
  const call = client.send('tools/call', toolCall('up__echo'), { id: '"x"' });
  await memory.until(() => memory.starts >= 2 || undefined);
  client.notify('notifications/cancelled', { requestId: 'x' });
  const { answer } = await call;
  const wasOpen = memory.peers.length > 1;
  opening.resolve();
  assert.equal(answer, undefined);
  assert.ok(!wasOpen);
  assert.equal(memory.requests('tools/call').length, 1);
});

test('a call releases its slot while its client answers a question', TIMEOUT, async () => {
  const memory = memoryUpstream({
    lists: { tools: [ECHO] },
    request: (peer, request) => {
      if (request.params?.object('arguments')?.raw('ask') === undefined) return peer.send(result(request, {}));
      const params = '{"message":"Sure?","requestedSchema":{"type":"object","properties":{}}}';
      peer.send(`{"jsonrpc":"2.0","id":"q","method":"elicitation/create","params":${params}}`);
    },
    response: (peer) => {
      const call = peer.received.find((m) => m.kind === 'request' && m.method === 'tools/call');
      if (call?.kind === 'request') peer.send(result(call, {}));
    },
  });
  await using gateway = await testCore({ up: { memory, concurrency: 1 } });
  const [thinking, other] = [await gateway.connect({ capabilities: { elicitation: {} } }), await gateway.connect()];
  const asked = Promise.withResolvers<string>();
  const call = thinking.request('tools/call', toolCall('up__echo', { ask: true }), {
    onMessage: (message) => {
      if (message.kind === 'request') asked.resolve(message.id);
    },
  });
  const id = await asked.promise;
  await other.result('tools/call', toolCall('up__echo'));
  thinking.answer(id, { action: 'decline' });
  assert.equal((await call).answer.kind, 'result');
  // The place was given back once: two may not be inside now.
  await other.result('tools/call', toolCall('up__echo'));
});

// G5, L-013
test('a session has a bounded number of requests under way, pings aside', TIMEOUT, async () => {
  const { memory, arrived, release } = holding();
  const limits = { inFlightPerSession: 2 };
  await using gateway = await testCore({ up: { memory } }, { limits });
  const [client, other] = [await gateway.connect(), await gateway.connect()];
  const calls = [1, 2].map(() => client.request('tools/call', toolCall('up__echo')));
  await arrived(2);
  assert.equal(code((await client.request('tools/list')).answer), 'overloaded');
  await client.result('ping');
  await other.result('tools/list');
  release();
  release();
  await Promise.all(calls);
  await client.result('tools/list');
});

// G5
test('processes count a client group together, however often they were reloaded', TIMEOUT, async (t) => {
  const table = new MemoryCounterTable(60_000);
  const processes = new JoinedProcesses();
  const counters = new SharedCounters({ table, process: 'p', processes: () => 2 });
  t.after(() => counters.close());
  processes.counters = counters;
  const ada = { principal: keyOf('ada') };
  const accessFor = (role: string) => accessOf({ [role]: { upstreams: ['up'] } }, [{ roles: [role], keys: ['ada'] }]);
  const limits = { inFlightPerSession: 2 };
  const [here, there] = [holding(), holding()];
  // Without state on its connections, each process has one of its own.
  const start = ({ memory }: typeof here) =>
    testCore({ up: { memory, isolation: 'shared' } }, { limits, access: accessFor('first') }, processes);
  await using first = await start(here);
  await using second = await start(there);
  await modernRequest(first, 'tools/list', {}, ada).reply;
  for (const [gateway, roles] of [
    [first, ['second']],
    [second, ['other', 'second']],
  ] as const) {
    for (const role of roles) {
      await gateway.reload({ access: accessFor(role) });
    }
  }
  const call = (gateway: TestCore) => modernRequest(gateway, 'tools/call', toolCall('up__echo'), ada).reply;
  const calls = [call(first), call(second)];
  await Promise.all([here.arrived(1), there.arrived(1)]);
  const { error } = await call(second);
  assert.partialDeepStrictEqual(error?.data, { code: 'overloaded', executed: 'no' });
  here.release();
  there.release();
  for (const { result: answer } of await Promise.all(calls)) assert.ok(answer);
});

// N-03
test('a session beyond the limit replaces one without upstream state', TIMEOUT, async () => {
  const limits = { sessionsPerPrincipal: 2 };
  await using gateway = await testCore({ up: { memory: memoryUpstream({ lists: { tools: [ECHO] } }) } }, { limits });
  const first = await gateway.connect({ listens: false });
  await first.result('tools/call', toolCall('up__echo'));
  const second = await gateway.connect({ listens: false });
  await second.result('ping');
  await gateway.connect({ listens: false });
  assert.deepEqual([first.session.closed.aborted, second.session.closed.aborted], [false, true]);
  const woken = await gateway.core.gateway.findSession(second.session.id, second.session.caller.principal, '');
  assert.ok(woken, 'its id still works');
});

// N-03
test('no session with upstream state ends for another; the new one is refused', TIMEOUT, async () => {
  const limits = { sessionsPerPrincipal: 2 };
  await using gateway = await testCore({ up: { memory: memoryUpstream({ lists: { tools: [ECHO] } }) } }, { limits });
  const clients = [await gateway.connect({ listens: false }), await gateway.connect({ listens: false })];
  for (const client of clients) await client.result('tools/call', toolCall('up__echo'));
  await assert.rejects(gateway.connect(), /overloaded.*sessionsPerPrincipal|sessionsPerPrincipal.*overloaded/);
  assert.deepEqual(
    clients.map(({ session }) => session.closed.aborted),
    [false, false],
  );
});

test('a principal whose sessions are all in use is refused another; others are not', TIMEOUT, async () => {
  const limits = { sessionsPerPrincipal: 2 };
  await using gateway = await testCore({ up: { memory: memoryUpstream({}) } }, { limits });
  await gateway.connect();
  await gateway.connect();
  await assert.rejects(gateway.connect(), /overloaded/);
  await gateway.connect({ principal: { key: 'other', label: 'other', scopes: [] } });
});

test('sessions that open concurrently count towards the limit', TIMEOUT, async () => {
  const limits = { sessionsPerPrincipal: 2 };
  await using gateway = await testCore({ up: { memory: memoryUpstream({}) } }, { limits });
  const opened = await Promise.allSettled(Array.from({ length: 6 }, () => gateway.connect()));
  const awake = opened.filter((one) => one.status === 'fulfilled' && !one.value.session.closed.aborted);
  assert.ok(awake.length <= 2, `${awake.length} sessions`);
});

/** An upstream that starts when the test says so. */
function waiting() {
  const { promise, resolve } = Promise.withResolvers<void>();
  return { memory: memoryUpstream({ lists: { tools: [ECHO] }, start: () => promise }), release: resolve };
}

test('an initialize beyond the sessions of its principal starts nothing', TIMEOUT, async () => {
  const { memory, release } = waiting();
  await using gateway = await testCore(
    { up: { memory } },
    { limits: { sessionsPerPrincipal: 2 }, lists: { waitMs: 1 } },
  );
  const opening = Array.from({ length: 12 }, (_, n) => gateway.connect({ capabilities: { elicitation: { n } } }));
  const outcomes = (await Promise.allSettled(opening)).map(({ status }) => status);
  assert.equal(outcomes.filter((status) => status === 'fulfilled').length, 2);
  release();
  assert.equal(memory.starts, 2);
});

test('a client that makes too many listings wait is refused, and another one is not', TIMEOUT, async () => {
  const { memory, release } = waiting();
  await using gateway = await testCore(
    { up: { memory } },
    { limits: { sessionsPerPrincipal: 1_000 }, lists: { waitMs: 1 } },
  );
  const open = (name: string, n: number) =>
    gateway.connect({ principal: { key: name, label: name, scopes: [] }, capabilities: { elicitation: { n } } });
  // Those that wait, and those that run.
  const most = LIMITS.waitingListingsPerPrincipal + 16;
  const outcomes = await Promise.allSettled(Array.from({ length: most + 1 }, (_, n) => open('ann', n)));
  const refused = outcomes.flatMap((outcome) => (outcome.status === 'rejected' ? [String(outcome.reason)] : []));
  assert.match(refused[0] ?? '', /listings of servers wait for their turn already/);
  await open('bob', most + 1);
  release();
});
