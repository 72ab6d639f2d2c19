import assert from 'node:assert/strict';
import { randomUUID } from 'node:crypto';
import { test } from 'node:test';
import type { RedisConfig } from '../../../src/config/values/config.ts';
import { keyIdOf, type StoredKey } from '../../../src/store/api-key-store.ts';
import { KEY_POLL_MS, RedisApiKeyStore } from '../../../src/store/redis/api-key-store.ts';
import { COMMAND_MS } from '../../../src/store/redis/connection.ts';
import { openRedis, redisConfig, RedisServer, sharedRedis } from '../../support/redis.ts';
import { waitUntil } from '../../support/wait-until.ts';
import { apiKeyStoreContract, keyOf } from '../api-key-store.contract.ts';

const OPTIONS = { timeout: 120_000 };
const redis = sharedRedis();

async function open(config: RedisConfig): Promise<RedisApiKeyStore> {
  return new RedisApiKeyStore(await openRedis(config));
}

async function freshConfig(): Promise<RedisConfig> {
  return redisConfig((await redis).url);
}

apiKeyStoreContract('redis', async () => {
  const config = { ...(await freshConfig()), prefix: `p${randomUUID().slice(0, 8)}` };
  return [await open(config), await open(config)];
});

// SEC-11
test('Redis can read neither names nor hashes of API keys', OPTIONS, async () => {
  const config = await freshConfig();
  await (await open(config)).change(() => ({ add: [keyOf('canary-name', { owner: 'canary-owner' })] }));
  const { connection, keys } = await openRedis(config);
  const stored = JSON.stringify(await connection.command('HGETALL', keys.apiKeys.entries));
  assert.doesNotMatch(stored, /canary/);
  assert.ok(!stored.includes(keyOf('canary-name').sha256.slice(0, 20)));
});

test('an entry in the place of another, or of another wrapping key, is refused', OPTIONS, async () => {
  const config = await freshConfig();
  await (await open(config)).change(() => ({ add: [keyOf('one'), keyOf('two')] }));
  const { connection, keys } = await openRedis(config);
  const { entries, version } = keys.apiKeys;
  const other = await open({ ...(await freshConfig()), prefix: config.prefix });
  await assert.rejects(other.read(), /gateway\.redis\.wrappingKeys do not open/);
  const moved = String(await connection.command('HGET', entries, keyIdOf(keyOf('one'))));
  await connection.command('HSET', entries, keyIdOf(keyOf('two')), moved);
  await connection.command('SET', version, 'changed');
  await assert.rejects((await open(config)).read(), /that was changed/);
});

// SEC-11
test('API keys that an older wrapping key encrypted are read without it later', OPTIONS, async () => {
  const before = await freshConfig();
  const wrappingKeys = [...(await freshConfig()).wrappingKeys, ...before.wrappingKeys];
  const [during, after] = [{ wrappingKeys }, { wrappingKeys: wrappingKeys.slice(0, 1) }];
  const keys = Array.from({ length: 6_000 }, (_, n) => keyOf(`key ${n}`));
  const old = await open(before);
  for (let n = 0; n < keys.length; n += 500) await old.change(() => ({ add: keys.slice(n, n + 500) }));
  const late = await open({ ...before, ...after });
  await assert.rejects(late.read(), /API key \(\w+\).*do not open\. Put a removed wrapping key back at the end/);
  const stores = await Promise.all([1, 2, 3].map(() => open({ ...before, ...during })));
  for (const read of await Promise.all(stores.map((store) => store.read()))) assert.equal(read.length, keys.length);
  await stores[0]?.change(() => ({ add: [keyOf('other')] }));
  await stores[0]?.change(() => ({ remove: [keyOf('other')] }));
  await assert.rejects(late.read(), /do not open/, 'neither a reading nor a change encrypts the others');
  await Promise.all(stores.map((store) => store.reseal()));
  const byHash = (each: readonly StoredKey[]) => each.toSorted((a, b) => a.sha256.localeCompare(b.sha256));
  assert.deepEqual(byHash(await late.read()), byHash(keys));
  assert.equal((await stores[0]?.read())?.length, keys.length);
});

// N-71
test('a change of the keys is read within a second, or the reading fails', () => {
  assert.ok(KEY_POLL_MS + COMMAND_MS < 1_000);
});

test('an unchanged reading returns the same list, and a lost version is a failure', OPTIONS, async () => {
  const config = await freshConfig();
  const store = await open(config);
  await store.change(() => ({ add: [keyOf('one')] }));
  const keys = await store.read();
  assert.equal(await store.read(), keys);
  const { connection, keys: names } = await openRedis(config);
  await connection.command('DEL', names.apiKeys.entries, names.apiKeys.version);
  await assert.rejects(store.read(), /has lost its API keys/);
  await (await open(config)).change(() => ({ add: [keyOf('two')] }));
  assert.deepEqual(await store.read(), [keyOf('two')]);
});

test('10 000 keys are read, and one change opens only the changed entry', OPTIONS, async () => {
  const config = await freshConfig();
  const [writer, reader] = [await open(config), await open(config)];
  const many = Array.from({ length: 10_000 }, (_, n) => keyOf(`key ${n}`, { groups: ['sales'] }));
  for (let n = 0; n < many.length; n += 500) await writer.change(() => ({ add: many.slice(n, n + 500) }));
  const before = await reader.read();
  assert.equal(before.length, many.length);
  const [gone] = many;
  assert.ok(gone !== undefined);
  await writer.change(() => ({ remove: [gone] }));
  const later = await reader.read();
  assert.equal(later.length, many.length - 1);
  const known = new Set(before);
  assert.ok(
    later.every((key) => known.has(key)),
    'unchanged entries are the same objects',
  );
});

test('all keys are read in pages, so that no answer is large', OPTIONS, async () => {
  await using server = await RedisServer.start();
  const config = redisConfig(server.url);
  const writer = await open(config);
  const many = Array.from({ length: 6_000 }, (_, n) => keyOf(`key ${n}`, { owner: 'o'.repeat(200) }));
  for (let n = 0; n < many.length; n += 200) await writer.change(() => ({ add: many.slice(n, n + 200) }));
  const { connection } = await openRedis(config);
  // Redis closes the connection of a client whose answer is larger.
  await connection.command('CONFIG', 'SET', 'client-output-buffer-limit', 'normal 1mb 0 0');
  assert.equal((await (await open(config)).read()).length, many.length);
});

test('keys that change while their pages are read are read again', OPTIONS, async () => {
  const config = await freshConfig();
  const [writer, reader] = [await open(config), await open(config)];
  const many = Array.from({ length: 3_000 }, (_, n) => keyOf(`key ${n}`));
  for (let n = 0; n < many.length; n += 500) await writer.change(() => ({ add: many.slice(n, n + 500) }));
  const reading = reader.read();
  const [gone] = many;
  assert.ok(gone !== undefined);
  await writer.change(() => ({ remove: [gone], add: [keyOf('new')] }));
  const names = new Set((await reading).map(({ name }) => name));
  // Before the change or after it, and nothing between.
  assert.equal(names.has('new'), !names.has(gone.name));
  assert.equal(names.size, many.length);
});

// R12
test('keys cannot be read while Redis is away, and can be read again', OPTIONS, async () => {
  await using server = await RedisServer.start();
  const store = await open(redisConfig(server.url));
  await store.change(() => ({ add: [keyOf('one')] }));
  server.pause();
  await assert.rejects(store.read(), { code: 'store-unavailable' });
  server.resume();
  await waitUntil(() =>
    store.read().then(
      () => true,
      () => false,
    ),
  );
  assert.deepEqual(await store.read(), [keyOf('one')]);
});
