import assert from 'node:assert/strict';
import { test } from 'node:test';
import { setImmediate as nextTurn } from 'node:timers/promises';
import { commonKey, EMPTY_OFFER } from '../../src/catalog/offer.ts';
import { settlesWithin } from '../../src/deadline.ts';
import { GatewayError } from '../../src/errors.ts';
import { ResourceCache } from '../../src/gateway/forward/resource-cache.ts';
import type { ConnectionHolder, Link } from '../../src/gateway/exchange/connection-holder.ts';
import { Sealer } from '../../src/gateway/handles/sealer.ts';
import { TaskIds } from '../../src/gateway/handles/task-ids.ts';
import { TaskMarks } from '../../src/gateway/handles/task-marks.ts';
import { ListAnnouncer } from '../../src/gateway/lists/list-announcer.ts';
import { NotificationRouter } from '../../src/gateway/notification-router.ts';
import { UrlElicitations } from '../../src/gateway/questions/url-elicitations.ts';
import { RawObject } from '../../src/json/json.ts';
import { detach } from '../../src/json/kept-text.ts';
import type { Principal } from '../../src/policy/principal.ts';
import type { Notification } from '../../src/protocol/jsonrpc.ts';
import { NO_FEATURES } from '../../src/upstream/link/link.ts';
import { MemoryKeyStore } from '../../src/store/memory/key-store.ts';
import { MemoryTaskStore } from '../../src/store/memory/task-store.ts';
import { accessOf, ANYONE } from '../policy/policies.ts';
import { GatewayParts, type TestStream } from '../support/gateway-parts.ts';
import { memoryUpstream, type Script } from '../support/memory-upstream.ts';
import { stopTime } from '../support/stopped-time.ts';

const TIMEOUT = { timeout: 120_000 };
const PROGRESS = 'notifications/progress';
const LOG = 'notifications/message';
const UPDATED = 'notifications/resources/updated';
const TASK = 'notifications/tasks/status';
const COMPLETE = 'notifications/elicitation/complete';
const TOOLS_CHANGED = 'notifications/tools/list_changed';
const PROMPTS_CHANGED = 'notifications/prompts/list_changed';
const URI = 'file:///a';
/** The time within which an update waits for other connections. */
const WINDOW_MS = 25; // subject
const BOB: Principal = { key: 'bob', keyName: 'bob', label: 'bob', scopes: [] };

const notification = (method: string, params?: object): Notification => ({
  kind: 'notification',
  method,
  params: params && RawObject.of(params),
});
const log = (level: string, data: string) => notification(LOG, { level, data });
const tool = (name: string) => ({ name, inputSchema: { type: 'object' } });

/** A router over real upstreams, with the reasons of the notifications that it drops. */
async function routing(...args: ConstructorParameters<typeof GatewayParts>) {
  const at = new GatewayParts(args[0], { onLinkClosed: (link) => router.onLinkClosed(link), ...args[1] }, args[2]);
  const dropped: string[] = [];
  const taskIds = new TaskIds(await Sealer.open(new MemoryKeyStore()), new MemoryTaskStore(() => undefined), 'here');
  const urlElicitations = new UrlElicitations(() => undefined);
  const resourceCache = new ResourceCache(() => undefined);
  const announcer = new ListAnnouncer(() => undefined);
  const router: NotificationRouter = new NotificationRouter({
    upstreams: at.upstreams,
    holders: at.holders,
    offers: at.offers,
    log: at.log,
    siblingsOf: (holder) => at.holders.filter((other) => other !== holder && other.principal === holder.principal),
    announcer,
    urlElicitations,
    resourceCache,
    marks: new TaskMarks(taskIds),
    pendingSubscription: () => undefined,
    onOtherCatalog: () => undefined,
    onCatalogOfUnresolved: () => undefined,
    onDropped: (reason) => dropped.push(reason),
    onMerged: () => undefined,
    onLimit: () => undefined,
  });
  /** Resolves with the list changes that a client got, after one of resources that the test announces to it. */
  const changesOf = async (holder: ConnectionHolder, stream: TestStream): Promise<readonly string[]> => {
    announcer.add(holder, ['resources']);
    const last = 'notifications/resources/list_changed';
    await stream.until(() => stream.notifications.find(([method]) => method === last));
    return stream.notifications.map(([method]) => method).filter((method) => method !== last);
  };
  return { at, router, dropped, taskIds, urlElicitations, resourceCache, changesOf };
}

const quiet = (script: Script = {}) => memoryUpstream(script);

function subscribe(link: Link, uri: string, ...holders: ConnectionHolder[]): void {
  link.subscribers.set(detach(uri), new Set(holders));
}

test('growing progress reaches the stream of its call alone, under its own token', TIMEOUT, async () => {
  const { at, router } = await routing({ up: { memory: quiet() } });
  await using _ = at;
  const { session, stream } = at.session();
  const link = await at.upstream('up').link(session);
  const call = at.exchange(session, session, { progressToken: 'a' });
  const others = [at.exchange(session, session, { progressToken: 'b' }), at.exchange(session, session)] as const;
  for (const progress of [1, 1, 0.5, 'x', null, 2]) {
    const params = { progressToken: 7, progress, message: 'm' };
    for (const about of [call.exchange, others[1].exchange, undefined]) {
      router.onNotification(link, notification(PROGRESS, params), about);
    }
  }
  assert.deepEqual(call.stream.notifications, [
    [PROGRESS, { progressToken: 'a', progress: 1, message: 'm' }],
    [PROGRESS, { progressToken: 'a', progress: 2, message: 'm' }],
  ]);
  for (const { messages } of [...others.map((other) => other.stream), stream]) assert.deepEqual(messages, []);
});

for (const isolation of ['principal', 'shared'] as const) {
  test(`isolation ${isolation}: a log goes to the client of its call, else to the only user`, TIMEOUT, async () => {
    const { at, router, dropped } = await routing({ up: { memory: quiet(), isolation } });
    await using _ = at;
    const [a, b] = [at.session(), at.session()];
    const upstream = at.upstream('up');
    const link = await upstream.link(a.session);
    assert.equal(await upstream.link(b.session), link);
    const call = at.exchange(a.session, a.session);
    router.onNotification(link, log('info', 'of the call'), call.exchange);
    router.onNotification(link, log('info', 'of two'), undefined);
    upstream.releaseUser(b.session);
    router.onNotification(link, log('info', 'of one'), undefined);
    assert.deepEqual(call.stream.notifications, [[LOG, { level: 'info', data: 'of the call' }]]);
    const isOwn = isolation === 'principal';
    assert.deepEqual(a.stream.notifications, isOwn ? [[LOG, { level: 'info', data: 'of one' }]] : []);
    assert.deepEqual(b.stream.messages, []);
    assert.deepEqual(dropped, Array(isOwn ? 1 : 2).fill('log-unattributable'), 'any client may use a shared one later');
  });
}

test('a log below the level of its client is no loss, one without a stream is', TIMEOUT, async () => {
  const { at, router, dropped } = await routing({ up: { memory: quiet() } });
  await using _ = at;
  const { session, stream } = at.session({ logLevel: 'error' });
  const call = at.exchange(session, session);
  const link = await at.upstream('up').link(session);
  router.onNotification(link, log('info', 'too low'), call.exchange);
  assert.deepEqual(dropped, []);
  call.stream.isOpen = false;
  router.onNotification(link, log('error', 'elsewhere'), call.exchange);
  session.removeSink(stream);
  router.onNotification(link, log('error', 'lost'), call.exchange);
  assert.deepEqual(stream.notifications, [[LOG, { level: 'error', data: 'elsewhere' }]]);
  assert.deepEqual([call.stream.messages, dropped], [[], ['log-undeliverable']]);
});

test('a log of an upstream that is hidden from its client by now does not reach it', TIMEOUT, async () => {
  const access = accessOf({ some: { upstreams: ['seen'] } }, [{ ...ANYONE, roles: ['some'] }]);
  const upstreams = { seen: { memory: quiet() }, hidden: { memory: quiet() } };
  const { at, router, dropped } = await routing(upstreams, {}, { access });
  await using _ = at;
  const { session, stream } = at.session();
  const call = at.exchange(session, session);
  for (const id of ['seen', 'hidden']) {
    const link = await at.upstream(id).link(session);
    for (const about of [call.exchange, undefined]) router.onNotification(link, log('info', id), about);
  }
  for (const { notifications } of [call.stream, stream]) {
    assert.deepEqual(notifications, [[LOG, { level: 'info', data: 'seen' }]]);
  }
  assert.deepEqual(dropped, ['log-denied', 'log-unattributable']);
});

test('an update reaches each subscriber of the resource or its parent once', TIMEOUT, async () => {
  const access = accessOf({ all: { hints: {} }, less: { deny: [{ resources: [`${URI}/b`] }] } }, [
    { ...ANYONE, roles: ['all'] },
    { keys: ['bob'], roles: ['less'] },
  ]);
  const upstreams = { up: { memory: quiet(), isolation: 'shared' }, other: { memory: quiet() } } as const;
  const { at, router, resourceCache } = await routing(upstreams, {}, { access });
  await using _ = at;
  const [merged, own, elsewhere] = [at.session(), at.session({ view: 'up' }), at.session({ view: 'other' })];
  const [denied, unsubscribed] = [at.session({ principal: BOB }), at.session()];
  const link = await at.upstream('up').link(merged.session);
  subscribe(link, URI, merged.session, own.session, elsewhere.session, denied.session);
  subscribe(link, `${URI}/b`, merged.session);
  const before = resourceCache.versionOf('up');
  router.onNotification(link, notification(UPDATED, { uri: `${URI}/b`, title: 'kept' }), undefined);
  assert.deepEqual(merged.stream.notifications, [[UPDATED, { uri: `up+${URI}/b`, title: 'kept' }]]);
  assert.deepEqual(own.stream.notifications, [[UPDATED, { uri: `${URI}/b`, title: 'kept' }]]);
  for (const { stream } of [elsewhere, denied, unsubscribed]) assert.deepEqual(stream.messages, []);
  assert.notEqual(resourceCache.versionOf('up'), before);
});

test('an update that one of two sibling links reports waits for the other a while', TIMEOUT, async (t) => {
  const time = stopTime(t);
  const { at, router } = await routing({ up: { memory: quiet() } });
  await using _ = at;
  const [listener, sibling] = [at.group(), at.group({ capabilities: { elicitation: {} } })];
  const links: Link[] = [];
  for (const { group } of [listener, sibling]) {
    const link = await at.upstream('up').link(group);
    for (const uri of [URI, `${URI}2`]) subscribe(link, uri, listener.group);
    group.links.set('up', link);
    links.push(link);
  }
  const [first, second] = links;
  assert.ok(first !== undefined && second !== undefined && first !== second);
  const update = (link: Link, uri: string) => router.onNotification(link, notification(UPDATED, { uri }), undefined);
  const updated = (uri: string) => [UPDATED, { uri: `up+${uri}` }];
  update(first, URI);
  assert.deepEqual(listener.stream.notifications, []);
  update(second, URI);
  assert.deepEqual(listener.stream.notifications, [updated(URI)]);
  update(first, `${URI}2`);
  // A report at the end of a window waits for all of the next one.
  for (let windows = 0; windows < 2; windows++) time.pass(WINDOW_MS);
  assert.deepEqual(listener.stream.notifications, [updated(URI), updated(`${URI}2`)]);
  subscribe(first, `${URI}3`, listener.group);
  update(first, `${URI}3`);
  assert.deepEqual(listener.stream.notifications.at(-1), updated(`${URI}3`), 'the sibling would not report it');
  assert.deepEqual(sibling.stream.messages, []);
});

test('a change of a task reaches the client that owns it, with its own id', TIMEOUT, async () => {
  const { at, router, taskIds } = await routing({ up: { memory: quiet(), isolation: 'shared' } });
  await using _ = at;
  const [owner, other, older] = [at.session(), at.session(), at.session({ revision: '2025-06-18' })];
  const listening = at.group();
  const upstream = at.upstream('up');
  const link = await upstream.link(owner.session);
  for (const { session } of [other, older]) await upstream.link(session);
  const seal = (holder: ConnectionHolder, task: string) =>
    taskIds.seal(holder.caller, { upstream: 'up', task, holder: holder.key }, 'job');
  const id = await seal(owner.session, 't1');
  await seal(older.session, 't1');
  router.onNotification(link, notification(TASK, { taskId: 't1', status: 'working' }), undefined);
  router.onNotification(link, notification(TASK, { status: 'working' }), undefined);
  assert.deepEqual(owner.stream.notifications, [[TASK, { taskId: id, status: 'working' }]]);
  for (const { stream } of [other, older, listening]) assert.deepEqual(stream.messages, []);
  assert.deepEqual(listening.tasks, ['t1'], 'a listener finds out by itself whether it owns the task');
});

test('a completed URL elicitation ends its wait, whoever it can be attributed to', TIMEOUT, async () => {
  const upstreams = { up: { memory: quiet(), isolation: 'shared' }, other: { memory: quiet() } } as const;
  const { at, router, dropped, urlElicitations } = await routing(upstreams);
  await using _ = at;
  const [{ session }, { client, group }] = [at.session(), at.group()];
  const link = await at.upstream('up').link(session);
  const [legacy, modern] = [at.exchange(session, session), at.exchange(client, group)];
  for (const about of [legacy.exchange, modern.exchange, undefined]) {
    const elicitationId = `e of ${about?.client.caller.revision}`;
    router.onNotification(link, notification(COMPLETE, { elicitationId }), about);
    // A wait for a completed one needs no timer.
    assert.ok(await settlesWithin(urlElicitations.wait('up', [elicitationId], 1_000), 0));
  }
  assert.deepEqual(legacy.stream.notifications, [[COMPLETE, { elicitationId: 'up:e of 2025-11-25' }]]);
  assert.deepEqual([modern.stream.messages, dropped], [[], ['notification-unattributable']]);
});

test('an unknown notification of no call waits for the next stream of its session', TIMEOUT, async () => {
  const { at, router } = await routing({ up: { memory: quiet() } });
  await using _ = at;
  const { session, stream } = at.session();
  const link = await at.upstream('up').link(session);
  session.removeSink(stream);
  router.onNotification(link, notification('notifications/x', { n: 1 }), undefined);
  session.setSink(stream);
  assert.deepEqual(stream.notifications, [['notifications/x', { n: 1 }]]);
});

test('a change whose lists cannot be read is not announced with a later one', TIMEOUT, async () => {
  let isDown = true;
  const memory = quiet({
    capabilities: { tools: { listChanged: true }, prompts: { listChanged: true } },
    hold: (peer, { id }) => {
      if (!isDown) return Promise.resolve();
      peer.fail(id, new GatewayError('upstream-timeout'));
      return new Promise(() => undefined);
    },
  });
  const { at, router } = await routing({ up: { memory, isolation: 'shared' } });
  await using _ = at;
  const { session, stream } = at.session();
  const link = await at.upstream('up').link(session);
  link.hasAnsweredCall = true;
  router.onNotification(link, notification(TOOLS_CHANGED), undefined);
  await memory.until(() => at.lines.find((line) => line.includes('changed lists not fetched')));
  isDown = false;
  router.onNotification(link, notification(PROMPTS_CHANGED), undefined);
  await stream.until(() => stream.messages[0]);
  assert.deepEqual(stream.notifications, [[PROMPTS_CHANGED, null]]);
});

// N-63
test('a shared connection that always reports changes is listed with pauses', TIMEOUT, async (t) => {
  const time = stopTime(t);
  let held: (() => void)[] = [];
  let isHeld = false;
  const memory = quiet({
    capabilities: { tools: { listChanged: true } },
    hold: () => (isHeld ? new Promise<void>((resolve) => held.push(resolve)) : Promise.resolve()),
  });
  const { at, router } = await routing({ up: { memory, isolation: 'shared' } });
  await using _ = at;
  const { session, stream } = at.session();
  const link = await at.upstream('up').link(session);
  link.hasAnsweredCall = true;
  isHeld = true;
  const report = () => router.onNotification(link, notification(TOOLS_CHANGED), undefined);
  const lists = () => memory.requests('tools/list').length;
  const before = lists();
  report();
  await memory.until(() => held[0]);
  for (let n = 0; n < 100; n++) report();
  time.pass(400);
  isHeld = false;
  for (const release of held) release();
  held = [];
  await time.passUntil(
    stream.until(() => stream.messages[0]),
    1,
  );
  assert.equal(lists(), before + 1, 'the next listing waits as long as this one took');
  time.pass(400);
  await memory.until(() => lists() === before + 2 || undefined);
  time.pass(10_000);
  await at.upstream('up').relist('legacy', link, '');
  assert.equal(lists(), before + 3, 'only that of the test');
});

// N-63
test('a server that reports a change after each listing is soon listed once a second', TIMEOUT, async (t) => {
  const time = stopTime(t);
  let lists = 0;
  let report = () => {};
  const memory = quiet({
    capabilities: { tools: { listChanged: true } },
    hold: async () => {
      lists++;
      setTimeout(() => report(), 2);
    },
  });
  const { at, router } = await routing({ up: { memory, isolation: 'shared' } });
  await using _ = at;
  const link = await at.upstream('up').link(at.session().session);
  report = () => router.onNotification(link, notification(TOOLS_CHANGED), undefined);
  report();
  const pass = async (ms: number) => {
    for (let passed = 0; passed < ms; passed++) {
      time.pass(1);
      await nextTurn();
    }
  };
  await pass(4_000);
  lists = 0;
  await pass(4_000);
  assert.ok(lists >= 2 && lists <= 5, `${lists} listings in 4 s`);
});

test('a change that a replaced upstream reports is not its successor’s', TIMEOUT, async () => {
  const memory = quiet({ lists: { tools: [tool('a')] } });
  const { at, router, resourceCache, changesOf } = await routing({ up: { memory, isolation: 'shared' } });
  await using _ = at;
  const { session, stream } = at.session();
  const upstream = at.upstream('up');
  const link = await upstream.link(session);
  Object.assign(link, { isRetired: true, hasAnsweredCall: true });
  router.onNotification(link, notification(TOOLS_CHANGED), undefined);
  // Waits for a listing for the change, if there is one.
  await upstream.relist('legacy', link, '');
  assert.deepEqual([await changesOf(session, stream), resourceCache.versionOf('up')], [[], 0]);
});

test('lists for capabilities that no client has any more are removed, others read', TIMEOUT, async () => {
  const memory = quiet({ lists: { tools: [tool('a')] } });
  const { at, router } = await routing({ up: { memory } });
  await using _ = at;
  const { session } = at.session({ capabilities: { elicitation: {} } });
  const common = commonKey('legacy');
  await at.upstream('up').refresh('legacy', NO_FEATURES, '');
  const [own, gone] = [session.capabilityKey, 'gone'].map((capabilityKey) => ({ ...common, capabilityKey }));
  assert.ok(own !== undefined && gone !== undefined);
  for (const key of [own, gone]) at.offers.update('up', key, { ...EMPTY_OFFER, revision: '2025-11-25' });
  await router.refreshVariants('up', common);
  assert.deepEqual(at.offers.keysOf('up', 'legacy'), [common, own]);
  assert.equal(at.offers.exactOffer('up', own)?.tools.length, 1);
  const asked = memory.peers.map(({ capabilities }) => capabilities.raw('elicitation') !== undefined);
  assert.deepEqual([asked, memory.requests('tools/list').length], [[false, true], 2]);
});

test('a client hears only of lists that differ, and of none before it is ready', TIMEOUT, async () => {
  const { at, router, changesOf } = await routing({ up: { memory: quiet() } });
  await using _ = at;
  const [ready, early] = [at.session(), at.session()];
  early.session.isInitialized = false;
  at.offers.update('up', commonKey('legacy'), {
    ...EMPTY_OFFER,
    revision: '2025-11-25',
    tools: [RawObject.of(tool('a'))],
  });
  await router.onListsChanged(['up']);
  for (const { session } of [ready, early]) assert.deepEqual([...session.catalog.tools.keys()], ['up__a']);
  early.session.isInitialized = true;
  assert.deepEqual(await changesOf(ready.session, ready.stream), [TOOLS_CHANGED]);
  assert.deepEqual(await changesOf(early.session, early.stream), []);
});

test('the users of a lost connection get the lists for all clients back', TIMEOUT, async () => {
  const memory = quiet({ listsOf: (peer) => ({ tools: [tool(peer === memory.peers[0] ? 'own' : 'common')] }) });
  const { at, router } = await routing({ up: { memory } });
  await using _ = at;
  const { session, stream } = at.session();
  const link = await at.upstream('up').link(session);
  const names = () => [...session.catalog.tools.keys()];
  await at.upstream('up').refresh('legacy', session, '');
  router.onNotification(link, notification(TOOLS_CHANGED), undefined);
  await stream.until(() => stream.messages[0]);
  assert.deepEqual(names(), ['up__own']);
  memory.peers[0]?.crash();
  assert.deepEqual(names(), ['up__common']);
});

test('a restored session hears of every list, as all may have changed meanwhile', TIMEOUT, async () => {
  const { at, router } = await routing({ up: { memory: quiet() } });
  await using _ = at;
  const [restored, other] = [at.session(), at.session()];
  router.onRestored(restored.session);
  await restored.stream.until(() => restored.stream.messages[2]);
  const methods = restored.stream.notifications.map(([method]) => method);
  assert.deepEqual(new Set(methods), new Set([TOOLS_CHANGED, PROMPTS_CHANGED, 'notifications/resources/list_changed']));
  assert.deepEqual(other.stream.messages, []);
});
