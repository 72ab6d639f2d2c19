import { z } from 'zod';
import type { RedisConnection } from './connection.ts';
import type { RedisKeys } from './keys.ts';
import type { SealedBox } from './sealed-box.ts';

/** The parts of Redis that stores use: the connection, the names of their entries, and the encryption of their texts. */
export interface RedisAccess {
  readonly connection: RedisConnection;
  readonly keys: RedisKeys;
  readonly box: SealedBox;
}

/** A reply with the fields of a hash, each with its value. */
export const HASH_REPLY = z
  .array(z.string())
  .transform((texts) => texts.flatMap((field, at) => (at % 2 === 0 ? [[field, texts[at + 1] ?? ''] as const] : [])));
