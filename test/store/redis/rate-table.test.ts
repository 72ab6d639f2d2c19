import { RedisRateTable } from '../../../src/store/redis/rate-table.ts';
import { openRedis, redisConfig, sharedRedis } from '../../support/redis.ts';
import { rateTableContract } from '../rate-table.contract.ts';

const redis = sharedRedis();

rateTableContract('redis', async () => {
  const { connection, keys } = await openRedis(redisConfig((await redis).url));
  return new RedisRateTable(connection, keys);
});
