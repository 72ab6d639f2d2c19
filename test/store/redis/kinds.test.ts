import assert from 'node:assert/strict';
import { randomUUID } from 'node:crypto';
import { test } from 'node:test';
import type { RedisConfig } from '../../../src/config/values/config.ts';
import { keyIdOf } from '../../../src/store/api-key-store.ts';
import type { RedisAccess } from '../../../src/store/redis/access.ts';
import { RedisApiKeyStore } from '../../../src/store/redis/api-key-store.ts';
import { RedisConnection } from '../../../src/store/redis/connection.ts';
import { redisCounterTable } from '../../../src/store/redis/counter-table.ts';
import { RedisEventStore } from '../../../src/store/redis/event-store.ts';
import { redisKeyStore } from '../../../src/store/redis/key-store.ts';
import { redisKeyedCallStore } from '../../../src/store/redis/keyed-call-store.ts';
import { redisOfferStore } from '../../../src/store/redis/offer-store.ts';
import { redisOutcomeStore } from '../../../src/store/redis/outcome-store.ts';
import { type PlacementKey, placementText } from '../../../src/store/placement-table.ts';
import { redisPlacementTable } from '../../../src/store/redis/placement-table.ts';
import { RedisRateTable } from '../../../src/store/redis/rate-table.ts';
import { RedisSessionStore } from '../../../src/store/redis/session-store.ts';
import { checkRedis } from '../../../src/store/redis/start-checks.ts';
import { redisTasks } from '../../../src/store/redis/task-store.ts';
import type { SessionRef } from '../../../src/store/session-store.ts';
import { freePort } from '../../support/free-port.ts';
import { openRedis, redisConfig, startCluster, startSentinel, startTls } from '../../support/redis.ts';
import { TcpRelay } from '../../support/tcp-relay.ts';
import { waitUntil } from '../../support/wait-until.ts';
import { keyOf } from '../api-key-store.contract.ts';

const OPTIONS = { timeout: 120_000 };

/** Uses every store once, for several principals, so that several slots are involved. */
async function useAll(config: RedisConfig): Promise<void> {
  const opened = await openRedis(config);
  const { connection, keys } = opened;
  // As the start of a gateway.
  connection.bePatient();
  await checkRedis(connection, keys, () => Date.now());
  assert.equal(connection.localHost, '127.0.0.1');
  const ring = redisKeyStore(opened);
  await ring.read();
  await ring.add(Date.now(), 60_000);
  assert.equal((await ring.read()).length, 2);

  const table = redisPlacementTable(opened, 5_000);
  const member = { id: 'm.1', process: 'm', address: '127.0.0.1:1', version: '1' };
  await table.join(member);
  assert.deepEqual(await table.renew(member.id), [member]);
  const received: PlacementKey[] = [];
  await table.watch(
    member.id,
    (key) => received.push(key),
    () => undefined,
  );
  for (let n = 0; n < 12; n++) {
    const principal = randomUUID();
    let fence: string | undefined;
    const store = new RedisSessionStore({
      ...opened,
      fenceOf: () => fence,
      onFenced: async () => undefined,
      revokedText: (key) => table.revokedText(key),
      onLimit: () => undefined,
    });
    const session = { principal, serial: await store.nextSerial(principal), expiresMs: Date.now() + 60_000 };
    fence = placementText(await table.claim({ principal, name: `s.${session.serial}` }, member.id, undefined));
    await store.change(session, { kind: 'subscribe', uri: 'a' });
    assert.deepEqual(await store.load(session), { subscriptions: ['a'] });
    await useEvents(opened, session, fence, n === 0 ? 1 : 1_000_000);
    await store.end(session);
    assert.equal(await store.isEnded(session), true);
    const outcomes = redisOutcomeStore(opened, () => undefined);
    assert.equal(await outcomes.settle(principal, 'end', 60_000), true);
    assert.equal(await redisCounterTable(opened, 1_000).lease(principal, 'one', 3, 5), 3);
    assert.equal((await new RedisRateTable(opened).take(principal, 3, 5, 60_000)).units, 3);
    const keyedCalls = redisKeyedCallStore(opened, () => undefined);
    const keyed = { principal, name: 'key' };
    assert.deepEqual(await keyedCalls.claim(keyed, 'm/1', 60_000), { kind: 'claimed' });
    await keyedCalls.end(keyed, 'm/1', 'end', 60_000);
    assert.deepEqual(await keyedCalls.claim(keyed, 'm/2', 60_000), { kind: 'ended', outcome: 'end' });
    const tasks = redisTasks(opened, () => undefined);
    const task = { upstream: 'u', task: 't', holder: 'h', run: '', id: 'i' };
    await tasks.add(principal, task);
    assert.deepEqual(await tasks.list(principal), [task]);
    const offer = { upstream: principal, target: 't', era: '', capabilityKey: 'c', audience: '' };
    const offers = redisOfferStore(opened, () => undefined);
    await offers.write(offer, 'lists');
    assert.equal(await offers.read(offer), 'lists');
  }
  await waitUntil(() => received.length === 12);
  await useApiKeys(opened);
}

/** Uses the events of one session. @param totalBytes those of all sessions, beyond which events are removed. */
async function useEvents(redis: RedisAccess, session: SessionRef, fence: string, totalBytes: number): Promise<void> {
  const limits: string[] = [];
  await using events = new RedisEventStore({
    ...redis,
    fenceOf: () => fence,
    process: 'm',
    isAlive: () => Promise.resolve(false),
    limits: { events: 10, bytes: 10_000, totalBytes },
    onLimit: (limit) => limits.push(limit),
    onError: (thrown) => assert.fail(String(thrown)),
  });
  const stream = { stream: 'a', writer: 'm' };
  const changes = [
    { ...stream, kind: 'open', isEndless: true },
    { ...stream, kind: 'add', seq: 1, text: 'event', reopen: 'ending' },
  ] as const;
  assert.deepEqual(await events.write(session, changes), new Set());
  if (totalBytes === 1) {
    await waitUntil(() => limits.includes('storedEventsBytes'));
    return;
  }
  const kept = [{ seq: 1, text: 'event' }];
  assert.deepEqual((await events.read(session, 'a'))?.events, kept);
  assert.deepEqual((await events.take(session, 'a', 'm'))?.events, kept);
}

async function useApiKeys(redis: RedisAccess): Promise<void> {
  const apiKeys = new RedisApiKeyStore(redis);
  let changes = 0;
  using _watch = await apiKeys.watch(() => changes++);
  const key = keyOf('one');
  await new RedisApiKeyStore(redis).change(() => ({ add: [key] }));
  assert.deepEqual(await apiKeys.read(), [key]);
  await waitUntil(() => changes > 0);
  const uses = new Map([[keyIdOf(key), 1]]);
  await apiKeys.storeUses(uses);
  assert.deepEqual(await apiKeys.lastUses(), uses);
}

test('every store works in a cluster', OPTIONS, async () => {
  await using cluster = await startCluster();
  await useAll(redisConfig(cluster.url));
});

test('every store works over TLS, and a certificate that nobody vouches for is refused', OPTIONS, async () => {
  await using redis = await startTls();
  await useAll(redisConfig(redis.url, { caFile: redis.caFile }));
  await assert.rejects(
    RedisConnection.open(redisConfig(redis.url), { onCommandFailed: () => undefined }, { startMs: 500 }),
    {
      name: 'StartError',
    },
  );
});

// R13
test('every store works behind a sentinel, also after a failover', OPTIONS, async () => {
  await using sentinel = await startSentinel();
  const config = redisConfig(sentinel.url);
  await useAll(config);
  const { connection } = await openRedis(config);
  await sentinel.master.kill();
  await waitUntil(() =>
    connection.command('SET', config.prefix, '1').then(
      () => true,
      () => false,
    ),
  );
  await useAll({ ...config, prefix: `${config.prefix.slice(0, 20)}-2` });
});

test('a sentinel that answers nothing is passed over', OPTIONS, async () => {
  await using sentinel = await startSentinel();
  await using relay = await TcpRelay.open(sentinel.port);
  relay.pause();
  const url = `redis+sentinel://127.0.0.1:${relay.port},127.0.0.1:${sentinel.port}/main`;
  const { connection } = await openRedis(redisConfig(url));
  assert.equal(await connection.command('PING'), 'PONG');
});

test('a start whose sentinels cannot be reached, or know no such master, fails', OPTIONS, async () => {
  await using sentinel = await startSentinel();
  for (const place of [`127.0.0.1:${await freePort()}/main`, `127.0.0.1:${sentinel.port}/other`]) {
    const config = redisConfig(`redis+sentinel://${place}`);
    await assert.rejects(RedisConnection.open(config, { onCommandFailed: () => undefined }, { startMs: 500 }), {
      name: 'StartError',
      message: /^Redis cannot be used at 127\.0\.0\.1:\d+ \(gateway\.redis\.url\): All sentinels are unreachable/,
    });
  }
});
