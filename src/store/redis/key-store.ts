import { z } from 'zod';
import { StartError } from '../../errors.ts';
import { freshKey, type KeyRecord, keyRecordSchema, type KeyStore, withFreshKey } from '../key-store.ts';
import type { RedisAccess } from './access.ts';
import { type RedisConnection, scriptOf } from './connection.ts';
import { KEYS_ADVICE, type SealedBox } from './sealed-box.ts';

/** Replaces the ring if it is still the one that was read. */
const REPLACE = scriptOf(`
if redis.call('GET', KEYS[1]) ~= ARGV[1] then return 0 end
redis.call('SET', KEYS[1], ARGV[2])
return 1`);

const RING = z.array(keyRecordSchema).min(1);
/** Another process may add a key at the same time. */
const TRIES = 5;

/** Stores the keys in Redis, encrypted with a key of the config. A ring that is lost is replaced by a new one, which ends all handles. */
export class RedisKeyStore implements KeyStore {
  readonly isShared = true;
  readonly #connection: RedisConnection;
  readonly #entry: string;
  readonly #box: SealedBox;

  constructor({ connection, keys, box }: RedisAccess) {
    this.#connection = connection;
    this.#entry = keys.ring;
    this.#box = box;
  }

  /** See {@link KeyStore.read}. @throws {StartError} if the wrapping keys of the config do not open the ring. */
  async read(): Promise<readonly KeyRecord[]> {
    return this.#parse(await this.#readSealed());
  }

  /** Encrypts a ring again that another key than the first one has encrypted, so that this one can be removed. @throws {StartError} as {@link read}. */
  async reseal(): Promise<void> {
    for (let attempt = 0; attempt < TRIES; attempt++) {
      const sealed = await this.#readSealed();
      if (this.#box.isOfFirst(sealed) || (await this.#replace(sealed, this.#parse(sealed)))) return;
    }
  }

  /** Returns false if another process was faster. */
  async #replace(sealed: string, ring: readonly KeyRecord[]): Promise<boolean> {
    return (await this.#connection.run(REPLACE, [this.#entry], [sealed, this.#seal(ring)])) === 1;
  }

  async #readSealed(): Promise<string> {
    const found = await this.#connection.text('GET', this.#entry);
    if (found !== undefined) return found;
    const fresh = this.#seal([freshKey(Date.now())]);
    // If another process has made a ring meanwhile, its ring is the one.
    return (await this.#connection.text('SET', this.#entry, fresh, 'NX', 'GET')) ?? fresh;
  }

  async add(nowMs: number, graceMs: number): Promise<void> {
    for (let attempt = 0; attempt < TRIES; attempt++) {
      const sealed = await this.#readSealed();
      if (await this.#replace(sealed, withFreshKey(this.#parse(sealed), nowMs, graceMs))) return;
    }
    throw new Error('other processes add keys to the ring all the time');
  }

  #seal(ring: readonly KeyRecord[]): string {
    return this.#box.seal(this.#entry, JSON.stringify(ring));
  }

  #parse(sealed: string): readonly KeyRecord[] {
    const text = this.#box.open(this.#entry, sealed);
    if (text !== undefined) return RING.parse(JSON.parse(text));
    throw new StartError(
      `the keys in Redis (${this.#entry}) were encrypted with another wrapping key. Set gateway.redis.wrappingKeys to that of the other ` +
        `replicas, or gateway.redis.prefix to one of your own. ${KEYS_ADVICE}. Deleting the entry ends all sessions`,
    );
  }
}
