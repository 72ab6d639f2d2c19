import assert from 'node:assert/strict';
import { randomUUID } from 'node:crypto';
import { test } from 'node:test';
import type { RedisConfig } from '../../../src/config/config.ts';
import { RedisConnection } from '../../../src/store/redis/connection.ts';
import { RedisCounterTable } from '../../../src/store/redis/counter-table.ts';
import { RedisKeyStore } from '../../../src/store/redis/key-store.ts';
import { RedisOfferStore } from '../../../src/store/redis/offer-store.ts';
import { RedisOutcomeStore } from '../../../src/store/redis/outcome-store.ts';
import { type PlacementKey, placementText } from '../../../src/store/placement-table.ts';
import { RedisPlacementTable } from '../../../src/store/redis/placement-table.ts';
import { RedisSessionStore } from '../../../src/store/redis/session-store.ts';
import { checkRedis } from '../../../src/store/redis/start-checks.ts';
import { RedisTaskStore } from '../../../src/store/redis/task-store.ts';
import { openRedis, redisConfig, startCluster, startSentinel, startTls } from '../../support/redis.ts';
import { waitUntil } from '../../support/wait-until.ts';

const OPTIONS = { timeout: 120_000 };

/** Uses every store once, for several principals, so that several slots are involved. */
async function useAll(config: RedisConfig): Promise<void> {
  const { connection, keys, box } = await openRedis(config);
  // As the start of a gateway.
  connection.bePatient();
  await checkRedis(connection, keys, () => Date.now());
  assert.equal(connection.localHost, '127.0.0.1');
  const ring = new RedisKeyStore(connection, keys, box);
  await ring.read();
  await ring.add(Date.now(), 60_000);
  assert.equal((await ring.read()).length, 2);

  const table = new RedisPlacementTable(connection, keys, box, 5_000);
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
      connection,
      keys,
      box,
      fenceOf: () => fence,
      onFenced: () => undefined,
      revokedText: (key) => table.revokedText(key),
      onLimit: () => undefined,
    });
    const session = { principal, serial: await store.nextSerial(principal), expiresMs: Date.now() + 60_000 };
    fence = placementText(await table.claim({ principal, name: `s.${session.serial}` }, member.id, undefined));
    await store.change(session, { kind: 'subscribe', uri: 'a' });
    assert.deepEqual(await store.load(session), { subscriptions: ['a'] });
    await store.end(session);
    assert.equal(await store.isEnded(session), true);
    const outcomes = new RedisOutcomeStore(connection, keys, box, () => undefined);
    assert.equal(await outcomes.settle(principal, 'end', 60_000), true);
    assert.equal(await new RedisCounterTable(connection, keys, 1_000).lease(principal, 'one', 3, 5), 3);
    const tasks = new RedisTaskStore(connection, keys, box, () => undefined);
    const task = { upstream: 'u', task: 't', holder: 'h', id: 'i' };
    await tasks.add(principal, task);
    assert.deepEqual(await tasks.list(principal), [task]);
    const offer = { upstream: principal, target: 't', era: '', capabilityKey: 'c', audience: '' };
    const offers = new RedisOfferStore(connection, keys, box, () => undefined);
    await offers.write(offer, 'lists');
    assert.equal(await offers.read(offer), 'lists');
  }
  await waitUntil(() => received.length === 12);
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
