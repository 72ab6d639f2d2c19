import { jsonOf } from '../../json/record.ts';
import { randomUUID } from 'node:crypto';
import { promisify } from 'node:util';
import { gunzip, gzip } from 'node:zlib';
import { z } from 'zod';
import { LIMITS, type LimitName } from '../../limits.ts';
import type { OfferListener, OfferStore, StoredOfferKey, UpstreamKey } from '../offer-store.ts';
import type { RedisAccess } from './access.ts';
import { scriptOf } from './connection.ts';

/** Lists that nobody has written for this long are removed. */
const KEPT_MS = 30 * 24 * 3_600_000;

/**
 * Replaces lists, and tells all processes. If they are for certain clients only, removes the oldest such lists of the upstream that are too many. Returns the number of
 * those. The removed entries are in the same slot.
 */
const WRITE = scriptOf(`
redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[2])
redis.call('PUBLISH', ARGV[5], ARGV[6])
if ARGV[3] ~= '1' then return 0 end
local time = redis.call('TIME')
redis.call('ZADD', KEYS[2], time[1] * 1000000 + time[2], KEYS[1])
redis.call('PEXPIRE', KEYS[2], ARGV[2])
local excess = redis.call('ZCARD', KEYS[2]) - ARGV[4]
if excess <= 0 then return 0 end
for _, entry in ipairs(redis.call('ZRANGE', KEYS[2], 0, excess - 1)) do
  redis.call('DEL', entry)
  redis.call('ZREM', KEYS[2], entry)
end
return excess`);

const REMOVE = scriptOf(`
redis.call('DEL', KEYS[1])
redis.call('ZREM', KEYS[2], KEYS[1])`);

const SET_FACT = scriptOf(`
if ARGV[2] == '' then redis.call('HDEL', KEYS[1], ARGV[1]) else redis.call('HSET', KEYS[1], ARGV[1], ARGV[2]) end
redis.call('PEXPIRE', KEYS[1], ARGV[3])`);

/** A message of the channel: the store that has written, and the key of the lists. */
const WRITTEN = z.object({
  store: z.string(),
  key: z.object({
    upstream: z.string(),
    target: z.string(),
    era: z.string(),
    capabilityKey: z.string(),
    audience: z.string(),
  }),
});

const zip = promisify(gzip);
const unzip = promisify(gunzip);

/** Stores lists in Redis, compressed and encrypted, so that a new replica serves them at once. */
export class RedisOfferStore implements OfferStore {
  readonly #redis: RedisAccess;
  readonly #onLimit: (limit: LimitName) => void;
  /** Marks the messages of this store, which it need not be told of. */
  readonly #name = randomUUID();

  /** @param onLimit called when a bound refuses or removes something. */
  constructor(redis: RedisAccess, onLimit: (limit: LimitName) => void) {
    this.#redis = redis;
    this.#onLimit = onLimit;
  }

  async read(key: StoredOfferKey): Promise<string | undefined> {
    try {
      const [entry] = this.#redis.keys.offer(key);
      const sealed = await this.#redis.connection.text('GET', entry);
      const packed = sealed === undefined ? undefined : this.#redis.box.open(nameOf(entry, key), sealed);
      if (packed === undefined) return undefined;
      const text = await unzip(Buffer.from(packed, 'base64'), { maxOutputLength: LIMITS.storedOfferBytes });
      return text.toString();
    } catch {
      // The caller lists the upstream again.
      return undefined;
    }
  }

  async write(key: StoredOfferKey, text: string): Promise<void> {
    const [entry, index] = this.#redis.keys.offer(key);
    if (Buffer.byteLength(text) > LIMITS.storedOfferBytes) {
      this.#onLimit('storedOfferBytes');
      // Without this, other replicas would serve older lists.
      await this.remove(key);
      return;
    }
    const sealed = this.#redis.box.seal(nameOf(entry, key), (await zip(text)).toString('base64'));
    const isRestricted = key.capabilityKey !== '' || key.audience !== '';
    const channel = this.#redis.keys.offersChannel;
    const told = this.#redis.box.seal(channel, JSON.stringify({ store: this.#name, key }));
    const args = [sealed, KEPT_MS, isRestricted ? 1 : 0, LIMITS.storedOffersPerUpstream, channel, told];
    const removed = await this.#redis.connection.run(WRITE, [entry, index], args);
    if (removed !== 0) this.#onLimit('storedOffersPerUpstream');
  }

  async remove(key: StoredOfferKey): Promise<void> {
    await this.#redis.connection.run(REMOVE, this.#redis.keys.offer(key), []);
  }

  async watch(listener: OfferListener): Promise<void> {
    const channel = this.#redis.keys.offersChannel;
    const onText = (sealed: string) => {
      const text = this.#redis.box.open(channel, sealed);
      // Anybody with access to Redis can publish a text that is not ours, and another version one of another form.
      const { data } = WRITTEN.safeParse(jsonOf(text ?? ''));
      if (data !== undefined && data.store !== this.#name) listener.onWritten(data.key);
    };
    await this.#redis.connection.subscribe(channel, { onText, onMissed: () => listener.onMissed() });
  }

  async hasFailed(key: UpstreamKey): Promise<boolean> {
    return (await this.#fact(key, 'failed')) !== undefined;
  }

  async setFailed(key: UpstreamKey, hasFailed: boolean): Promise<void> {
    await this.#setFact(key, 'failed', hasFailed ? '1' : '');
  }

  async listedAtMs(key: UpstreamKey): Promise<number | undefined> {
    const atMs = await this.#fact(key, 'listed');
    return atMs === undefined ? undefined : Number(atMs);
  }

  async setListed(key: UpstreamKey): Promise<void> {
    await this.#setFact(key, 'listed', String(Date.now()));
  }

  /** Returns undefined also if Redis cannot be asked: a wrong answer costs a listing, nothing more. */
  async #fact(key: UpstreamKey, field: string): Promise<string | undefined> {
    return await this.#redis.connection.text('HGET', this.#redis.keys.start(key), field).catch(() => undefined);
  }

  async #setFact(key: UpstreamKey, field: string, value: string): Promise<void> {
    await this.#redis.connection.run(SET_FACT, [this.#redis.keys.start(key)], [field, value, KEPT_MS]);
  }
}

/** Returns the name that lists are sealed for. It has the whole key, so that lists of a principal are read for no other one. */
function nameOf(entry: string, { upstream, target, era, capabilityKey, audience }: StoredOfferKey): string {
  return JSON.stringify([entry, upstream, target, era, capabilityKey, audience]);
}
