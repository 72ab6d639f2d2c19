import { z } from 'zod';
import { StartError } from '../../errors.ts';
import { freshKey, type KeyRecord, keyRecordSchema, type KeyStore, withFreshKey } from '../key-store.ts';
import type { RedisAccess } from './access.ts';
import { scriptOf } from './connection.ts';
import { KEYS_ADVICE } from './sealed-box.ts';

/** Replaces the ring if it is still the one that was read. */
const REPLACE = scriptOf(`
if redis.call('GET', KEYS[1]) ~= ARGV[1] then return 0 end
redis.call('SET', KEYS[1], ARGV[2])
return 1`);

const RING = z.array(keyRecordSchema).min(1);
/** Another process may add a key at the same time. */
const TRIES = 5;

/** The keys in Redis, encrypted with a key of the config. A ring that is lost is replaced by a new one, which ends all handles. */
export interface RedisKeyStore extends KeyStore {
  /** Encrypts a ring again that another key than the first one has encrypted, so that this one can be removed. @throws {StartError} as `read`. */
  reseal(): Promise<void>;
}

/** `read` throws {@link StartError} if the wrapping keys of the config do not open the ring. */
export function redisKeyStore({ connection, keys, box }: RedisAccess): RedisKeyStore {
  const entry = keys.ring;
  const seal = (ring: readonly KeyRecord[]) => box.seal(entry, JSON.stringify(ring));
  const parse = (sealed: string): readonly KeyRecord[] => {
    const text = box.open(entry, sealed);
    if (text !== undefined) return RING.parse(JSON.parse(text));
    throw new StartError(
      `the keys in Redis (${entry}) were encrypted with another wrapping key. Set gateway.redis.wrappingKeys to that of the other ` +
        `replicas, or gateway.redis.prefix to one of your own. ${KEYS_ADVICE}. Deleting the entry ends all sessions`,
    );
  };
  const readSealed = async (): Promise<string> => {
    const found = await connection.text('GET', entry);
    if (found !== undefined) return found;
    const fresh = seal([freshKey(Date.now())]);
    // If another process has made a ring meanwhile, its ring is the one.
    return (await connection.text('SET', entry, fresh, 'NX', 'GET')) ?? fresh;
  };
  /** Returns false if another process was faster. */
  const replace = async (sealed: string, ring: readonly KeyRecord[]): Promise<boolean> =>
    (await connection.run(REPLACE, [entry], [sealed, seal(ring)])) === 1;
  return {
    isShared: true,
    read: async () => parse(await readSealed()),
    reseal: async () => {
      for (let attempt = 0; attempt < TRIES; attempt++) {
        const sealed = await readSealed();
        if (box.isOfFirst(sealed) || (await replace(sealed, parse(sealed)))) return;
      }
    },
    add: async (nowMs, graceMs) => {
      for (let attempt = 0; attempt < TRIES; attempt++) {
        const sealed = await readSealed();
        if (await replace(sealed, withFreshKey(parse(sealed), nowMs, graceMs))) return;
      }
      throw new Error('other processes add keys to the ring all the time');
    },
  };
}
