import { jsonOf } from '../../json/record.ts';
import { randomUUID } from 'node:crypto';
import { promisify } from 'node:util';
import { gunzip, gzip } from 'node:zlib';
import { z } from 'zod';
import { LIMITS, type LimitName } from '../../limits.ts';
import type { OfferStore, StoredOfferKey, UpstreamKey } from '../offer-store.ts';
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

/** Stores lists in Redis, compressed and encrypted, so that a new replica serves them at once. @param onLimit called when a bound refuses or removes something. */
export function redisOfferStore(
  { connection, keys, box }: RedisAccess,
  onLimit: (limit: LimitName) => void,
): Required<OfferStore> {
  /** Marks the messages of this store, which it need not be told of. */
  const store = randomUUID();
  const channel = keys.offersChannel;
  /** Returns undefined also if Redis cannot be asked: a wrong answer costs a listing, nothing more. */
  const fact = (key: UpstreamKey, field: string) =>
    connection.text('HGET', keys.start(key), field).catch(() => undefined);
  const setFact = async (key: UpstreamKey, field: string, value: string): Promise<void> => {
    await connection.run(SET_FACT, [keys.start(key)], [field, value, KEPT_MS]);
  };
  const remove = async (key: StoredOfferKey): Promise<void> => {
    await connection.run(REMOVE, keys.offer(key), []);
  };
  return {
    read: async (key) => {
      try {
        const [entry] = keys.offer(key);
        const sealed = await connection.text('GET', entry);
        const packed = sealed === undefined ? undefined : box.open(nameOf(entry, key), sealed);
        if (packed === undefined) return undefined;
        const text = await unzip(Buffer.from(packed, 'base64'), { maxOutputLength: LIMITS.storedOfferBytes });
        return text.toString();
      } catch {
        // The caller lists the upstream again.
        return undefined;
      }
    },
    write: async (key, text) => {
      const [entry, index] = keys.offer(key);
      if (Buffer.byteLength(text) > LIMITS.storedOfferBytes) {
        onLimit('storedOfferBytes');
        // Without this, other replicas would serve older lists.
        return await remove(key);
      }
      const sealed = box.seal(nameOf(entry, key), (await zip(text)).toString('base64'));
      const isRestricted = key.capabilityKey !== '' || key.audience !== '';
      const told = box.seal(channel, JSON.stringify({ store, key }));
      const args = [sealed, KEPT_MS, isRestricted ? 1 : 0, LIMITS.storedOffersPerUpstream, channel, told];
      if ((await connection.run(WRITE, [entry, index], args)) !== 0) onLimit('storedOffersPerUpstream');
    },
    remove,
    watch: async (listener) => {
      const onText = (sealed: string) => {
        const text = box.open(channel, sealed);
        // Anybody with access to Redis can publish a text that is not ours, and another version one of another form.
        const { data } = WRITTEN.safeParse(jsonOf(text ?? ''));
        if (data !== undefined && data.store !== store) listener.onWritten(data.key);
      };
      await connection.subscribe(channel, { onText, onMissed: () => listener.onMissed() });
    },
    hasFailed: async (key) => (await fact(key, 'failed')) !== undefined,
    setFailed: (key, hasFailed) => setFact(key, 'failed', hasFailed ? '1' : ''),
    listedAtMs: async (key) => {
      const atMs = await fact(key, 'listed');
      return atMs === undefined ? undefined : Number(atMs);
    },
    setListed: (key) => setFact(key, 'listed', String(Date.now())),
  };
}

/** Returns the name that lists are sealed for. It has the whole key, so that lists of a principal are read for no other one. */
function nameOf(entry: string, { upstream, target, era, capabilityKey, audience }: StoredOfferKey): string {
  return JSON.stringify([entry, upstream, target, era, capabilityKey, audience]);
}
