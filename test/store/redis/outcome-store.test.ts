import assert from 'node:assert/strict';
import { test } from 'node:test';
import { redisOutcomeStore } from '../../../src/store/redis/outcome-store.ts';
import { openRedis, redisConfig, sharedRedis } from '../../support/redis.ts';
import { outcomeStoreContract } from '../outcome-store.contract.ts';

const OPTIONS = { timeout: 120_000 };
const redis = sharedRedis();

outcomeStoreContract('redis', async (onLimit) => {
  return redisOutcomeStore(await openRedis(redisConfig((await redis).url)), onLimit);
});

test('other processes find an end, and Redis cannot read it', OPTIONS, async () => {
  const config = redisConfig((await redis).url);
  const [one, two] = await Promise.all(
    [0, 1].map(async () => {
      const { connection, keys, box } = await openRedis(config);
      return { connection, keys, store: redisOutcomeStore({ connection, keys, box }, () => undefined) };
    }),
  );
  assert.ok(one !== undefined && two !== undefined);
  await one.store.settle('id', 'canary', 60_000);
  assert.equal(await two.store.find('id'), 'canary');
  const [entry] = one.keys.outcome('id');
  assert.doesNotMatch(String(await one.connection.command('GET', entry)), /canary/);
});

test('the tables of ends expire with the last end', OPTIONS, async () => {
  const { connection, keys, box } = await openRedis(redisConfig((await redis).url));
  const store = redisOutcomeStore({ connection, keys, box }, () => undefined);
  await store.settle('long', 'x', 3_600_000);
  await store.settle('short', 'x', 60_000);
  const [, ...tables] = keys.outcome('long');
  for (const table of tables) {
    const ttlMs = Number(await connection.command('PTTL', table));
    assert.ok(ttlMs > 60_000 && ttlMs <= 3_600_000, `${table}: ${ttlMs}`);
  }
});
