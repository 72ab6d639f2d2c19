import assert from 'node:assert/strict';
import { test } from 'node:test';
import { settlesWithin } from '../../src/deadline.ts';
import { ResourceCache } from '../../src/gateway/forward/resource-cache.ts';
import type { ConnectionHolder } from '../../src/gateway/exchange/connection-holder.ts';
import { Sealer } from '../../src/gateway/handles/sealer.ts';
import { TaskIds } from '../../src/gateway/handles/task-ids.ts';
import { TaskMarks } from '../../src/gateway/handles/task-marks.ts';
import { ChangedLists } from '../../src/gateway/lists/changes/changed-lists.ts';
import { ListAnnouncer } from '../../src/gateway/lists/changes/list-announcer.ts';
import { NotificationRouter } from '../../src/gateway/notification-router.ts';
import { ResourceUpdates } from '../../src/gateway/resource-updates.ts';
import { UrlElicitations } from '../../src/gateway/questions/url-elicitations.ts';
import { RawObject } from '../../src/json/json.ts';
import type { Notification } from '../../src/protocol/jsonrpc.ts';
import { MemoryKeyStore } from '../../src/store/memory/key-store.ts';
import { MemoryTaskStore } from '../../src/store/memory/task-store.ts';
import { accessOf, ANYONE } from '../policy/policies.ts';
import { GatewayParts, type TestStream } from '../support/gateway-parts.ts';
import { memoryUpstream, type Script } from '../support/memory-upstream.ts';

const TIMEOUT = { timeout: 120_000 };
const PROGRESS = 'notifications/progress';
const LOG = 'notifications/message';
const UPDATED = 'notifications/resources/updated';
const TASK = 'notifications/tasks/status';
const COMPLETE = 'notifications/elicitation/complete';
const TOOLS_CHANGED = 'notifications/tools/list_changed';

const notification = (method: string, params?: object): Notification => ({
  kind: 'notification',
  method,
  params: params && RawObject.of(params),
});
const log = (level: string, data: string) => notification(LOG, { level, data });

/** A router over real upstreams, with the reasons of the notifications that it drops. */
async function routing(...args: ConstructorParameters<typeof GatewayParts>) {
  const at = new GatewayParts(
    args[0],
    { onLinkClosed: (link) => changedLists.onLinkClosed(link), ...args[1] },
    args[2],
  );
  const dropped: string[] = [];
  const taskIds = new TaskIds(await Sealer.open(new MemoryKeyStore()), new MemoryTaskStore(() => undefined), 'here');
  const urlElicitations = new UrlElicitations(() => undefined);
  const resourceCache = new ResourceCache(true, () => undefined);
  const announcer = new ListAnnouncer(() => undefined);
  const siblingsOf = (holder: ConnectionHolder) =>
    at.holders.filter((other) => other !== holder && other.principal === holder.principal);
  const changedLists: ChangedLists = new ChangedLists({
    upstreams: at.upstreams,
    holders: at.holders,
    offers: at.offers,
    log: at.log,
    siblingsOf,
    announcer,
    onOtherCatalog: () => undefined,
    onCatalogOfUnresolved: () => undefined,
    onLimit: () => undefined,
  });
  const router = new NotificationRouter({
    holders: at.holders,
    changedLists,
    updates: new ResourceUpdates({ siblingsOf, pendingSubscription: () => undefined, onMerged: () => undefined }),
    urlElicitations,
    resourceCache,
    marks: new TaskMarks(taskIds),
    log: at.log,
    onDropped: (reason, upstream) => {
      assert.ok(at.upstreams.get(upstream) !== undefined, upstream);
      dropped.push(reason);
    },
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

test('a change of a task reaches the client that owns it, with its own id', TIMEOUT, async () => {
  const { at, router, taskIds } = await routing({ up: { memory: quiet(), isolation: 'shared' } });
  await using _ = at;
  const [owner, other, older] = [at.session(), at.session(), at.session({ revision: '2025-06-18' })];
  const listening = at.group();
  const upstream = at.upstream('up');
  const link = await upstream.link(owner.session);
  for (const { session } of [other, older]) await upstream.link(session);
  const seal = (holder: ConnectionHolder, task: string) =>
    taskIds.seal(holder.caller, { upstream: 'up', task, holder: holder.key, run: link.run }, 'job');
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
  const [{ session }, { client, group }] = [at.session({ capabilities: { elicitation: { url: {} } } }), at.group()];
  const link = await at.upstream('up').link(session);
  const [legacy, modern] = [at.exchange(session, session), at.exchange(client, group)];
  for (const about of [legacy.exchange, modern.exchange, undefined]) {
    const elicitationId = `e of ${about?.client.caller.revision}`;
    router.onNotification(link, notification(COMPLETE, { elicitationId }), about);
    // A wait for a completed one needs no timer.
    assert.ok(await settlesWithin(urlElicitations.wait('up', session.principal, [elicitationId], 1_000), 0));
  }
  assert.deepEqual(legacy.stream.notifications, [[COMPLETE, { elicitationId: 'up:e of 2025-11-25' }]]);
  assert.deepEqual([modern.stream.messages, dropped], [[], ['notification-unattributable']]);
});

test('a client that opens no pages is not told that one is complete', TIMEOUT, async () => {
  const { at, router, dropped } = await routing({ up: { memory: quiet() } });
  await using _ = at;
  for (const revision of ['2025-06-18', '2025-11-25'] as const) {
    const { session, stream } = at.session({ revision, capabilities: { elicitation: { form: {} } } });
    const link = await at.upstream('up').link(session);
    router.onNotification(link, notification(COMPLETE, { elicitationId: 'e' }), undefined);
    assert.deepEqual([stream.messages, dropped], [[], []], revision);
  }
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

test('a change that a replaced upstream reports is not its successor’s', TIMEOUT, async () => {
  const memory = quiet({});
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

test('a changed resource or list is not answered from the cache', TIMEOUT, async () => {
  const { at, router, resourceCache } = await routing({ up: { memory: quiet() } });
  await using _ = at;
  const link = await at.upstream('up').link(at.session().session);
  const versions = [UPDATED, TOOLS_CHANGED].map((method) => {
    router.onNotification(link, notification(method), undefined);
    return resourceCache.versionOf('up');
  });
  assert.equal(new Set([0, ...versions]).size, 3);
});
