import { isDeepStrictEqual } from 'node:util';
import type { ApiKeyConfig } from '../config/values/config.ts';
import type { Principal } from '../policy/principal.ts';
import { keyIdOf, MAX_KEYS, type StoredKey } from '../store/api-key-store.ts';

/** The beginning of every key that `linkspan key` makes. Tools that look for leaked secrets recognise a key by it. */
export const API_KEY_PREFIX = 'lsk_';

interface Entry {
  readonly source: ApiKeyConfig | StoredKey;
  readonly principal: Principal;
}

/** The configured and the stored API keys, by the SHA-256 of the key. Immutable: each change makes another object. */
export class ApiKeys {
  /** By hash. A lookup takes the same time for any number of keys; docs/decisions/0062-api-keys-that-change.md. */
  readonly #byHash = new Map<string, Entry>();
  readonly #byId = new Map<string, Entry>();
  /** Ids of removed keys, the oldest first, so that everything that they have opened ends. */
  readonly #removed = new Set<string>();

  /** @param before the keys that these replace. Unchanged keys keep their principal objects. */
  constructor(configured: readonly ApiKeyConfig[], stored: readonly StoredKey[] = [], before?: ApiKeys) {
    // A configured key comes before a stored one of the same hash.
    for (const source of [...stored, ...configured]) {
      const hash = source.sha256.toLowerCase();
      const known = before === undefined ? undefined : before.#byHash.get(hash);
      const entry = known !== undefined && isDeepStrictEqual(known.source, source) ? known : entryOf(source, hash);
      this.#byHash.set(hash, entry);
      this.#byId.set(keyIdOf({ sha256: hash }), entry);
    }
    if (before !== undefined) this.#rememberRemoved(before);
  }

  #rememberRemoved(before: ApiKeys): void {
    for (const id of [...before.#removed, ...before.#byId.keys()]) if (!this.#byId.has(id)) this.#removed.add(id);
    for (const id of this.#removed) {
      if (this.#removed.size <= MAX_KEYS) return;
      this.#removed.delete(id);
    }
  }

  /** Returns the principal of a key that has not expired, or undefined. @param nowMs ms since the epoch. */
  find(sha256: string, nowMs: number = Date.now()): Principal | undefined {
    const principal = this.#byHash.get(sha256)?.principal;
    return principal === undefined || nowMs >= (principal.expiresAtMs ?? Infinity) ? undefined : principal;
  }

  /** Returns why a key that {@link find} has not found is not accepted any more; undefined for one that was never known here. */
  endOf(sha256: string): 'expired' | 'revoked' | undefined {
    if (this.#byHash.has(sha256)) return 'expired';
    return this.#removed.has(keyIdOf({ sha256 })) ? 'revoked' : undefined;
  }

  /** Returns whether a principal is that of a key which has not changed since, such as in its groups. */
  isCurrent(principal: Principal): boolean {
    return this.#byId.get(principal.keyId ?? '')?.principal === principal;
  }

  /**
   * Returns the principal with the rights that its key has now, such as its groups. The same object if they have not changed, or if the key
   * is not known here: another replica may know it.
   */
  currentOf(principal: Principal): Principal {
    const { keyId } = principal;
    const current = keyId === undefined ? undefined : this.#byId.get(keyId)?.principal;
    // A principal that another replica has authenticated is another object.
    if (current === undefined || current === principal || current.key !== principal.key) return principal;
    return isDeepStrictEqual(current.groups, principal.groups) ? principal : current;
  }

  /**
   * Returns whether the key of a principal was removed or renamed, or has expired, also if it had no expiry at first. False for a key that was
   * never known here: another replica may know it.
   *
   * @param nowMs ms since the epoch.
   */
  isOver({ key, keyId = '' }: Principal, nowMs: number): boolean {
    const current = this.#byId.get(keyId)?.principal;
    if (current === undefined) return this.#removed.has(keyId);
    return current.key !== key || nowMs >= (current.expiresAtMs ?? Infinity);
  }

  /**
   * Returns the groups of the keys of a name. Returns the reason if there is no such key, all have expired, or their groups differ.
   *
   * @param nowMs ms since the epoch.
   */
  groupsOf(name: string, nowMs: number): readonly string[] | string {
    const named = [...this.#byId.values()].map(({ principal }) => principal).filter(({ keyName }) => keyName === name);
    const valid = named.filter(({ expiresAtMs = Infinity }) => nowMs < expiresAtMs);
    const [first] = valid;
    if (first === undefined) {
      return named.length === 0 ? `there is no API key "${name}"` : `the API key "${name}" has expired`;
    }
    const { groups = [] } = first;
    const isSame = valid.every((other) => isDeepStrictEqual(other.groups ?? [], groups));
    return isSame ? groups : `the API keys "${name}" have different groups; name those of one with "groups"`;
  }

  get ids(): ReadonlySet<string> {
    return new Set(this.#byId.keys());
  }

  /** Keys of the principals that have at least one API key. */
  get principals(): ReadonlySet<string> {
    return new Set([...this.#byId.values()].map(({ principal }) => principal.key));
  }
}

/**
 * Makes the entry of a key. The key of the principal depends on the name alone. So two keys of one name are one principal, and a key can be
 * replaced while sessions continue.
 */
function entryOf(source: ApiKeyConfig | StoredKey, hash: string): Entry {
  const { name, groups } = source;
  const expiresAt = 'expiresAt' in source ? source.expiresAt : undefined;
  const principal: Principal = {
    key: `key:${name}`,
    label: name,
    scopes: [],
    keyName: name,
    keyId: keyIdOf({ sha256: hash }),
    ...(groups === undefined ? {} : { groups }),
    ...(expiresAt === undefined ? {} : { expiresAtMs: Date.parse(expiresAt) }),
  };
  return { source, principal };
}
