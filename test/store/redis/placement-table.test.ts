import assert from 'node:assert/strict';
import { test } from 'node:test';
import { RedisPlacementTable } from '../../../src/store/redis/placement-table.ts';
import { openRedis, redisConfig, RedisServer, sharedRedis } from '../../support/redis.ts';
import { waitUntil } from '../../support/wait-until.ts';
import { placementTableContract } from '../placement-table.contract.ts';

const redis = sharedRedis();

placementTableContract('redis', async (leaseMs, count) => {
  const config = redisConfig((await redis).url);
  const processes = await Promise.all(Array.from({ length: count }, () => openRedis(config)));
  return processes.map(({ connection, keys, box }) => new RedisPlacementTable(connection, keys, box, leaseMs));
});

const HOUR_MS = 3_600_000;
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
  return { table: new RedisPlacementTable(connection, keys, box, leaseMs), setClock };
}

test('REL-32 a dead member is gone after its lease although the clock was set back', async () => {
  const { table, setClock } = await openWithClock(100);
  await table.join(member('dead'));
  await setClock(-HOUR_MS);
  await waitUntil(async () => (await table.members()).length === 0);
});

test('REL-32 no lease lapses because the clock was set forward', async () => {
  const { table, setClock } = await openWithClock(60_000);
  const [one, two] = [member('one'), member('two')];
  await table.join(one);
  await table.join(two);
  await setClock(HOUR_MS);
  assert.equal((await table.renew(one.id))?.length, 2);
  assert.equal((await table.renew(two.id))?.length, 2);
});

test('REL-28 no lease lapses while Redis is stopped', async () => {
  await using server = await RedisServer.start();
  const config = redisConfig(server.url);
  const [one, two] = await Promise.all(
    ['one', 'two'].map(async (id) => {
      const { connection, keys, box } = await openRedis(config);
      const table = new RedisPlacementTable(connection, keys, box, 1_000);
      await table.join(member(id));
      return table;
    }),
  );
  server.pause();
  const untilMs = performance.now() + 1_500;
  await waitUntil(() => performance.now() > untilMs);
  server.resume();
  assert.equal((await one?.renew('one'))?.length, 2);
  assert.equal((await two?.renew('two'))?.length, 2);
});
