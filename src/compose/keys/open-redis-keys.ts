import type { RedisConfig } from '../../config/values/config.ts';
import type { ApiKeyStore } from '../../store/api-key-store.ts';
import { RedisApiKeyStore } from '../../store/redis/api-key-store.ts';
import { RedisConnection } from '../../store/redis/connection.ts';
import { redisKeys } from '../../store/redis/keys.ts';
import { SealedBox } from '../../store/redis/sealed-box.ts';

/** Opens the API keys in Redis, for a command. @throws {StartError} if Redis cannot be reached. */
export async function openRedisKeys(redis: RedisConfig): Promise<AsyncDisposable & { readonly store: ApiKeyStore }> {
  const connection = await RedisConnection.open(redis, { onCommandFailed: () => undefined });
  // A command has nobody else to serve meanwhile.
  connection.bePatient();
  const store = new RedisApiKeyStore({
    connection,
    keys: redisKeys(redis.prefix),
    box: new SealedBox(redis.wrappingKeys),
  });
  return { store, [Symbol.asyncDispose]: () => connection[Symbol.asyncDispose]() };
}
