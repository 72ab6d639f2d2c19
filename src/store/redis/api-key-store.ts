import { StartError } from '../../errors.ts';
import { jsonOf } from '../../json/record.ts';
import { z } from 'zod';
import { setTimeout as sleep } from 'node:timers/promises';
import {
  type ApiKeyStore,
  type KeyChange,
  keyIdOf,
  MAX_KEYS,
  type StoredKey,
  storedKeySchema,
} from '../api-key-store.ts';
import { HASH_REPLY, type RedisAccess } from './access.ts';
import { type RedisConnection, scriptOf } from './connection.ts';
import { KEYS_ADVICE, type SealedBox } from './sealed-box.ts';

/** The interval in which a replica asks for the version of the keys, so that a revocation holds within a second. */
export const KEY_POLL_MS = 500;
/** Commands that change the keys at the same time repeat each other's version at most this often. */
const TRIES = 20;
const RETRY_MS = 20;
/** Fields that one command reads, so that its answer is small: a command has 250 ms. They are decrypted before other work gets a turn. */
const PER_PAGE = 500;

/** Entries that are encrypted again at once. */
const RESEALED = 5_000;
const RESEAL_TURNS = MAX_KEYS / RESEALED + TRIES;

/** Adds and removes fields if the version is still the expected one. Returns 1, or 0 if another change was faster. */
const CHANGE = scriptOf(`
if (redis.call('GET', KEYS[2]) or '') ~= ARGV[1] then return 0 end
local removed = tonumber(ARGV[3])
for n = 1, removed do
  redis.call('HDEL', KEYS[1], ARGV[3 + n])
  redis.call('HDEL', KEYS[3], ARGV[3 + n])
end
for n = 4 + removed, #ARGV, 2 do redis.call('HSET', KEYS[1], ARGV[n], ARGV[n + 1]) end
redis.call('SET', KEYS[2], ARGV[2])
return 1`);

/** Stores times of use of keys that are still there. The latest one counts: a replica that was cut off stores its own later. */
const USES = scriptOf(`
for n = 1, #ARGV, 2 do
  local id, usedMs = ARGV[n], ARGV[n + 1]
  local isLatest = tonumber(redis.call('HGET', KEYS[3], id) or 0) < tonumber(usedMs)
  if isLatest and redis.call('HEXISTS', KEYS[1], id) == 1 then redis.call('HSET', KEYS[3], id, usedMs) end
end`);

const PAGE = z.tuple([z.string(), HASH_REPLY]);

/** API keys in Redis, encrypted, for all replicas. A hash of sealed entries by id, and a version that every change replaces. */
export class RedisApiKeyStore implements ApiKeyStore {
  readonly place: string;
  readonly #connection: RedisConnection;
  readonly #entries: readonly [keys: string, version: string, uses: string];
  readonly #box: SealedBox;
  #version: string | undefined;
  #keys: readonly StoredKey[] = [];
  /** Opened entries by their sealed text, so that a change costs only the changed ones. */
  #opened: ReadonlyMap<string, StoredKey> = new Map();

  constructor({ connection, keys, box }: RedisAccess) {
    this.#connection = connection;
    const { entries, version, uses } = keys.apiKeys;
    this.#entries = [entries, version, uses];
    this.place = `Redis (${entries})`;
    this.#box = box;
  }

  /** See {@link ApiKeyStore.read}. Returns the same list while the version is the same. @throws {GatewayError} `store-unavailable` */
  async read(): Promise<readonly StoredKey[]> {
    const version = await this.#readVersion();
    if (version === this.#version) return this.#keys;
    if (version === '' && this.#keys.length > 0)
      throw new StartError(`${this.place} has lost its API keys; make new ones`);
    return (await this.#readAll()).keys;
  }

  /**
   * Encrypts the keys again that another wrapping key than the first one has encrypted, so that this one can be removed. Only the start of
   * a gateway does so: a command may have an old config. @throws {GatewayError} as {@link read}.
   */
  async reseal(): Promise<void> {
    for (let turn = 0; turn < RESEAL_TURNS; turn++) {
      const { version } = await this.#readAll();
      const stale = this.#stale().slice(0, RESEALED);
      if (stale.length === 0) return;
      // If another replica was faster, it has encrypted some of them.
      if (!(await this.#write(version, stale, []))) await sleep(RETRY_MS * Math.random());
    }
    throw busy();
  }

  /** Returns the keys that another wrapping key than the first one has encrypted. */
  #stale(): readonly StoredKey[] {
    return [...this.#opened].filter(([sealed]) => !this.#box.isOfFirst(sealed)).map(([, key]) => key);
  }

  async #readVersion(): Promise<string> {
    return (await this.#connection.text('GET', this.#entries[1])) ?? '';
  }

  /** Reads all keys at one version. */
  async #readAll(): Promise<{ readonly version: string; readonly keys: readonly StoredKey[] }> {
    let version = await this.#readVersion();
    for (let attempt = 0; attempt < TRIES; attempt++) {
      const opened = new Map<string, StoredKey>();
      for await (const [id, sealed] of this.#fieldsOf(this.#entries[0])) {
        opened.set(sealed, this.#opened.get(sealed) ?? this.#open(id, sealed));
      }
      const after = await this.#readVersion();
      if (after === version) {
        const keys = [...opened.values()];
        this.#opened = opened;
        this.#keys = keys;
        this.#version = version;
        return { version, keys };
      }
      // A change came between two pages.
      version = after;
    }
    throw busy();
  }

  /** Yields all fields of a hash with their values, page by page. A field may come twice. */
  async *#fieldsOf(hash: string): AsyncGenerator<readonly [field: string, value: string]> {
    let cursor = '0';
    do {
      const [next, page] = PAGE.parse(await this.#connection.command('HSCAN', hash, cursor, 'COUNT', PER_PAGE));
      yield* page;
      cursor = next;
    } while (cursor !== '0');
  }

  #open(id: string, sealed: string): StoredKey {
    const text = this.#box.open(this.#sealedName(id), sealed);
    const { data } = storedKeySchema.safeParse(text === undefined ? undefined : jsonOf(text));
    if (data !== undefined && data.sha256.startsWith(id)) return data;
    const found = `${this.place} has an API key (${id})`;
    if (this.#box.knowsKeyOf(sealed)) throw new StartError(`${found} that was changed or moved`);
    throw new StartError(`${found} that gateway.redis.wrappingKeys do not open. ${KEYS_ADVICE}`);
  }

  /** The name that an entry is sealed for, so that no entry can be put in the place of another. */
  #sealedName(id: string): string {
    return `${this.#entries[0]}:${id}`;
  }

  async change(decide: (keys: readonly StoredKey[]) => KeyChange): Promise<void> {
    for (let attempt = 0; attempt < TRIES; attempt++) {
      const { version, keys } = await this.#readAll();
      const { add = [], remove = [] } = decide(keys);
      if (keys.length - remove.length + add.length > MAX_KEYS)
        throw new StartError(`Redis holds at most ${MAX_KEYS} API keys`);
      if (remove.length === 0 && add.length === 0) return;
      if (await this.#write(version, add, remove)) return;
      await sleep(RETRY_MS * Math.random());
    }
    throw busy();
  }

  /** Returns false if another change was faster. */
  async #write(version: string, add: readonly StoredKey[], remove: readonly StoredKey[]): Promise<boolean> {
    const added = add.flatMap((key) => [
      keyIdOf(key),
      this.#box.seal(this.#sealedName(keyIdOf(key)), JSON.stringify(key)),
    ]);
    const args = [version, crypto.randomUUID(), remove.length, ...remove.map(keyIdOf), ...added];
    return (await this.#connection.run(CHANGE, this.#entries, args)) === 1;
  }

  async watch(onDue: () => void): Promise<Disposable> {
    const timer = setInterval(onDue, KEY_POLL_MS).unref();
    return { [Symbol.dispose]: () => clearInterval(timer) };
  }

  async lastUses(): Promise<ReadonlyMap<string, number>> {
    const uses = new Map<string, number>();
    for await (const [id, time] of this.#fieldsOf(this.#entries[2])) uses.set(id, Number(time));
    return uses;
  }

  async storeUses(uses: ReadonlyMap<string, number>): Promise<void> {
    await this.#connection.run(USES, this.#entries, [...uses].flat());
  }
}

function busy(): StartError {
  return new StartError('other commands change the API keys all the time');
}
