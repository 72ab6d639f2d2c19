import { RedisRateTable } from '../../../src/store/redis/rate-table.ts';
import { openRedis, redisConfig, sharedRedis } from '../../support/redis.ts';
import { rateTableContract } from '../rate-table.contract.ts';

const redis = sharedRedis();

rateTableContract('redis', async () => {
  return new RedisRateTable(await openRedis(redisConfig((await redis).url)));
});
