import assert from 'node:assert/strict';
import { test } from 'node:test';
import { redisPlacementTable } from '../../../src/store/redis/placement-table.ts';
import { openRedis, redisConfig, RedisServer, sharedRedis } from '../../support/redis.ts';
import { waitUntil } from '../../support/wait-until.ts';
import { placementTableContract } from '../placement-table.contract.ts';

const redis = sharedRedis();

placementTableContract('redis', async (leaseMs, count) => {
  const config = redisConfig((await redis).url);
  const processes = await Promise.all(Array.from({ length: count }, () => openRedis(config)));
  return processes.map((access) => redisPlacementTable(access, leaseMs));
});

const HOUR_MS = 3_600_000;
const LEASE_MS = 1_000; // subject
const member = (id: string) => ({ id, process: id, address: '127.0.0.1:1', version: '1' });

/** Opens a table, with a function that sets the clock of Redis by some ms: the table then finds another time than it expects. */
async function openWithClock(leaseMs: number) {
  const { connection, keys, box } = await openRedis(redisConfig((await redis).url));
  const [, , clock] = keys.members;
  const setClock = async (byMs: number) => {
    const [at = 0, now = 0] = String(await connection.command('GET', clock))
      .split(':')
      .map(Number);
    await connection.command('SET', clock, `${at - byMs}:${now}`);
  };
  return { table: redisPlacementTable({ connection, keys, box }, leaseMs), setClock };
}

// REL-32
test('a dead member is gone after its lease although the clock was set back', async () => {
  const { table, setClock } = await openWithClock(100);
  await table.join(member('dead'));
  await setClock(-HOUR_MS);
  await waitUntil(async () => (await table.members()).length === 0);
});

// REL-32
test('no lease lapses because the clock was set forward', async () => {
  const { table, setClock } = await openWithClock(60_000);
  const [one, two] = [member('one'), member('two')];
  await table.join(one);
  await table.join(two);
  await setClock(HOUR_MS);
  assert.equal((await table.renew(one.id))?.length, 2);
  assert.equal((await table.renew(two.id))?.length, 2);
});

// REL-28
test('the members can be asked for while Redis is full', async () => {
  await using server = await RedisServer.start();
  const access = await openRedis(redisConfig(server.url));
  const table = redisPlacementTable(access, 60_000);
  await table.join(member('one'));
  await access.connection.command('CONFIG', 'SET', 'maxmemory', '1kb');
  await assert.rejects(table.join(member('two')), { code: 'store-unavailable' });
  assert.deepEqual(await table.members(), [member('one')]);
});

// R12
test('a master that has become a replica lists no members', async () => {
  await using server = await RedisServer.start();
  const access = await openRedis(redisConfig(server.url));
  const table = redisPlacementTable(access, 60_000);
  await table.join(member('one'));
  await access.connection.command('REPLICAOF', '127.0.0.1', '1');
  await assert.rejects(table.members(), { code: 'store-unavailable' });
});

test('a revocation that another version has sent in another form is ignored', async () => {
  const { connection, keys, box } = await openRedis(redisConfig((await redis).url));
  const table = redisPlacementTable({ connection, keys, box }, 60_000);
  const revoked: unknown[] = [];
  let onText: ((text: string) => void) | undefined;
  connection.subscribe = async (_channel, listener) => {
    onText = (text) => listener.onText(text);
  };
  await table.watch(
    'one',
    (key) => revoked.push(key),
    () => undefined,
  );
  const key = { principal: 'anna', name: 's.1' };
  onText?.(box.seal(keys.revokedChannels, JSON.stringify({ key })));
  onText?.(table.revokedText(key));
  assert.deepEqual(revoked, [key]);
});

// REL-28
test('no lease lapses while Redis is stopped', async () => {
  await using server = await RedisServer.start();
  const { connection, keys, box } = await openRedis(redisConfig(server.url));
  const table = redisPlacementTable({ connection, keys, box }, LEASE_MS);
  await waitUntil(async () => {
    const joinedMs = performance.now();
    await table.join(member('one'));
    server.pause();
    const pausedMs = performance.now();
    await waitUntil(() => performance.now() > pausedMs + 1.5 * LEASE_MS);
    const resumedMs = performance.now();
    server.resume();
    const members = await table.renew('one');
    const ranMs = performance.now() - resumedMs + (pausedMs - joinedMs);
    assert.ok(members?.length === 1 || ranMs > 0.9 * LEASE_MS, 'the lease has lapsed');
    return members !== undefined;
  });
});
