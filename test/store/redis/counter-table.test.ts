import { test } from 'node:test';
import { RedisCounterTable } from '../../../src/store/redis/counter-table.ts';
import { openRedis, redisConfig, sharedRedis } from '../../support/redis.ts';
import { waitUntil } from '../../support/wait-until.ts';
import { counterTableContract } from '../counter-table.contract.ts';

const redis = sharedRedis();

counterTableContract('redis', async (leaseMs) => {
  const { connection, keys } = await openRedis(redisConfig((await redis).url));
  return new RedisCounterTable(connection, keys, leaseMs);
});

// REL-32
test('the units of a dead process return although the clock was set back', { timeout: 120_000 }, async () => {
  const { connection, keys } = await openRedis(redisConfig((await redis).url));
  const table = new RedisCounterTable(connection, keys, 50);
  await connection.command('HSET', keys.counter('a'), 'dead', `10:${Date.now() + 3_600_000}`);
  await waitUntil(async () => (await table.lease('a', 'alive', 10, 10)) === 10);
});
