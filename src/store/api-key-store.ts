import { z } from 'zod';

const HASH = /^[\da-f]{64}$/;
const ID_CHARS = 12;
/** Keys of one gateway. Beyond it, a store is refused as a whole. */
export const MAX_KEYS = 100_000;

/** Text without control characters, because it appears in logs and on terminals. */
function shortText(maxChars: number) {
  return z
    .string()
    .min(1, { error: 'expected at least one character' })
    .max(maxChars, { error: `expected at most ${maxChars} characters` })
    .regex(/^\P{Cc}+$/u, { error: 'expected text without control characters' });
}

/** Schema of a stored API key. Unknown members are refused: a misspelled `expiresAt` would make a key that never expires. */
export const storedKeySchema = z.strictObject({
  /** Name of the client or user; the principal. Several keys may have one name. */
  name: shortText(128),
  /** SHA-256 of the key, hex. The key itself is not stored. */
  sha256: z.string().regex(HASH, { error: 'expected 64 hex digits in lower case' }),
  /** The person who is responsible for the key; for people only. */
  owner: shortText(256).exactOptional(),
  /** Groups of the client or user, for access rules. */
  groups: z.array(shortText(128)).max(100).readonly().exactOptional(),
  createdAt: z.iso.datetime({ offset: true }).exactOptional(),
  /** The key is refused from then on. Absent for a key without end. */
  expiresAt: z.iso.datetime({ offset: true }).exactOptional(),
});

export type StoredKey = Readonly<z.infer<typeof storedKeySchema>>;

/** Returns the id of a key: the beginning of its hash. It reveals nothing about the key, which is random. */
export function keyIdOf({ sha256 }: Pick<StoredKey, 'sha256'>): string {
  return sha256.slice(0, ID_CHARS);
}

export interface KeyChange {
  readonly add?: readonly StoredKey[];
  /** The keys to remove. One that is also in `add` is replaced. */
  readonly remove?: readonly StoredKey[];
}

/** The API keys that commands change while the gateway runs, and the times of their last use. */
export interface ApiKeyStore {
  /** The file, or the entry in Redis; for messages. */
  readonly place: string;
  /** Reads all keys. @throws {Error} with a message for the operator, if they cannot be read or used. */
  read(): Promise<readonly StoredKey[]>;
  /**
   * Changes the keys. No other change happens between the call of `decide` and the write.
   *
   * @param decide gets all keys. What it throws ends the change.
   * @throws {Error} with a message for the operator, if the keys cannot be read or written.
   */
  change(decide: (keys: readonly StoredKey[]) => KeyChange): Promise<void>;
  /** Calls `onDue` soon after each change of the keys by another process, and possibly without one. The caller disposes the result. */
  watch(onDue: () => void): Promise<Disposable>;
  /** Reads the time of the last use of each key, by id; ms since the epoch. */
  lastUses(): Promise<ReadonlyMap<string, number>>;
  /** Stores times of last use, by id. Removes those of keys that are not in `known`. */
  storeUses(uses: ReadonlyMap<string, number>, known: ReadonlySet<string>): Promise<void>;
}

export function changedKeys(keys: readonly StoredKey[], { add = [], remove = [] }: KeyChange): readonly StoredKey[] {
  const gone = new Set([...remove, ...add].map(({ sha256 }) => sha256));
  return [...keys.filter(({ sha256 }) => !gone.has(sha256)), ...add];
}
