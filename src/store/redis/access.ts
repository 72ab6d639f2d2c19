import type { RedisConnection } from './connection.ts';
import type { RedisKeys } from './keys.ts';
import type { SealedBox } from './sealed-box.ts';

/** What stores need of Redis: the connection, the names of their entries, and the encryption of their texts. */
export interface RedisAccess {
  readonly connection: RedisConnection;
  readonly keys: RedisKeys;
  readonly box: SealedBox;
}
