import assert from 'node:assert/strict';
import { test } from 'node:test';
import { redisTasks } from '../../../src/store/redis/task-store.ts';
import { sharedTaskStore } from '../../../src/store/memory/shared-task-store.ts';
import type { OnTaskLimit, TaskStore } from '../../../src/store/task-store.ts';
import type { RedisConfig } from '../../../src/config/values/config.ts';
import { openRedis, redisConfig, RedisServer, sharedRedis } from '../../support/redis.ts';
import { taskStoreContract } from '../task-store.contract.ts';

const OPTIONS = { timeout: 120_000 };
const TASK = { upstream: 'up', task: 't', holder: 'h', run: '', id: 'canary' };
const redis = sharedRedis();

async function open(config: RedisConfig, onLimit: OnTaskLimit = () => undefined): Promise<TaskStore> {
  return sharedTaskStore(redisTasks(await openRedis(config), onLimit), onLimit);
}

taskStoreContract('redis', async (onLimit) => await open(redisConfig((await redis).url), onLimit));

test('other processes list a task, and Redis cannot read it', OPTIONS, async () => {
  const config = redisConfig((await redis).url);
  const [one, two] = [await open(config), await open(config)];
  await one.add('anna', TASK);
  assert.deepEqual(await two.list('anna'), [TASK]);
  assert.equal(two.find('anna', TASK), undefined, 'another process has added it');
  const { connection, keys } = await openRedis(config);
  const [entry] = keys.tasks('anna');
  assert.doesNotMatch(JSON.stringify(await connection.command('HGETALL', entry)), /canary/);
});

// R12
test('without Redis a process lists the tasks that it has added', OPTIONS, async () => {
  await using server = await RedisServer.start();
  const store = await open(redisConfig(server.url));
  await server.kill();
  await store.add('anna', TASK);
  assert.deepEqual(await store.list('anna'), [TASK]);
  await store.remove('anna', TASK);
  assert.deepEqual(await store.list('anna'), []);
});
