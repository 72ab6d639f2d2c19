import assert from 'node:assert/strict';
import { randomUUID } from 'node:crypto';
import { after, test } from 'node:test';
import type { RedisConfig } from '../../../src/config/values/config.ts';
import { keyText, sessionKey } from '../../../src/store/placement-table.ts';
import { RedisEventStore, type RedisEventStoreParts } from '../../../src/store/redis/event-store.ts';
import type { SessionRef } from '../../../src/store/session-store.ts';
import { openRedis, redisConfig, RedisServer, sharedRedis } from '../../support/redis.ts';
import { waitUntil } from '../../support/wait-until.ts';
import { eventStoreContract, type EventStoreProcess } from '../event-store.contract.ts';

const OPTIONS = { timeout: 120_000 };
const PLENTY = { events: 1_000, bytes: 100_000_000, principalBytes: 100_000_000, totalBytes: 100_000_000 };
const redis = sharedRedis();
const opened: AsyncDisposable[] = [];
after(async () => {
  for (const each of opened) await each[Symbol.asyncDispose]();
});

async function open(
  config: RedisConfig,
  parts: Pick<RedisEventStoreParts, 'isAlive' | 'limits' | 'onLimit'> & Partial<Pick<RedisEventStoreParts, 'onError'>>,
): Promise<EventStoreProcess> {
  const access = await openRedis(config);
  const name = randomUUID();
  const sessions = new Set<string>();
  const placement = `${name}/1`;
  const nameOf = (session: SessionRef) => keyText(sessionKey(session));
  const fenceOf = (session: SessionRef) => (sessions.has(nameOf(session)) ? placement : undefined);
  const store = new RedisEventStore({
    onError: (thrown) => assert.fail(String(thrown)),
    ...access,
    ...parts,
    fenceOf,
    process: name,
  });
  opened.push(store);
  const claim = async (session: SessionRef) => {
    sessions.add(nameOf(session));
    await access.connection.command('SET', access.keys.session(session).placement, placement);
  };
  return { name, store, claim };
}

eventStoreContract('redis', async ({ bounds, dead, onLimit }) => {
  const config = redisConfig((await redis).url);
  const parts = { isAlive: async (name: string) => !dead.has(name), limits: { ...PLENTY, ...bounds }, onLimit };
  return [await open(config, parts), await open(config, parts)];
});

// R12
test('without Redis every operation fails as store-unavailable', OPTIONS, async () => {
  await using server = await RedisServer.start();
  const parts = { isAlive: async () => true, limits: PLENTY, onLimit: () => undefined };
  const { store, name } = await open(redisConfig(server.url), parts);
  await server.kill();
  const session = { principal: 'ann', serial: 1, expiresMs: Date.now() + 60_000 };
  for (const use of [
    () => store.write(session, []),
    () => store.read(session, 'a'),
    () => store.take(session, 'a', name),
  ]) {
    await assert.rejects(use, { code: 'store-unavailable' });
  }
});

test('a reply that is an error to the report of bytes is told, and ends nothing', OPTIONS, async () => {
  const config = redisConfig((await redis).url);
  const { connection, keys } = await openRedis(config);
  const [total] = keys.allEvents;
  await connection.command('SET', total, 'of another type');
  const errors: unknown[] = [];
  const one = await open(config, {
    isAlive: async () => true,
    limits: PLENTY,
    onLimit: () => undefined,
    onError: (thrown) => errors.push(thrown),
  });
  const session = { principal: 'ann', serial: 1, expiresMs: Date.now() + 60_000 };
  await one.claim(session);
  await one.store.write(session, [{ kind: 'open', stream: 'a', writer: one.name, isEndless: true }]);
  await waitUntil(() => errors.length > 0);
  assert.match(String(errors[0]), /WRONGTYPE/);
});
