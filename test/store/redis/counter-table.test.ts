import { test } from 'node:test';
import { redisCounterTable } from '../../../src/store/redis/counter-table.ts';
import { openRedis, redisConfig, sharedRedis } from '../../support/redis.ts';
import { waitUntil } from '../../support/wait-until.ts';
import { counterTableContract } from '../counter-table.contract.ts';

const redis = sharedRedis();

counterTableContract('redis', async (leaseMs) => {
  return redisCounterTable(await openRedis(redisConfig((await redis).url)), leaseMs);
});

// REL-32
test('the units of a dead process return although the clock was set back', { timeout: 120_000 }, async () => {
  const access = await openRedis(redisConfig((await redis).url));
  const table = redisCounterTable(access, 50);
  await access.connection.command('HSET', access.keys.counter('a'), 'dead', `10:${Date.now() + 3_600_000}`);
  await waitUntil(async () => (await table.lease('a', 'alive', 10, 10)) === 10);
});
