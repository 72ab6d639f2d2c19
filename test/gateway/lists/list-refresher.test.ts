import assert from 'node:assert/strict';
import { test } from 'node:test';
import { setImmediate as nextTurn } from 'node:timers/promises';
import { commonKey, EMPTY_OFFER } from '../../../src/catalog/offer.ts';
import { GatewayError } from '../../../src/errors.ts';
import type { ConnectionHolder } from '../../../src/gateway/exchange/connection-holder.ts';
import type { ListingClient } from '../../../src/gateway/lists/list-fetches.ts';
import { RawObject } from '../../../src/json/json.ts';
import { NO_FEATURES } from '../../../src/upstream/link/link.ts';
import { HttpStatusError } from '../../../src/upstream/rpc/http-status-error.ts';
import { ListedUpstreams, REMOTE } from '../../support/listed-upstreams.ts';
import { memoryUpstream } from '../../support/memory-upstream.ts';
import { PATIENCE_MS } from '../../support/patience.ts';
import { stopTime } from '../../support/stopped-time.ts';
import { MemoryOfferStore } from '../../store/memory/memory-offer-store.ts';

const ECHO = { name: 'echo', inputSchema: { type: 'object' } };
const LISTS = { tools: [ECHO] };
const OFFER = { ...EMPTY_OFFER, revision: '2025-11-25', tools: [RawObject.of(ECHO)] } as const;
const COMMON = commonKey('legacy');
const FIRST: ListingClient = { era: 'legacy', principal: '', ...NO_FEATURES };
const HOUR_MS = 3_600_000;

/** An upstream that starts when its gate opens. */
function gated() {
  const { promise, resolve, reject } = Promise.withResolvers<void>();
  const memory = memoryUpstream({ lists: LISTS, start: () => promise });
  const isStarting = () => memory.until(() => memory.starts > 0 || undefined);
  return { memory, open: () => resolve(), fail: () => reject(new Error('does not start')), isStarting };
}

function healthy() {
  return { memory: memoryUpstream({ lists: LISTS }) };
}

function toolsOf({ catalog }: ConnectionHolder): readonly string[] {
  return [...catalog.tools.keys()];
}

/** Returns whether work waits for something other than work of this process. */
async function isPending(work: Promise<unknown> | undefined): Promise<boolean> {
  let isOver = work === undefined;
  void work?.then(() => (isOver = true));
  // The scripted servers answer in later turns.
  for (let turn = 0; turn < 20; turn++) await nextTurn();
  return !isOver;
}

test('many requests for a hanging upstream take one place among the starting ones', async (t) => {
  stopTime(t);
  const [hanging, other] = [gated(), healthy()];
  await using setup = await ListedUpstreams.open({ hanging, other });
  const upstream = setup.upstream('hanging');
  const requests = Array.from({ length: 40 }, () => setup.refresher.refreshAtStart(upstream));
  assert.equal(await setup.refresher.refreshAtStart(setup.upstream('other')), true);
  hanging.open();
  assert.ok((await Promise.all(requests)).every((isFetched) => isFetched));
});

test('an upstream is listed although the one that it has replaced still hangs', async () => {
  const [before, after] = [gated(), healthy()];
  await using setup = await ListedUpstreams.open({ up: before });
  const old = setup.upstream('up');
  const hanging = setup.refresher.refreshAtStart(old);
  await before.isStarting();
  old.retire();
  assert.equal(await setup.refresher.refreshAtStart(setup.create('up', after)), true);
  before.fail();
  assert.equal(await hanging, false);
});

test('an upstream that starts too slowly is recorded although its predecessor failed', async (t) => {
  const time = stopTime(t);
  const [before, after] = [gated(), gated()];
  await using setup = await ListedUpstreams.open({ up: before }, { waitMs: 5_000 });
  const old = setup.upstream('up');
  // A request in flight, so that the old one is not stopped yet.
  old.limiter.acquire('');
  const hanging = setup.refresher.refreshAtStart(old);
  await before.isStarting();
  const replaced = setup.upstreams.replace(setup.create('up', after), PATIENCE_MS);
  const waiting = setup.refresher.refreshFor(setup.group().group);
  await after.isStarting();
  before.fail();
  assert.equal(await hanging, false);
  time.pass(5_000);
  await waiting;
  assert.equal(setup.records.hasFailed('up'), true);
  old.limiter.release('');
  await time.passUntil(replaced, 100);
});

test('an upstream whose predecessor was replaced during its listing is not slow', async () => {
  const [before, after] = [gated(), gated()];
  await using setup = await ListedUpstreams.open({ up: before });
  const waiting = setup.refresher.refreshFor(setup.group().group);
  await before.isStarting();
  const replaced = setup.upstreams.replace(setup.create('up', after), PATIENCE_MS);
  const listing = setup.refresher.refreshAtStart(setup.upstream('up'));
  before.fail();
  await waiting;
  assert.equal(setup.records.hasFailed('up'), false);
  await after.isStarting();
  after.open();
  assert.equal(await listing, true);
  await replaced;
});

test('the outcome of a retired upstream is not recorded for its successor', async () => {
  for (const outcome of ['fail', 'open'] as const) {
    const gate = gated();
    await using setup = await ListedUpstreams.open({ up: gate });
    const hadFailed = outcome === 'open';
    setup.records.record('up', hadFailed);
    const listing = setup.refresher.refreshAtStart(setup.upstream('up'));
    await gate.isStarting();
    setup.upstream('up').retire();
    gate[outcome]();
    assert.equal(await listing, outcome === 'open');
    assert.equal(setup.records.hasFailed('up'), hadFailed, outcome);
  }
});

test('refused credentials of one principal leave the waits of others as they are', async () => {
  const refusal = new GatewayError('upstream-unavailable', { message: 'refused' }, new HttpStatusError(401));
  const start = ({ audience }: { readonly audience: string }) =>
    audience === 'anna' ? Promise.reject(refusal) : Promise.resolve();
  const memory = memoryUpstream({ lists: LISTS, start });
  await using setup = await ListedUpstreams.open({ up: { memory, target: REMOTE, credentials: 'principal' } });
  const clientOf = (key: string) => setup.group({ principal: { key, label: key, scopes: [] } }).group;
  await setup.refresher.refreshFor(clientOf('anna'));
  assert.equal(setup.records.hasFailed('up'), false);
  const bert = clientOf('bert');
  await setup.refresher.refreshFor(bert);
  assert.deepEqual(toolsOf(bert), ['up__echo']);
});

test('clients wait for a hanging only upstream as configured, and then never again', async (t) => {
  const time = stopTime(t);
  const gate = gated();
  await using setup = await ListedUpstreams.open({ up: gate }, { waitMs: 5_000 });
  const waiting = setup.refresher.beginFirstLists('up', FIRST);
  await gate.isStarting();
  time.pass(4_999);
  assert.equal(await isPending(waiting), true);
  time.pass(1);
  await waiting;
  await setup.refresher.beginFirstLists('up', FIRST);
  await setup.refresher.refreshFor(setup.group({ view: 'up' }).group);
});

test('requests during a check wait for it, and the next check is 30 s later', async (t) => {
  const time = stopTime(t);
  const gate = gated();
  await using setup = await ListedUpstreams.open({ up: { ...gate, isolation: 'shared' } });
  const { refresher, offers } = setup;
  const client = setup.group().group;
  const [first, second] = [refresher.refreshFor(client), refresher.refreshFor(client)];
  await gate.isStarting();
  assert.equal(client.awaitedLists, 2);
  gate.open();
  await first;
  await second;
  assert.equal(client.awaitedLists, 0);
  assert.deepEqual(toolsOf(client), ['up__echo']);
  offers.expire('up', 'legacy', '');
  time.pass(30_000);
  assert.equal(refresher.refreshFor(client), undefined);
  time.pass(1);
  await refresher.refreshFor(client);
  await gate.memory.until(() => gate.memory.requests('tools/list')[1]);
});

test('a request between two checks gets newer lists at once', async () => {
  await using setup = await ListedUpstreams.open({ up: healthy() });
  const client = setup.group().group;
  await setup.refresher.refreshFor(client);
  setup.offers.update('up', COMMON, { ...OFFER, tools: [RawObject.of({ ...ECHO, name: 'newer' })] });
  assert.equal(setup.refresher.refreshFor(client), undefined);
  assert.deepEqual(toolsOf(client), ['up__newer']);
});

test('a request checks at once when upstreams have come or gone', async () => {
  await using setup = await ListedUpstreams.open({ up: healthy(), late: healthy() });
  const client = setup.group().group;
  await setup.upstreams.remove('late', 0);
  await setup.refresher.refreshFor(client);
  setup.upstreams.add(setup.create('late', healthy()));
  assert.equal(setup.refresher.refreshFor(client), undefined);
  setup.refresher.dropChecks();
  await setup.refresher.refreshFor(client);
  assert.deepEqual(toolsOf(client), ['up__echo', 'late__echo']);
});

test('a check comes after the lists that another process has changed, at most 250 ms', async (t) => {
  const time = stopTime(t);
  for (const isRead of [true, false]) {
    const up = healthy();
    const { promise, resolve } = Promise.withResolvers<void>();
    await using setup = await ListedUpstreams.open({ up }, { reading: () => promise });
    const waiting = setup.refresher.refreshFor(setup.group().group);
    await nextTurn();
    time.pass(249);
    assert.equal(await isPending(waiting), true);
    assert.equal(up.memory.starts, 0);
    if (isRead) resolve();
    else time.pass(1);
    await waiting;
    assert.equal(up.memory.starts, 1);
  }
});

test('lists of remote upstreams are kept for 5 s to 5 min, and of processes forever', async (t) => {
  const time = stopTime(t);
  const remote = { ...healthy(), target: REMOTE };
  await using setup = await ListedUpstreams.open({ silent: remote, modest: remote, hasty: remote, lasting: remote });
  for (const { id, statedMs, validMs } of [
    { id: 'silent', statedMs: 0, validMs: 300_000 },
    { id: 'modest', statedMs: 60_000, validMs: 48_000 },
    { id: 'hasty', statedMs: 1, validMs: 5_000 },
    { id: 'lasting', statedMs: HOUR_MS, validMs: 300_000 },
  ]) {
    setup.offers.update(id, COMMON, { ...OFFER, caching: { ttlMs: statedMs, isPublic: false } });
    time.pass(validMs - 1);
    assert.equal(setup.refresher.refreshUnlessKnown(setup.upstream(id)), undefined, id);
    time.pass(1);
    assert.equal(await setup.refresher.refreshUnlessKnown(setup.upstream(id)), true, id);
  }
  await using processes = await ListedUpstreams.open({ up: healthy() });
  processes.offers.update('up', COMMON, OFFER);
  time.pass(24 * HOUR_MS);
  assert.equal(processes.refresher.refreshUnlessKnown(processes.upstream('up')), undefined);
});

test('fresh lists on disk spare the start of a process that works and is not required', async () => {
  const store = new MemoryOfferStore();
  const scripted = {
    spared: healthy(),
    required: { ...healthy(), required: true },
    remote: { ...healthy(), target: REMOTE },
    failed: healthy(),
  };
  {
    await using before = await ListedUpstreams.open(scripted, { store });
    await before.refresher.refreshAll();
    before.records.record('failed', true);
  }
  await using setup = await ListedUpstreams.open(scripted, { store });
  const fetched = [...setup.upstreams.values()].map(async (upstream) =>
    (await setup.refresher.refreshUnlessKnown(upstream)) === true ? [upstream.id] : [],
  );
  assert.deepEqual((await Promise.all(fetched)).flat(), ['required', 'remote', 'failed']);
});

test('clients with capabilities wait 1 s for lists of their own, and only once', async (t) => {
  const time = stopTime(t);
  const gate = Promise.withResolvers<void>();
  const memory = memoryUpstream({
    lists: LISTS,
    start: () => (memory.starts === 1 ? Promise.resolve() : gate.promise),
  });
  await using setup = await ListedUpstreams.open({ up: { memory } });
  await setup.refresher.refreshAtStart(setup.upstream('up'));
  const client = () => setup.group({ capabilities: { sampling: {} } }).group;
  const waiting = setup.refresher.refreshFor(client());
  await memory.until(() => memory.starts === 2 || undefined);
  time.pass(999);
  assert.equal(await isPending(waiting), true);
  time.pass(1);
  await waiting;
  const second = client();
  await setup.refresher.refreshFor(second);
  assert.deepEqual(toolsOf(second), ['up__echo']);
  assert.equal(setup.records.hasFailed('up'), false);
  gate.resolve();
});

test('clients with capabilities wait 1 s more once the lists for all are known', async (t) => {
  const time = stopTime(t);
  for (const [waitMs, waitedMs] of [
    [30_000, 1_000],
    [5_500, 500],
  ] as const) {
    const [common, own] = [Promise.withResolvers<void>(), Promise.withResolvers<void>()];
    const memory = memoryUpstream({
      lists: LISTS,
      start: () => (memory.starts === 1 ? common.promise : own.promise),
    });
    await using setup = await ListedUpstreams.open({ up: { memory } }, { waitMs });
    const atStart = setup.refresher.refreshAtStart(setup.upstream('up'));
    await memory.until(() => memory.starts === 1 || undefined);
    const { group } = setup.group({ capabilities: { sampling: {} } });
    const waiting = setup.refresher.refreshFor(group);
    await memory.until(() => memory.starts === 2 || undefined);
    time.pass(5_000);
    assert.equal(await isPending(waiting), true, 'nothing is known yet');
    common.resolve();
    await atStart;
    time.pass(waitedMs - 1);
    assert.equal(await isPending(waiting), true);
    time.pass(1);
    await waiting;
    assert.deepEqual(toolsOf(group), ['up__echo']);
    assert.equal(setup.records.hasFailed('up'), false);
    own.resolve();
  }
});

test('a client with credentials of its own waits for its own lists alone', async (t) => {
  const time = stopTime(t);
  const gate = Promise.withResolvers<void>();
  const memory = memoryUpstream({ lists: LISTS, start: () => gate.promise });
  await using setup = await ListedUpstreams.open(
    { up: { memory, target: REMOTE, credentials: 'principal' } },
    { waitMs: 30_000 },
  );
  const atStart = setup.refresher.refreshAtStart(setup.upstream('up'));
  const anna = setup.group({ principal: { key: 'anna', label: 'anna', scopes: [] } }).group;
  const waiting = setup.refresher.refreshFor(anna);
  assert.equal(await atStart, true, 'nobody has common lists of it');
  await memory.until(() => memory.starts === 1 || undefined);
  time.pass(20_000);
  assert.equal(await isPending(waiting), true);
  gate.resolve();
  await waiting;
  assert.deepEqual(toolsOf(anna), ['up__echo']);
});

test('only a process that is not listed yet is listed when it starts for a call', async () => {
  const [unlisted, listed, remote] = [healthy(), healthy(), { ...healthy(), target: REMOTE }];
  await using setup = await ListedUpstreams.open({ unlisted, listed, remote });
  await setup.refresher.refreshAtStart(setup.upstream('listed'));
  for (const id of ['gone', 'remote', 'listed', 'unlisted']) setup.refresher.beginListing(setup.group().group, id);
  await unlisted.memory.until(() => unlisted.memory.requests('tools/list')[0]);
  assert.deepEqual(
    [unlisted, listed, remote].map(({ memory }) => memory.requests('tools/list').length),
    [1, 1, 0],
  );
});

test('all upstreams are listed although one does not start and one must not', async () => {
  const memory = memoryUpstream({ start: () => Promise.reject(new Error('does not start')) });
  const misconfigured = { ...healthy(), problem: 'a variable is not set' };
  await using setup = await ListedUpstreams.open({ down: { memory }, misconfigured, up: healthy() });
  await setup.refresher.refreshAll();
  const client = setup.group().group;
  assert.deepEqual(toolsOf(client), ['up__echo']);
  assert.deepEqual(
    ['down', 'misconfigured', 'up'].map((id) => setup.records.hasFailed(id)),
    [true, false, false],
  );
});

test('an upstream whose last listing failed is started after the others', async () => {
  const started: string[] = [];
  const noting = (id: string) => {
    const start = async () => void started.push(id);
    return { memory: memoryUpstream({ lists: LISTS, start }) };
  };
  await using setup = await ListedUpstreams.open({ down: noting('down'), up: noting('up') });
  setup.records.record('down', true);
  await setup.refresher.beginFirstLists('', FIRST);
  await Promise.all(['down', 'up'].map((id) => setup.refresher.refreshAtStart(setup.upstream(id))));
  assert.deepEqual(started, ['up', 'down']);
});
