import assert from 'node:assert/strict';
import { test } from 'node:test';
import { setImmediate as nextTurn } from 'node:timers/promises';
import { GatewayError } from '../../../src/errors.ts';
import type { Session } from '../../../src/gateway/clients/session.ts';
import { HolderLinks } from '../../../src/gateway/connections/holder-links.ts';
import { targetOf } from '../../../src/gateway/handles/attachments.ts';
import { RawObject } from '../../../src/json/json.ts';
import { detach } from '../../../src/json/kept-text.ts';
import type { Request } from '../../../src/protocol/jsonrpc.ts';
import type { StartTransport, Transport } from '../../../src/upstream/rpc/transport.ts';
import { GatewayParts } from '../../support/gateway-parts.ts';
import { memoryUpstream, type MemoryUpstream, type Peer, result, type Script } from '../../support/memory-upstream.ts';
import { stopTime } from '../../support/stopped-time.ts';

const TIMEOUT = { timeout: 120_000 };
const UPDATED = 'notifications/resources/updated';
const SUBSCRIBE = 'resources/subscribe';
const UNSUBSCRIBE = 'resources/unsubscribe';
const SET_LEVEL = 'logging/setLevel';
const URI = 'file:///a';
const HELLO = {
  revision: '2025-11-25',
  capabilities: RawObject.EMPTY,
  serverInfo: RawObject.EMPTY,
  instructions: undefined,
} as const;
const EARLIER = { id: 'earlier', cookies: [] };
const REMOTE = { kind: 'http', url: 'http://127.0.0.1:9/mcp', headers: {} } as const;
/** The longest that a new link waits for the answers to its log level and subscriptions. */
const PREPARE_MS = 1_000; // subject

/** Real links over real upstreams, with the upstreams of which a link was asked for and opened. */
function linking(...args: ConstructorParameters<typeof GatewayParts>) {
  const at = new GatewayParts(
    args[0],
    { onLinkClosed: (link, reason) => links.onLinkClosed(link, reason), ...args[1] },
    args[2],
  );
  const events: string[] = [];
  const links: HolderLinks = new HolderLinks({
    upstreams: at.upstreams,
    views: at.views,
    stateLosses: at.stateLosses,
    log: at.log,
    siblingsOf: (holder) => at.holders.filter((one) => one !== holder && one.principal === holder.principal),
    onReattached: ({ upstream }) => events.push(`reattached ${upstream}`),
    beforeOpen: (holder, upstream) => events.push(`before ${upstream} of ${holder.key}`),
    onOpen: ({ upstream }) => events.push(`open ${upstream}`),
    onLimit: () => undefined,
  });
  return { at, links, events };
}

/** An upstream with subscriptions and log levels. */
function watched(script: Script = {}): MemoryUpstream {
  return memoryUpstream({ capabilities: { resources: { subscribe: true }, logging: {} }, ...script });
}

/** An upstream that answers requests of one method when the test says so. */
function holding(method: string) {
  const held: (() => void)[] = [];
  const memory = watched({
    request: (peer, request) => {
      const answer = () => peer.send(result(request, {}));
      if (request.method === method) held.push(answer);
      else answer();
    },
  });
  return { memory, arrived: () => memory.until(() => held[0]) };
}

/** A remote upstream that continues sessions, with the values that `setLeft` was called with. */
function continuing(memory: MemoryUpstream) {
  const left: boolean[] = [];
  const start: StartTransport = async (...args) => ({
    ...(await memory.start(...args)),
    mayKeepState: true,
    attach: () => undefined,
    setLeft: (value) => void left.push(value),
  });
  return { up: { memory: { ...memory, start }, target: REMOTE }, left };
}

/** Gives a session the state at an upstream that an earlier process has stored. */
function attachTo(at: GatewayParts, session: Session): void {
  const hello = { ...HELLO, capabilities: RawObject.of({ logging: {} }) };
  session.attachments = new Map([['up', { session: EARLIER, hello, target: targetOf(at.upstream('up').config) }]]);
  session.usedUpstreams = new Set(['up']);
}

/** A gate for the starts of an upstream. */
function gated() {
  const gate = Promise.withResolvers<void>();
  const memory = watched({ start: () => gate.promise });
  return { memory, gate, begun: (starts = 1) => memory.until(() => memory.starts >= starts || undefined) };
}

const to = (uri = URI) => ({ upstream: 'up', uri: detach(uri) });
const uris = (requests: readonly Request[]) => requests.map(({ params }) => params?.string('uri'));
const code = (expected: string) => (thrown: unknown) => thrown instanceof GatewayError && thrown.code === expected;

const atLeast = <T>(count: number, items: readonly T[]) => (items.length >= count ? items : undefined);

function receivedBy(peer: Peer | undefined, method: string): readonly Request[] {
  return (peer?.received ?? []).flatMap((message) =>
    message.kind === 'request' && message.method === method ? [message] : [],
  );
}

test('requests of one holder at the same time share the opening of their link', TIMEOUT, async () => {
  const { memory, gate, begun } = gated();
  const { at, links, events } = linking({ up: { memory } });
  await using _ = at;
  const { session } = at.session();
  const opening = links.open(session, 'up');
  assert.equal(links.open(session, 'up'), opening);
  await begun();
  assert.equal(links.findOpen(session, at.upstream('up')), undefined);
  gate.resolve();
  const link = await opening;
  assert.equal(links.findOpen(session, at.upstream('up')), link);
  assert.equal(await links.open(session, 'up'), link);
  assert.deepEqual(events, [`before up of ${session.key}`, 'open up']);
});

test('an opening that fails is not kept, so that the next request tries again', TIMEOUT, async () => {
  const memory: MemoryUpstream = watched({
    start: () => (memory.starts === 1 ? Promise.reject(new GatewayError('upstream-unavailable')) : Promise.resolve()),
  });
  const { at, links } = linking({ up: { memory } });
  await using _ = at;
  const { session } = at.session();
  await assert.rejects(links.open(session, 'up'), code('upstream-unavailable'));
  assert.equal(session.linkPromises.size, 0);
  const link = await links.open(session, 'up');
  assert.equal(session.links.get('up'), link);
});

test('a holder that closes while its link opens gets no link, and is no user of it', TIMEOUT, async () => {
  const { memory, gate, begun } = gated();
  const { at, links, events } = linking({ up: { memory, isolation: 'shared' } });
  await using _ = at;
  const [leaving, staying] = [at.session(), at.session()];
  const [refused, opening] = [links.open(leaving.session, 'up'), links.open(staying.session, 'up')];
  await begun();
  leaving.session.close();
  links.releaseHolder(leaving.session);
  gate.resolve();
  await assert.rejects(refused, code('session-unknown'));
  const link = await opening;
  assert.deepEqual([...link.users], [staying.session]);
  assert.equal(link.connection.isClosed, false);
  assert.deepEqual(events.filter((event) => event.startsWith('open')).length, 1);
});

for (const [isLeft, name] of [
  [false, 'a session that ends while its link is reattached ends at the upstream too'],
  [true, 'a session that is left while its link is reattached stays at the upstream'],
] as const) {
  // D7
  test(name, TIMEOUT, async () => {
    const { memory, gate, begun } = gated();
    const left: boolean[] = [];
    const start: StartTransport = async (...args) => ({
      ...(await memory.start(...args)),
      attach: () => undefined,
      setLeft: (value) => void left.push(value),
    });
    const { at, links } = linking({ up: { memory: { ...memory, start }, target: REMOTE } });
    await using _ = at;
    const { session } = at.session();
    session.attachments = new Map([
      ['up', { session: EARLIER, hello: HELLO, target: targetOf(at.upstream('up').config) }],
    ]);
    const refused = links.open(session, 'up');
    await begun();
    links.releaseHolder(session, isLeft);
    session.close();
    gate.resolve();
    await assert.rejects(refused, code('session-unknown'));
    assert.equal(left.at(-1), isLeft);
    assert.equal(memory.open.size, 0);
  });
}

test('a request that is cancelled already opens no link', TIMEOUT, async () => {
  const memory = memoryUpstream({});
  const { at, links } = linking({ up: { memory } });
  await using _ = at;
  const { session } = at.session();
  const { exchange } = at.exchange(session, session);
  exchange.cancel('enough');
  await assert.rejects(async () => await links.openFor(exchange, session, at.upstream('up')), code('cancelled'));
  assert.equal(memory.starts, 0);
});

test('a request that is cancelled stops waiting, and its link opens for the next', TIMEOUT, async () => {
  const { memory, gate, begun } = gated();
  const { at, links } = linking({ up: { memory } });
  await using _ = at;
  const { session } = at.session();
  const upstream = at.upstream('up');
  const { exchange } = at.exchange(session, session);
  const waiting = links.openFor(exchange, session, upstream);
  await begun();
  exchange.cancel('enough');
  await assert.rejects(waiting, (thrown) => code('cancelled')(thrown) && Object(thrown).executed === 'no');
  gate.resolve();
  const next = at.exchange(session, session);
  assert.equal(await links.openFor(next.exchange, session, upstream), await links.open(session, 'up'));
  assert.equal(memory.starts, 1);
});

// P-011
test('a denial after the wait closes the link that isolation call opened for it', TIMEOUT, async () => {
  const memory = watched();
  // Its era is not known yet.
  const { at, links } = linking({ up: { memory, isolation: 'call', target: REMOTE } });
  await using _ = at;
  const denial = new GatewayError('invalid-params');
  const subscribing = links.subscribe(at.session().session, URI, to(), () => {
    assert.equal(memory.peers.length, 1);
    throw denial;
  });
  await assert.rejects(subscribing, (thrown) => thrown === denial);
  await memory.until(() => memory.open.size === 0 || undefined);
});

test('with isolation call every request opens a link, which its holder does not keep', TIMEOUT, async () => {
  const { at, links } = linking({ up: { memory: watched(), isolation: 'call' } });
  await using _ = at;
  const { session } = at.session();
  const opened = [await links.open(session, 'up'), await links.open(session, 'up')];
  assert.notEqual(opened[0], opened[1]);
  assert.deepEqual([session.links.size, session.linkPromises.size], [0, 0]);
  assert.equal(links.findOpen(session, at.upstream('up')), undefined);
});

test('a link that is lost before its first use is not the link of the next request', TIMEOUT, async () => {
  const memory = watched({
    request: (peer, request) => {
      if (peer === memory.peers[0] && request.method === SUBSCRIBE) peer.crash();
      else peer.send(result(request, {}));
    },
  });
  const { at, links } = linking({ up: { memory } });
  await using _ = at;
  const { session } = at.session();
  session.subscriptions.set(detach(`up+${URI}`), to());
  session.subscriptions.set(detach('other+x:y'), { upstream: 'other', uri: detach('x:y') });
  const lost = await links.open(session, 'up');
  assert.ok(lost.connection.isClosed);
  const next = await links.open(session, 'up');
  assert.ok(!next.connection.isClosed);
  assert.equal(session.links.get('up'), next);
  assert.deepEqual(uris(receivedBy(memory.peers[1], SUBSCRIBE)), [URI]);
});

test('a lost link opens again for its subscribers alone, which learn of the gap', TIMEOUT, async () => {
  const memory = watched();
  const { at, links } = linking({ up: { memory, isolation: 'shared' } });
  await using _ = at;
  const [subscriber, other] = [at.session(), at.session()];
  await links.subscribe(subscriber.session, `up+${URI}`, to());
  await links.open(other.session, 'up');
  assert.deepEqual(subscriber.stream.messages, []);
  memory.peers[0]?.end(new GatewayError('upstream-session-lost'));
  for (const { session } of [subscriber, other]) assert.deepEqual([...session.links], []);
  await subscriber.stream.until(() => subscriber.stream.messages[0]);
  assert.deepEqual(subscriber.stream.notifications, [[UPDATED, { uri: `up+${URI}` }]]);
  assert.equal(other.session.linkPromises.size, 0);
  assert.deepEqual([memory.starts, uris(receivedBy(memory.peers[1], SUBSCRIBE))], [2, [URI]]);
});

test('a subscription that ends while its link opens again is not sent again', TIMEOUT, async () => {
  const again = Promise.withResolvers<void>();
  const memory: MemoryUpstream = watched({ start: () => (memory.starts === 1 ? Promise.resolve() : again.promise) });
  const { at, links } = linking({ up: { memory } });
  await using _ = at;
  const { session, stream } = at.session();
  for (const uri of [URI, `${URI}2`]) await links.subscribe(session, `up+${uri}`, to(uri));
  memory.peers[0]?.crash();
  await memory.until(() => memory.starts === 2 || undefined);
  await links.unsubscribe(session, `up+${URI}`, to());
  again.resolve();
  await stream.until(() => stream.messages[0]);
  assert.deepEqual(uris(receivedBy(memory.peers[1], SUBSCRIBE)), [`${URI}2`]);
  assert.deepEqual(stream.notifications, [[UPDATED, { uri: `up+${URI}2` }]]);
});

test('a restored session gets its subscriptions while its released one still waits', TIMEOUT, async () => {
  const { memory, gate, begun } = gated();
  const { at, links } = linking({ up: { memory } });
  await using _ = at;
  const [released, restored] = [at.session({ key: 'one' }), at.session({ key: 'one' })];
  for (const { session } of [released, restored]) session.subscriptions.set(detach(`up+${URI}`), to());
  links.onRestored(released.session);
  await begun();
  released.session.close();
  links.releaseHolder(released.session);
  links.onRestored(restored.session);
  gate.resolve();
  await restored.stream.until(() => restored.stream.messages[0]);
  assert.deepEqual(restored.stream.notifications, [[UPDATED, { uri: `up+${URI}` }]]);
  assert.deepEqual(uris(memory.requests(SUBSCRIBE)), [URI]);
});

test('a link has the lowest level of its users before its first use', TIMEOUT, async () => {
  const answered = Promise.withResolvers<void>();
  const memory = watched({
    request: (peer, request) => void answered.promise.then(() => peer.send(result(request, {}))),
  });
  const { at, links } = linking({ up: { memory, isolation: 'shared' } });
  await using _ = at;
  const [plain, debug, { group }] = [at.session(), at.session({ logLevel: 'debug' }), at.group()];
  const levels = () => memory.requests(SET_LEVEL).map(({ params }) => params?.string('level'));
  await links.open(plain.session, 'up');
  assert.deepEqual(levels(), [], 'nobody has set one');
  const opening = links.open(debug.session, 'up');
  await memory.until(() => levels()[0]);
  assert.equal(debug.session.links.has('up'), false);
  answered.resolve();
  const link = await opening;
  await links.open(group, 'up');
  // The level of a request is sent if it is lower than the one of the link.
  for (const level of ['error', 'warning', 'error'] as const) await links.levels.ensure(group, link, level);
  assert.deepEqual([levels(), group.logLevel], [['debug', 'debug'], 'warning']);
  links.releaseHolder(debug.session);
  await links.levels.setAll(plain.session);
  assert.equal(levels()[2], 'info');
});

test('an upstream without answers delays the first use of its link for a second', TIMEOUT, async (t) => {
  const time = stopTime(t);
  const { memory, arrived } = holding(SET_LEVEL);
  const { at, links } = linking({ up: { memory } });
  await using _ = at;
  const { session } = at.session({ logLevel: 'debug' });
  let isOpen = false;
  const opening = links.open(session, 'up').then(() => {
    isOpen = true;
  });
  await arrived();
  time.pass(PREPARE_MS - 1);
  await at.upstream('up').refresh('legacy', session, '');
  assert.equal(isOpen, false);
  time.pass(1);
  await opening;
});

test('a holder that closes while its link is prepared keeps no subscription on it', TIMEOUT, async () => {
  const { memory, arrived } = holding(SET_LEVEL);
  const { at, links } = linking({ up: { memory, isolation: 'shared' } });
  await using _ = at;
  const { session } = at.session({ logLevel: 'debug' });
  session.subscriptions.set(detach(`up+${URI}`), to());
  const refused = links.open(session, 'up');
  const answer = await arrived();
  const [link] = at.upstream('up').links();
  assert.deepEqual([...(link?.subscribers.keys() ?? [])], [URI]);
  links.releaseHolder(session);
  session.close();
  answer();
  await assert.rejects(refused, code('session-unknown'));
  await memory.until(() => memory.requests(UNSUBSCRIBE)[0]);
  assert.deepEqual([link?.subscribers.size, link?.users.size, memory.open.size], [0, 0, 1]);
});

test('a subscription that ends while its link is prepared ends at the upstream too', TIMEOUT, async () => {
  const { memory, arrived } = holding(SET_LEVEL);
  const { at, links } = linking({ up: { memory } });
  await using _ = at;
  const { session } = at.session({ logLevel: 'debug' });
  for (const uri of [URI, `${URI}2`]) session.subscriptions.set(detach(`up+${uri}`), to(uri));
  const opening = links.open(session, 'up');
  const answer = await arrived();
  await links.unsubscribe(session, `up+${URI}`, to());
  answer();
  const link = await opening;
  assert.deepEqual([...link.subscribers.keys()], [`${URI}2`]);
  assert.deepEqual(uris(await memory.until(() => atLeast(1, memory.requests(UNSUBSCRIBE)))), [URI]);
});

test('a subscription that ends before its upstream has answered ends there afterwards', TIMEOUT, async () => {
  const { memory, arrived } = holding(SUBSCRIBE);
  const { at, links } = linking({ up: { memory } });
  await using _ = at;
  const { session, stream } = at.session();
  session.subscriptions.set(detach(`up+${URI}`), to());
  const opening = links.open(session, 'up');
  const answer = await arrived();
  await links.unsubscribe(session, `up+${URI}`, to());
  answer();
  assert.equal((await opening).subscribers.size, 0);
  assert.deepEqual(uris(await memory.until(() => atLeast(1, memory.requests(UNSUBSCRIBE)))), [URI]);
  assert.deepEqual(stream.messages, []);
});

test('a listener that ends while the link of its sibling is prepared stays on none', TIMEOUT, async () => {
  const { memory, arrived } = holding(SET_LEVEL);
  const { at, links } = linking({ up: { memory } });
  await using _ = at;
  const [listener, caller] = [at.group().group, at.group({ capabilities: { sampling: {} } }).group];
  await links.subscribe(listener, `up+${URI}`, to());
  caller.logLevel = 'debug';
  const opening = links.open(caller, 'up');
  const answer = await arrived();
  links.releaseHolder(listener);
  listener.close();
  answer();
  const link = await opening;
  await memory.until(() => atLeast(1, receivedBy(memory.peers.at(-1), UNSUBSCRIBE)));
  assert.equal(link.subscribers.size, 0);
});

test('a link opens though its upstream refuses the level and the subscriptions', TIMEOUT, async () => {
  const memory = watched({
    request: (peer, { id, method }) => {
      if (method === SET_LEVEL) peer.fail(id, new GatewayError('upstream-timeout'));
      else peer.send(`{"jsonrpc":"2.0","id":${id},"error":{"code":-32002,"message":"no"}}`);
    },
  });
  const { at, links } = linking({ up: { memory } });
  await using _ = at;
  const { session, stream } = at.session({ logLevel: 'debug' });
  session.subscriptions.set(detach(`up+${URI}`), to());
  const link = await links.open(session, 'up');
  assert.equal(session.links.get('up'), link);
  assert.deepEqual([link.subscribers.size, stream.messages], [0, []]);
  const answer = await links.subscribe(session, `up+${URI}2`, to(`${URI}2`));
  assert.equal(answer?.kind, 'error');
  assert.deepEqual([...session.subscriptions.keys()], [`up+${URI}`], 'the refused one is not kept');
});

/** An upstream that is replaced while it has a subscription of a session to answer. */
async function replaced() {
  const old = holding(SUBSCRIBE);
  const fresh = watched();
  const { at, links } = linking({ up: { memory: old.memory } });
  const { session, stream } = at.session();
  const subscribing = links.subscribe(session, `up+${URI}`, to());
  const answer = await old.arrived();
  const link = [...at.upstream('up').links()][0];
  const stopped = at.upstreams.replace(at.create('up', { memory: fresh }), 60_000);
  links.onReplaced('up', [session]);
  return { at, links, session, stream, fresh, subscribing, link, answer, stopped };
}

test('a subscription whose upstream is replaced before its answer moves along', TIMEOUT, async () => {
  const { at, links, session, stream, fresh, subscribing, link, answer, stopped } = await replaced();
  await using _ = at;
  assert.equal(link?.connection.isClosed, false, 'the request goes on');
  answer();
  assert.equal((await subscribing)?.kind, 'result');
  await stream.until(() => stream.messages[0]);
  assert.deepEqual(uris(fresh.requests(SUBSCRIBE)), [URI]);
  assert.notEqual(await links.open(session, 'up'), link);
  links.releaseHolder(session);
  await stopped;
});

test('a subscription whose upstream is replaced moves along to a link that is there', TIMEOUT, async () => {
  const { at, links, session, stream, fresh, subscribing, answer, stopped } = await replaced();
  await using _ = at;
  const link = await links.open(session, 'up');
  answer();
  assert.equal((await subscribing)?.kind, 'result');
  await stream.until(() => stream.messages[0]);
  assert.deepEqual([uris(fresh.requests(SUBSCRIBE)), [...link.subscribers.keys()]], [[URI], [URI]]);
  links.releaseHolder(session);
  await stopped;
});

// D7
test('a session that is not continued yet is not continued at another server', TIMEOUT, async () => {
  const away = watched({ start: () => Promise.reject(new GatewayError('upstream-unavailable')) });
  const fresh = watched();
  const attached: string[] = [];
  const start: StartTransport = async (...args) => ({
    ...(await fresh.start(...args)),
    attach: ({ id }) => void attached.push(id),
  });
  const { at, links } = linking({ up: { memory: away, target: REMOTE } });
  await using _ = at;
  const { session } = at.session();
  session.attachments = new Map([
    ['up', { session: EARLIER, hello: HELLO, target: targetOf(at.upstream('up').config) }],
  ]);
  session.usedUpstreams = new Set(['up']);
  await assert.rejects(links.open(session, 'up'), code('upstream-unavailable'));
  const headers = { authorization: 'Bearer of another account' };
  const stopped = at.upstreams.replace(
    at.create('up', { memory: { ...fresh, start }, target: { ...REMOTE, headers } }),
    0,
  );
  links.onReplaced('up', [session]);
  assert.equal((await links.open(session, 'up')).isReattached, false);
  assert.deepEqual([attached, session.attachments.size], [[], 0]);
  assert.equal(session.stateLosses?.get('up')?.reason, 'restored');
  await stopped;
});

// R10
test('a session that is given away while its reattached link is prepared stays there', TIMEOUT, async () => {
  const { memory, arrived } = holding(SET_LEVEL);
  const { up, left } = continuing(memory);
  const { at, links } = linking({ up });
  await using _ = at;
  const { session } = at.session({ logLevel: 'debug' });
  attachTo(at, session);
  const refused = links.open(session, 'up');
  const answer = await arrived();
  assert.deepEqual(left, [true, false]);
  links.leaveSessions(session);
  assert.equal(left.at(-1), true);
  session.close();
  links.releaseHolder(session, true);
  answer();
  await assert.rejects(refused, code('session-unknown'));
  assert.deepEqual([left.at(-1), memory.open.size], [true, 0]);
});

// R10
test('a session that was given away stays at an upstream that continues it later', TIMEOUT, async () => {
  const { memory, gate, begun } = gated();
  const { up, left } = continuing(memory);
  const { at, links } = linking({ up });
  await using _ = at;
  const { session } = at.session();
  attachTo(at, session);
  const opening = links.open(session, 'up');
  await begun();
  links.leaveSessions(session);
  gate.resolve();
  await opening;
  assert.equal(left.at(-1), true, 'a request in flight has opened it');
});

for (const [held, name] of [
  ['ping', 'a reload while a session is continued at its upstream reports the loss'],
  [SET_LEVEL, 'a reload while a reattached link is prepared reports the loss'],
] as const) {
  // D7 R10
  test(name, TIMEOUT, async () => {
    const { memory, arrived } = holding(held);
    const { at, links } = linking({ up: continuing(memory).up });
    await using _ = at;
    const { session } = at.session({ logLevel: 'debug' });
    attachTo(at, session);
    const before = at.upstream('up');
    before.limiter.acquire(session.principal);
    const opening = links.open(session, 'up');
    const answer = await arrived();
    const stopped = at.upstreams.replace(at.create('up', { memory: watched(), target: REMOTE }), 60_000);
    links.onReplaced('up', [session]);
    answer();
    const link = await opening;
    assert.ok(link.isReattached && link.isRetired);
    assert.equal(session.stateLosses?.get('up')?.reason, 'replaced');
    before.limiter.release(session.principal);
    links.releaseHolder(session);
    await stopped;
  });
}

test('a subscription outlasts the end of an earlier one that is answered late', TIMEOUT, async (t) => {
  const time = stopTime(t);
  const first = Promise.withResolvers<void>();
  const memory: MemoryUpstream = watched({
    request: (peer, request) => {
      const answer = () => peer.send(result(request, {}));
      if (memory.requests(SUBSCRIBE).length === 1) void first.promise.then(answer);
      else answer();
    },
  });
  const { at, links } = linking({ up: { memory } });
  await using _ = at;
  const { session } = at.session();
  session.subscriptions.set(detach(`up+${URI}`), to());
  const opening = links.open(session, 'up');
  await memory.until(() => memory.requests(SUBSCRIBE)[0]);
  time.pass(PREPARE_MS);
  const link = await opening;
  await links.unsubscribe(session, `up+${URI}`, to());
  const subscribing = links.subscribe(session, `up+${URI}`, to());
  await nextTurn();
  first.resolve();
  assert.equal((await subscribing)?.kind, 'result');
  await nextTurn();
  assert.deepEqual(link.subscribers.get(URI), new Set([session]));
  const subscribes = memory.requests(SUBSCRIBE).length;
  assert.equal(memory.requests(UNSUBSCRIBE).length, subscribes - 1, 'the last of them is a subscription');
});

test('a request for a replaced upstream does not prepare its link again', TIMEOUT, async () => {
  const old = watched();
  const opened: unknown[] = [];
  const { at, links, events } = linking({ up: { memory: old } });
  await using _ = at;
  const onLinkOpen = (_session: unknown, link: unknown) => void opened.push(link);
  const { session, stream } = at.session({ logLevel: 'debug', onLinkOpen });
  await links.subscribe(session, `up+${URI}`, to());
  const before = at.upstream('up');
  const [link] = before.links();
  assert.ok(link !== undefined);
  before.beginCall(link);
  const fresh = watched();
  const stopped = at.upstreams.replace(at.create('up', { memory: fresh }), 60_000);
  links.onReplaced('up', [session]);
  await stream.until(() => stream.messages[0]);
  const { hello } = link;
  session.attachments = new Map([['up', { session: { id: 'of another server', cookies: [] }, hello, target: '' }]]);
  for (let times = 0; times < 2; times++) {
    assert.equal(await links.openFor(at.exchange(session, session).exchange, session, before), link);
  }
  assert.deepEqual([uris(old.requests(SUBSCRIBE)), old.requests(SET_LEVEL).length, old.starts], [[URI], 1, 1]);
  assert.deepEqual(stream.notifications, [[UPDATED, { uri: `up+${URI}` }]], 'that of the fresh one');
  assert.deepEqual(
    [opened.includes(link), opened.length, events.filter((one) => one === 'open up').length],
    [true, 2, 2],
  );
  // The session at the other server is still to be tried there.
  assert.ok(session.attachments.has('up'));
  before.endCall(link);
  await stopped;
});

test('a link that opens at a replaced upstream has the level, and no subscriptions', TIMEOUT, async () => {
  const old = watched();
  const { at, links } = linking({ up: { memory: old, isolation: 'shared' } });
  await using _ = at;
  const opened: unknown[] = [];
  const { session } = at.session({ logLevel: 'debug', onLinkOpen: (_session, link) => void opened.push(link) });
  session.subscriptions.set(detach(`up+${URI}`), to());
  const before = at.upstream('up');
  before.limiter.acquire(session.principal);
  const stopped = at.upstreams.replace(at.create('up', { memory: watched() }), 60_000);
  const link = await links.openFor(at.exchange(session, session).exchange, session, before);
  assert.deepEqual([link.users.has(session), link.isRetired], [true, true]);
  assert.deepEqual([old.requests(SUBSCRIBE), old.requests(SET_LEVEL).length, opened], [[], 1, []]);
  before.limiter.release(session.principal);
  await stopped;
});

test('a reload to isolation call opens no link for subscriptions, and subscribes none', TIMEOUT, async () => {
  const fresh = watched();
  const { at, links } = linking({ up: { memory: watched() } });
  await using _ = at;
  const { session, stream } = at.session();
  await links.subscribe(session, `up+${URI}`, to());
  const stopped = at.upstreams.replace(at.create('up', { memory: fresh, isolation: 'call' }), 0);
  links.onReplaced('up', [session]);
  assert.deepEqual([...session.subscriptions.keys()], [`up+${URI}`], 'another reload may restore it');
  // A link for a call does not subscribe either.
  links.leave(await links.open(session, 'up'));
  assert.deepEqual([fresh.starts, fresh.requests(SUBSCRIBE), stream.messages], [1, [], []]);
  await fresh.until(() => fresh.open.size === 0 || undefined);
  await stopped;
});

test('isolation call: a restored session opens no link before its first call', TIMEOUT, async () => {
  const memory = watched();
  const { at, links } = linking({ up: { memory, isolation: 'call' } });
  await using _ = at;
  const [subscribed, attached] = [at.session().session, at.session().session];
  const earlier = await links.open(attached, 'up');
  links.leave(earlier);
  subscribed.subscriptions.set(detach(`up+${URI}`), to());
  attached.attachments = new Map([['up', { session: EARLIER, hello: earlier.hello, target: '' }]]);
  for (const session of [subscribed, attached]) links.onRestored(session);
  links.leave(await links.open(attached, 'up'));
  assert.equal(memory.starts, 2);
});

test('a session keeps its subscriptions at a removed upstream, which refuses requests', TIMEOUT, async () => {
  const { at, links } = linking({ up: { memory: watched() }, other: { memory: watched() } });
  await using _ = at;
  const { session } = at.session();
  await links.subscribe(session, `up+${URI}`, to());
  await links.subscribe(session, `other+${URI}`, { ...to(), upstream: 'other' });
  const stopped = at.upstreams.remove('up', 0);
  links.onReplaced('up', [session]);
  assert.deepEqual([...session.subscriptions.keys()], [`up+${URI}`, `other+${URI}`]);
  assert.deepEqual([...session.links.keys()], ['other']);
  await assert.rejects(links.open(session, 'up'), /upstream "up" was removed from the configuration/);
  await stopped;
});

test('a holder that is released twice gives back one subscription and its links', TIMEOUT, async () => {
  const memory = watched();
  const own = watched();
  const sent: (string | undefined)[] = [];
  const start: StartTransport = async (...args) => {
    const transport = await own.start(...args);
    const send: Transport['send'] = (message) => {
      sent.push(message.method);
      transport.send(message);
    };
    return { ...transport, send };
  };
  const { at, links } = linking({ up: { memory, isolation: 'shared' }, own: { memory: { ...own, start } } });
  await using _ = at;
  const [leaving, staying] = [at.session(), at.session()];
  for (const { session } of [leaving, staying]) await links.subscribe(session, `up+${URI}`, to());
  await links.subscribe(leaving.session, `up+${URI}2`, to(`${URI}2`));
  await links.subscribe(leaving.session, `own+${URI}`, { ...to(), upstream: 'own' });
  const [link] = at.upstream('up').links();
  for (let times = 0; times < 2; times++) links.releaseHolder(leaving.session);
  await links.unsubscribe(staying.session, `up+${URI}`, to());
  assert.deepEqual(uris(memory.requests(UNSUBSCRIBE)), [`${URI}2`, URI]);
  assert.deepEqual([...(link?.users ?? [])], [staying.session]);
  assert.deepEqual([memory.open.size, own.open.size], [1, 0]);
  assert.ok(sent.includes(SUBSCRIBE) && !sent.includes(UNSUBSCRIBE), 'the subscription ends with its connection');
});
