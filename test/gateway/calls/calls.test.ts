import assert from 'node:assert/strict';
import { setImmediate as nextTurn } from 'node:timers/promises';
import { test } from 'node:test';
import { commonKey, EMPTY_OFFER } from '../../../src/catalog/offer.ts';
import { GatewayError } from '../../../src/errors.ts';
import { META } from '../../../src/protocol/meta.ts';
import type { Request } from '../../../src/protocol/jsonrpc.ts';
import type { Overrides } from '../../downstream/edge.ts';
import { ANYONE } from '../../policy/policies.ts';
import { RPC } from '../../../src/protocol/rpc-codes.ts';
import { HttpStatusError } from '../../../src/upstream/rpc/http-status-error.ts';
import { memoryUpstream, type MemoryUpstream, type Peer, result } from '../../support/memory-upstream.ts';
import { stopTime } from '../../support/stopped-time.ts';
import {
  type Asked,
  answerQuestion,
  ASKED,
  asking,
  calling,
  DONE,
  ECHO,
  endOf,
  holding,
  modern,
  NOTHING,
  sentCalls,
} from './calling.ts';

const TIMEOUT = { timeout: 120_000 };
/** The time within which the gateway notices the end of a process. */
const RESEND_MS = 150; // subject
const rate = { name: 'r', to: ANYONE, endpoints: undefined, upstreams: undefined, tools: undefined } as const;
const ONCE: Overrides = { rates: [{ ...rate, per: 'principal', limit: 1, windowMs: 60_000 }] };

test('a call beyond a limit is refused before it takes a slot, and not sent', TIMEOUT, async () => {
  const { memory, next } = holding();
  const { at, begin, upstream } = await calling(memory, { config: ONCE, upstream: { concurrency: 1, queue: 1 } });
  await using _ = at;
  const { session } = at.session();
  const first = begin(session).answer();
  const { peer, request } = await next();
  assert.equal(await endOf(begin(session).answer()), 'rate-limited no');
  assert.deepEqual([upstream.limiter.activeCount, upstream.limiter.waitingCount], [1, 0]);
  peer.send(result(request, DONE));
  assert.equal(await endOf(first), 'result');
  assert.equal(sentCalls(memory).length, 1);
});

test('a call that was not made counts neither in rates nor in repeats', TIMEOUT, async () => {
  const { memory, next } = holding();
  const repeats = { limit: 1, windowMs: 60_000, tools: ['*'], exceptTools: [] };
  const { at, begin } = await calling(memory, {
    config: { repeats, rates: [{ ...rate, per: 'principal', limit: 2, windowMs: 60_000 }] },
    upstream: { concurrency: 1, queue: 0 },
  });
  await using _ = at;
  const { session } = at.session();
  const other = endOf(begin(session, { name: 'up__echo', arguments: { n: 1 } }).answer());
  const { peer, request } = await next();
  for (let n = 0; n < 3; n++) assert.equal(await endOf(begin(session).answer()), 'overloaded no');
  peer.send(result(request, DONE));
  assert.equal(await other, 'result');
  const made = endOf(begin(session).answer());
  const second = await next();
  second.peer.send(result(second.request, DONE));
  assert.equal(await made, 'result');
  assert.equal(await endOf(begin(session).answer()), 'rate-limited no');
});

test('a call that its upstream refuses unread counts in rates', TIMEOUT, async () => {
  const { memory, next } = holding();
  const { at, begin } = await calling(memory, { config: ONCE });
  await using _ = at;
  const { session } = at.session();
  const refused = endOf(begin(session).answer());
  const { peer, request } = await next();
  peer.fail(request.id, new GatewayError('too-large', { executed: 'no' }, new HttpStatusError(413)));
  assert.equal(await refused, 'too-large no');
  assert.equal(await endOf(begin(session).answer()), 'rate-limited no');
});

test('each end of a call frees its slot, and its place among those of its principal', TIMEOUT, async () => {
  const { memory, next } = holding();
  const { at, begin, upstream } = await calling(memory, { config: { limits: { inFlightPerPrincipal: 1 } } });
  await using _ = at;
  const { session } = at.session();
  type End = (peer: Peer, request: Request, call: Asked) => void;
  const ends: readonly End[] = [
    (peer, request) => peer.send(result(request, DONE)),
    (peer, { id }) => peer.send(`{"jsonrpc":"2.0","id":${id},"error":{"code":-32602,"message":"no"}}`),
    (peer, { id }) => peer.fail(id, new GatewayError('upstream-timeout')),
    (_peer, _request, { exchange }) => exchange.cancel('enough'),
    (peer) => peer.crash(),
    (peer, request) => peer.send(result(request, DONE)),
  ];
  const outcomes: string[] = [];
  for (const end of ends) {
    const call = begin(session);
    const ended = endOf(call.answer());
    const { peer, request } = await next();
    assert.equal(await endOf(begin(session).answer()), 'overloaded no', 'the only place is taken');
    end(peer, request, call);
    outcomes.push(await ended);
    assert.equal(upstream.limiter.activeCount, 0);
  }
  const failures = ['upstream-timeout unknown', 'cancelled unknown', 'upstream-lost unknown'];
  assert.deepEqual(outcomes, ['result', 'error', ...failures, 'result']);
});

test('a call that is cancelled as it gets its slot leaves the slot to the next', TIMEOUT, async () => {
  const { memory, next } = holding();
  const { at, begin, upstream } = await calling(memory, { upstream: { concurrency: 1 } });
  await using _ = at;
  const { session } = at.session();
  const [first, second, third] = [begin(session), begin(session), begin(session)];
  const ends = [first, second, third].map((call) => endOf(call.answer()));
  const one = await next();
  first.exchange.releaseSlot();
  second.exchange.cancel('enough');
  const other = await next();
  for (const { peer, request } of [one, other]) peer.send(result(request, DONE));
  assert.deepEqual(await Promise.all(ends), ['result', 'cancelled no', 'result']);
  assert.deepEqual([sentCalls(memory).length, upstream.limiter.isIdle], [2, true]);
});

test('a call that a dying process has not read goes to the next process, once', TIMEOUT, async (t) => {
  const time = stopTime(t);
  const lost = () => new GatewayError('upstream-lost', { executed: 'no' });
  const memory: MemoryUpstream = memoryUpstream({
    lists: { tools: [ECHO] },
    request: (peer, request) => {
      if (request.method !== 'tools/call' || peer !== memory.peers[0]) return peer.send(result(request, DONE));
      peer.fail(request.id, lost());
      // The gateway notices the end later.
      setTimeout(() => peer.crash(), RESEND_MS - 1);
    },
  });
  const { at, begin, upstream } = await calling(memory);
  await using _ = at;
  const { session } = at.session();
  assert.equal(await time.passUntil(endOf(begin(session).answer()), 10), 'result');
  assert.deepEqual([sentCalls(memory).length, memory.peers.length, upstream.limiter.activeCount], [2, 2, 0]);
  const again = memory.peers[1];
  assert.ok(again?.received.some((message) => message.kind === 'request' && message.method === 'tools/call'));
});

for (const isPinned of [true, false]) {
  const outcome = isPinned ? 'is refused if it is pinned' : 'is sent if it is not pinned';
  test(`a call of a tool that has gone while it waited ${outcome}`, TIMEOUT, async () => {
    const { memory, next } = holding();
    const { at, begin, upstream } = await calling(memory, { isPinned: () => isPinned, upstream: { concurrency: 1 } });
    await using _ = at;
    const { session } = at.session();
    const ends = [begin(session), begin(session)].map((call) => endOf(call.answer()));
    const first = await next();
    at.offers.update('up', commonKey('legacy'), { ...EMPTY_OFFER, revision: '2025-11-25' });
    first.peer.send(result(first.request, DONE));
    if (!isPinned) void next().then(({ peer, request }) => peer.send(result(request, DONE)));
    assert.deepEqual(await Promise.all(ends), ['result', isPinned ? 'unknown-tool undefined' : 'result']);
    assert.deepEqual([sentCalls(memory).length, upstream.limiter.activeCount], [isPinned ? 1 : 2, 0]);
  });
}

// SEC-33 P-012
test('a call of a pinned tool that goes while the call is recorded is refused', TIMEOUT, async () => {
  const memory = memoryUpstream({ lists: { tools: [ECHO] }, request: (peer, one) => peer.send(result(one, DONE)) });
  let onRecord = () => {};
  const audit = { begin: async () => onRecord() };
  const { at, begin } = await calling(memory, { isPinned: () => true, audit });
  await using _ = at;
  const { session } = at.session();
  // So the second call does not wait for a link.
  assert.equal(await endOf(begin(session).answer()), 'result');
  onRecord = () => void at.offers.update('up', commonKey('legacy'), { ...EMPTY_OFFER, revision: '2025-11-25' });
  assert.equal(await endOf(begin(session).answer()), 'unknown-tool undefined');
  assert.equal(sentCalls(memory).length, 1);
});

for (const what of ['a reload denies it', 'its pinned tool goes'] as const) {
  // SEC-09 P-012
  test(`a call that waits for its link is not sent if ${what} meanwhile`, TIMEOUT, async () => {
    let gate: PromiseWithResolvers<void> | undefined;
    const memory = memoryUpstream({
      lists: { tools: [ECHO] },
      start: () => gate?.promise ?? Promise.resolve(),
      request: (peer, one) => peer.send(result(one, DONE)),
    });
    const { at, begin, upstream } = await calling(memory, { isPinned: () => true, upstream: { isolation: 'call' } });
    await using _ = at;
    const { session } = at.session();
    // The first call may use the connection that has read the lists.
    assert.equal(await endOf(begin(session).answer()), 'result');
    const { starts } = memory;
    gate = Promise.withResolvers();
    const call = endOf(begin(session).answer());
    await memory.until(() => memory.starts > starts || undefined);
    if (what === 'a reload denies it') at.gate.setConfig(NOTHING);
    else at.offers.update('up', commonKey('legacy'), { ...EMPTY_OFFER, revision: '2025-11-25' });
    gate.resolve();
    assert.equal(await call, 'unknown-tool undefined');
    assert.deepEqual([sentCalls(memory).length, upstream.limiter.activeCount], [1, 0]);
  });
}

//
test('a call that is cancelled while the lists are read again is not sent again', TIMEOUT, async () => {
  let cancel = () => {};
  const memory = modern((peer, request) => {
    peer.send(`{"jsonrpc":"2.0","id":${request.id},"error":{"code":${RPC.headerMismatch},"message":"old"}}`);
    cancel();
  });
  const { at, begin, upstream } = await calling(memory, { upstream: { era: 'modern' } });
  await using _ = at;
  const { exchange, answer } = begin(at.session().session);
  exchange.setTool({ tool: 'up__echo', upstreamTool: 'echo' });
  cancel = () => exchange.cancel('gone');
  assert.equal(await endOf(answer()), 'cancelled no');
  assert.deepEqual([sentCalls(memory).length, upstream.limiter.activeCount], [1, 0]);
});

// SEC-09
test('a call that waits for a slot is not sent if a reload denies it meanwhile', TIMEOUT, async () => {
  const { memory, next } = holding();
  const { at, begin, upstream } = await calling(memory, { upstream: { concurrency: 1 } });
  await using _ = at;
  const { session } = at.session();
  const ends = [begin(session), begin(session)].map((call) => endOf(call.answer()));
  const first = await next();
  at.gate.setConfig(NOTHING);
  first.peer.send(result(first.request, DONE));
  assert.deepEqual(await Promise.all(ends), ['result', 'unknown-tool undefined']);
  assert.deepEqual([sentCalls(memory).length, upstream.limiter.activeCount], [1, 0]);
});

// SEC-08
test('a call whose policy changes before it is sent is judged again', TIMEOUT, async () => {
  const { memory } = holding();
  const { at, begin, upstream } = await calling(memory, {
    audit: { begin: () => Promise.resolve(at.gate.setConfig(NOTHING)) },
  });
  await using _ = at;
  const { session } = at.session();
  assert.equal(await endOf(begin(session).answer()), 'unknown-tool undefined', 'while it is recorded');
  at.gate.setConfig(undefined);
  const call = begin(session);
  at.gate.setConfig(NOTHING);
  assert.equal(await endOf(call.answer()), 'unknown-tool undefined', 'before it comes to its upstream');
  assert.deepEqual([sentCalls(memory).length, upstream.limiter.activeCount], [0, 0]);
});

// SEC-08
test('a cached read whose policy changes meanwhile is judged again', TIMEOUT, async () => {
  const contents = { contents: [], ttlMs: 60_000, cacheScope: 'public' };
  const common = { resultType: 'complete', supportedVersions: ['2026-07-28'], capabilities: { resources: {} } };
  const memory = memoryUpstream({
    isRaw: true,
    lists: { resources: [{ uri: 'lib://a', name: 'a' }] },
    request: (peer, request) => peer.send(result(request, { ...common, ...contents })),
  });
  const { at, begin } = await calling(memory, { upstream: { era: 'modern' } });
  await using _ = at;
  const read = () => begin(at.session().session, { uri: 'lib://a' }, 'resources/read');
  assert.deepEqual([await endOf(read().answer()), await endOf(read().answer())], ['result', 'result']);
  assert.equal(memory.requests('resources/read').length, 1);
  const late = read();
  at.gate.setConfig(NOTHING);
  assert.equal(await endOf(late.answer()), 'unknown-resource undefined');
});

test('a call is sent after its record, and not without it', TIMEOUT, async () => {
  const { memory, next } = holding();
  const records: unknown[] = [];
  let isFull = false;
  const { at, begin, upstream } = await calling(memory, {
    audit: {
      begin: async ({ method }, { principal }, id, tool) => {
        records.push([method, principal.key, id, tool, sentCalls(memory).length]);
        if (isFull) throw new GatewayError('audit-unavailable');
      },
    },
  });
  await using _ = at;
  const { session } = at.session();
  const call = endOf(begin(session).answer());
  const { peer, request } = await next();
  peer.send(result(request, DONE));
  isFull = true;
  assert.deepEqual([await call, await endOf(begin(session).answer())], ['result', 'audit-unavailable no']);
  assert.deepEqual(records, [
    ['tools/call', 'local', 'up', 'echo', 0],
    ['tools/call', 'local', 'up', 'echo', 1],
  ]);
  assert.deepEqual([sentCalls(memory).length, upstream.limiter.activeCount], [1, 0]);
});

test('with isolation call, a link that opens after its call was cancelled is closed', TIMEOUT, async () => {
  let gate: PromiseWithResolvers<void> | undefined;
  const { memory, next } = holding({ start: () => gate?.promise ?? Promise.resolve() });
  const { at, begin } = await calling(memory, { upstream: { isolation: 'call' } });
  await using _ = at;
  const { session } = at.session();
  // The first call may use the connection that has read the lists.
  const first = endOf(begin(session).answer());
  const { peer, request } = await next();
  peer.send(result(request, DONE));
  await first;
  const [starts, open] = [memory.starts, memory.open.size];
  gate = Promise.withResolvers();
  const { exchange, answer } = begin(session);
  const end = endOf(answer());
  await memory.until(() => memory.starts > starts || undefined);
  exchange.cancel('gone');
  assert.equal(await end, 'cancelled no');
  gate.resolve();
  await memory.until(() => memory.peers.length > starts || undefined);
  await memory.until(() => memory.open.size <= open || undefined);
});

test('with isolation call, the link of a call that fails closes with it', TIMEOUT, async () => {
  const { memory, next } = holding();
  const { at, begin } = await calling(memory, { upstream: { isolation: 'call' } });
  await using _ = at;
  const { session } = at.session();
  const call = endOf(begin(session).answer());
  const { peer, request } = await next();
  peer.fail(request.id, new GatewayError('upstream-timeout'));
  assert.equal(await call, 'upstream-timeout unknown');
  await memory.until(() => !memory.open.has(peer) || undefined);
});

test('the answers of an upstream wait until its state for the session is recorded', TIMEOUT, async () => {
  const { memory, next } = holding();
  const { at, begin } = await calling(memory);
  await using _ = at;
  const recorded = Promise.withResolvers<void>();
  const events: string[] = [];
  const { session } = at.session({ onStateKept: () => recorded.promise.then(() => void events.push('recorded')) });
  const ends = [begin(session), begin(session)].map(async (call) => events.push(await endOf(call.answer())));
  for (let calls = 0; calls < 2; calls++) {
    const { peer, request } = await next();
    peer.send(result(request, DONE));
  }
  // An answer that does not wait has arrived by then.
  await nextTurn();
  recorded.resolve();
  await Promise.all(ends);
  assert.deepEqual(events, ['recorded', 'result', 'result']);
});

test('a call with a key is limited when it is made, and not when it is repeated', TIMEOUT, async () => {
  const { memory, next } = holding();
  const { at, begin } = await calling(memory, { config: ONCE });
  await using _ = at;
  const { session } = at.session();
  const keyed = (key: string) => begin(session, { name: 'up__echo', _meta: { [META.idempotencyKey]: key, own: 1 } });
  const made = keyed('a').answer();
  const { peer, request } = await next();
  assert.deepEqual(request.params?.value('_meta'), { own: 1 }, 'the key is for the gateway');
  peer.send(result(request, DONE));
  const [first, again] = [await made, await keyed('a').answer()];
  assert.ok(first.kind === 'result' && again.kind === 'result');
  assert.equal(again.result, first.result);
  assert.equal(await endOf(keyed('b').answer()), 'rate-limited no');
  assert.equal(sentCalls(memory).length, 1);
});

/** A call whose client is asked, at an upstream with one slot, and a call of another client after the question. */
async function askedCall() {
  const { memory, finish } = asking();
  const { at, begin, upstream } = await calling(memory, { upstream: { era: 'modern', concurrency: 1, queue: 0 } });
  const client = at.session({ capabilities: { elicitation: {} } });
  const asked = begin(client.session, ASKED);
  const call = endOf(asked.answer());
  await asked.stream.until(() => asked.stream.messages[0]);
  const other = endOf(begin(at.session().session).answer());
  return { at, upstream, memory, call, other, finish, answer: () => answerQuestion(client, asked) };
}

test('a call that waits for its client has no slot, and goes on with the answers', TIMEOUT, async () => {
  const { at, upstream, call, other, finish, answer } = await askedCall();
  await using _ = at;
  await finish();
  assert.equal(await other, 'result');
  assert.equal(await upstream.drain(1), 1, 'its connection is in use');
  await answer();
  const { params } = await finish();
  assert.equal(await call, 'result');
  assert.deepEqual(params?.value('inputResponses'), { name: { action: 'accept', content: { name: 'x' } } });
  assert.deepEqual([params?.string('requestState'), upstream.limiter.activeCount], ['s', 0]);
});

// SEC-09
test('a call that waits for its client is not sent again if a reload denies it', TIMEOUT, async () => {
  const { at, upstream, memory, call, other, finish, answer } = await askedCall();
  await using _ = at;
  await finish();
  assert.equal(await other, 'result');
  at.gate.setConfig(NOTHING);
  await answer();
  assert.equal(await call, 'unknown-tool undefined');
  assert.deepEqual([sentCalls(memory).length, upstream.limiter.activeCount], [2, 0]);
});

test('a call whose slot is taken while its client answers ends, and the other goes on', TIMEOUT, async () => {
  const { at, upstream, memory, call, other, finish, answer } = await askedCall();
  await using _ = at;
  await memory.until(() => sentCalls(memory)[1]);
  await answer();
  assert.equal(await call, 'overloaded unknown');
  assert.equal(upstream.limiter.activeCount, 1, 'that of the other call');
  await finish();
  assert.equal(await other, 'result');
  assert.equal(upstream.limiter.activeCount, 0);
});

test('a call that waited at a replaced upstream is made there, a later one is not', TIMEOUT, async () => {
  const [old, fresh] = [holding(), holding()];
  const { at, begin, links } = await calling(old.memory, { upstream: { concurrency: 1 } });
  await using _ = at;
  const { session } = at.session();
  const ends = [begin(session), begin(session)].map((call) => endOf(call.answer()));
  const first = await old.next();
  const stopped = at.upstreams.replace(at.create('up', { memory: fresh.memory }), 60_000);
  links.onReplaced('up', at.holders);
  const later = endOf(begin(session).answer());
  const third = await fresh.next();
  third.peer.send(result(third.request, DONE));
  assert.equal(await later, 'result');
  first.peer.send(result(first.request, DONE));
  const second = await old.next();
  second.peer.send(result(second.request, DONE));
  assert.deepEqual(await Promise.all(ends), ['result', 'result']);
  assert.deepEqual([sentCalls(old.memory).length, sentCalls(fresh.memory).length], [2, 1]);
  assert.equal(await stopped, 0, 'no connection was still in use');
});

// REL-30
test('a call whose upstream is replaced while it is recorded is made at the new one', TIMEOUT, async () => {
  const [old, fresh] = [holding(), holding()];
  const { at, begin, links } = await calling(old.memory, { audit: { begin: () => onBegin() } });
  await using _ = at;
  const onBegin = async () => {
    const stopped = at.upstreams.replace(at.create('up', { memory: fresh.memory }), 60_000);
    links.onReplaced('up', at.holders);
    await stopped;
  };
  const ended = endOf(begin(at.session().session).answer());
  const { peer, request } = await fresh.next();
  peer.send(result(request, DONE));
  assert.equal(await ended, 'result');
});
