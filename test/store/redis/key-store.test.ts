import assert from 'node:assert/strict';
import { test } from 'node:test';
import { redisKeyStore, type RedisKeyStore } from '../../../src/store/redis/key-store.ts';
import type { RedisConfig } from '../../../src/config/values/config.ts';
import { openRedis, redisConfig, sharedRedis } from '../../support/redis.ts';
import { keyStoreContract } from '../key-store.contract.ts';

const OPTIONS = { timeout: 120_000 };
const redis = sharedRedis();

async function open(config: RedisConfig): Promise<RedisKeyStore> {
  return redisKeyStore(await openRedis(config));
}

keyStoreContract('redis', async () =>
  Object.assign(await open(redisConfig((await redis).url)), { [Symbol.asyncDispose]: async () => undefined }),
);

test('processes that begin a ring, or add keys, at the same time have one ring', OPTIONS, async () => {
  const config = redisConfig((await redis).url);
  const stores = await Promise.all(Array.from({ length: 4 }, () => open(config)));
  const rings = await Promise.all(stores.map((store) => store.read()));
  for (const ring of rings) assert.deepEqual(ring, rings[0]);
  await Promise.all(stores.slice(0, 3).map((store) => store.add(Date.now(), 60_000)));
  const after = await Promise.all(stores.map((store) => store.read()));
  for (const ring of after) assert.deepEqual(ring, after[0]);
  assert.equal(after[0]?.length, 4);
});

// SEC-11
test('the ring is not readable in Redis, and another wrapping key is refused in words', OPTIONS, async () => {
  const config = redisConfig((await redis).url);
  const [record] = await (await open(config)).read();
  const { connection, keys } = await openRedis(config);
  const stored = String(await connection.command('GET', keys.ring));
  assert.ok(record !== undefined && !stored.includes(record.key) && !stored.includes(record.kid));
  const other = await open({ ...redisConfig((await redis).url), prefix: config.prefix });
  await assert.rejects(other.read(), { name: 'StartError', message: /gateway\.redis\.wrappingKeys/ });
});

// SEC-11
test('a ring that an older wrapping key encrypted is read without it after a start', OPTIONS, async () => {
  const before = redisConfig((await redis).url);
  const wrappingKeys = [...redisConfig((await redis).url).wrappingKeys, ...before.wrappingKeys];
  const ring = await (await open(before)).read();
  const during = await open({ ...before, wrappingKeys });
  const after = await open({ ...before, wrappingKeys: wrappingKeys.slice(0, 1) });
  assert.deepEqual(await during.read(), ring);
  await assert.rejects(after.read(), { message: /ring.*Put a removed wrapping key back at the end/ });
  await Promise.all([during.reseal(), (await open({ ...before, wrappingKeys })).reseal()]);
  assert.deepEqual(await after.read(), ring);
});

// R13
test('after a flush there is a new ring', OPTIONS, async () => {
  const config = redisConfig((await redis).url);
  const store = await open(config);
  const [before] = await store.read();
  const { connection, keys } = await openRedis(config);
  await connection.command('DEL', keys.ring);
  const [after] = await store.read();
  assert.notEqual(after?.kid, before?.kid);
});
