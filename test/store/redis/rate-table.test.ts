import assert from 'node:assert/strict';
import { test } from 'node:test';
import { RedisRateTable } from '../../../src/store/redis/rate-table.ts';
import { openRedis, redisConfig, sharedRedis } from '../../support/redis.ts';
import { rateTableContract } from '../rate-table.contract.ts';

const redis = sharedRedis();

rateTableContract('redis', async () => {
  return new RedisRateTable(await openRedis(redisConfig((await redis).url)));
});

test('redis: a counter ends in time although the clock was set back', { timeout: 120_000 }, async () => {
  const access = await openRedis(redisConfig((await redis).url));
  const table = new RedisRateTable(access);
  assert.equal((await table.take('c', 1, 1, 60_000)).units, 1);
  const key = access.keys.rate('c');
  // An hour, as it is for Redis once its clock is an hour behind.
  await access.connection.command('PEXPIRE', key, 3_600_000);
  assert.equal((await table.take('c', 1, 1, 60_000)).units, 0);
  const leftMs = Number(await access.connection.command('PTTL', key));
  assert.ok(leftMs > 0 && leftMs <= 60_000, `${leftMs} ms`);
});

test('redis: a higher limit grants all units that were not taken', { timeout: 120_000 }, async () => {
  const table = new RedisRateTable(await openRedis(redisConfig((await redis).url)));
  const take = async (units: number, limit: number) => (await table.take('c', units, limit, 60_000)).units;
  assert.deepEqual([await take(2, 2), await take(1, 2), await take(1, 2), await take(3, 2)], [2, 0, 0, 0]);
  assert.equal(await take(5, 4), 2, 'those that were refused count for none');
  assert.equal(await take(1, 1), 0, 'a lower limit');
  assert.deepEqual([await take(3, 6), await take(1, 6)], [2, 0]);
});
