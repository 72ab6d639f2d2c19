import assert from 'node:assert/strict';
import { randomUUID } from 'node:crypto';
import { test } from 'node:test';
import { LIMITS, type LimitName } from '../../../src/limits.ts';
import { redisOfferStore } from '../../../src/store/redis/offer-store.ts';
import type { RedisConfig } from '../../../src/config/values/config.ts';
import { openRedis, redisConfig, RedisServer, sharedRedis } from '../../support/redis.ts';
import { waitUntil } from '../../support/wait-until.ts';
import { offerStoreContract } from '../offer-store.contract.ts';

const OPTIONS = { timeout: 120_000 };
const KEY = { upstream: 'up', target: '["node"]', era: '', capabilityKey: '', audience: '' };
const redis = sharedRedis();

async function open(config: RedisConfig, limits: LimitName[] = []): Promise<ReturnType<typeof redisOfferStore>> {
  return redisOfferStore(await openRedis(config), (limit) => limits.push(limit));
}

offerStoreContract('redis', async () =>
  Object.assign(await open(redisConfig((await redis).url)), { [Symbol.asyncDispose]: async () => undefined }),
);

test('other processes read the lists, and Redis cannot', OPTIONS, async () => {
  const config = redisConfig((await redis).url);
  const [one, two] = [await open(config), await open(config)];
  await one.write(KEY, 'canary');
  assert.equal(await two.read(KEY), 'canary');
  const { connection, keys } = await openRedis(config);
  const [entry] = keys.offer(KEY);
  assert.doesNotMatch(String(await connection.command('GET', entry)), /canary/);
  const [other] = keys.offer({ ...KEY, audience: 'anna' });
  await connection.command('COPY', entry, other);
  assert.equal(await two.read({ ...KEY, audience: 'anna' }), undefined, 'a copy for another principal is not read');
});

test('other processes hear of lists that one has written, by sealed messages', OPTIONS, async () => {
  const config = redisConfig((await redis).url);
  const [writer, reader] = [await open(config), await open(config)];
  const received: Record<'writer' | 'reader', unknown[]> = { writer: [], reader: [] };
  const listener = (name: 'writer' | 'reader') => ({
    onWritten: (key: unknown) => void received[name].push(key),
    onMissed: () => undefined,
  });
  await writer.watch(listener('writer'));
  await reader.watch(listener('reader'));
  const { connection, keys } = await openRedis(config);
  await connection.command('PUBLISH', keys.offersChannel, JSON.stringify({ store: 'other', key: KEY }));
  await writer.write({ ...KEY, audience: 'anna' }, 'text');
  await writer.write(KEY, 'text');
  await waitUntil(() => received.reader.length === 2);
  assert.deepEqual(received, { writer: [], reader: [{ ...KEY, audience: 'anna' }, KEY] });
});

test('a message that another version has sent in another form is ignored', OPTIONS, async () => {
  const { connection, keys, box } = await openRedis(redisConfig((await redis).url));
  const store = redisOfferStore({ connection, keys, box }, () => undefined);
  const written: unknown[] = [];
  let onText: ((text: string) => void) | undefined;
  connection.subscribe = async (_channel, listener) => {
    onText = (text) => listener.onText(text);
  };
  await store.watch({ onWritten: (key) => written.push(key), onMissed: () => undefined });
  const send = (message: object) => onText?.(box.seal(keys.offersChannel, JSON.stringify(message)));
  send({ store: 'other', name: 'lists' });
  send({ store: 'other', key: KEY });
  assert.deepEqual(written, [KEY]);
});

test('limit storedOfferBytes: larger lists remove the older ones, and are not stored', OPTIONS, async () => {
  const limits: LimitName[] = [];
  const store = await open(redisConfig((await redis).url), limits);
  await store.write(KEY, 'old');
  await store.write(KEY, 'x'.repeat(LIMITS.storedOfferBytes + 1));
  assert.deepEqual(limits, ['storedOfferBytes']);
  assert.equal(await store.read(KEY), undefined);
  const largest = randomUUID().repeat(LIMITS.storedOfferBytes / 36);
  await store.write(KEY, largest);
  assert.equal(await store.read(KEY), largest);
});

test('limit storedOffersPerUpstream removes the oldest lists of certain clients', OPTIONS, async () => {
  const limits: LimitName[] = [];
  const store = await open(redisConfig((await redis).url), limits);
  await store.write(KEY, 'common');
  const of = (n: number) => ({ ...KEY, audience: `user${n}` });
  for (let n = 0; n <= LIMITS.storedOffersPerUpstream; n++) await store.write(of(n), `${n}`);
  assert.deepEqual(limits, ['storedOffersPerUpstream']);
  assert.equal(await store.read(of(0)), undefined);
  assert.equal(await store.read(of(1)), '1');
  assert.equal(await store.read(KEY), 'common');
});

// R12
test('without Redis lists are unknown, and writes fail', OPTIONS, async () => {
  await using server = await RedisServer.start();
  const store = await open(redisConfig(server.url));
  await store.write(KEY, 'text');
  await server.kill();
  assert.equal(await store.read(KEY), undefined);
  assert.equal(await store.hasFailed(KEY), false);
  assert.equal(await store.listedAtMs(KEY), undefined);
  await assert.rejects(store.write(KEY, 'text'), { code: 'store-unavailable' });
});
