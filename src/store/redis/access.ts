import type { RedisConnection } from './connection.ts';
import type { RedisKeys } from './keys.ts';
import type { SealedBox } from './sealed-box.ts';

/** The parts of Redis that stores use: the connection, the names of their entries, and the encryption of their texts. */
export interface RedisAccess {
  readonly connection: RedisConnection;
  readonly keys: RedisKeys;
  readonly box: SealedBox;
}
