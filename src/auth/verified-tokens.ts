import { hash } from 'node:crypto';
import { removeOver, setLatest } from '../map-entries.ts';
import { type LimitName, LIMITS } from '../limits.ts';
import type { Principal } from '../policy/principal.ts';

/** Longest time that a revoked token, or a token of a withdrawn key, is still accepted after its last verification. */
const MAX_AGE_MS = 60_000;

interface Entry {
  readonly principal: Principal;
  readonly sinceMs: number;
  readonly untilMs: number;
}

/** Returns whether an entry counts at this time. A clock that is set back must not extend an entry. */
function isValid({ sinceMs, untilMs }: Entry, nowMs: number): boolean {
  return nowMs >= sinceMs && nowMs < untilMs;
}

/**
 * Cache of recently verified tokens. The key must be unique for the whole token and for the endpoint. A full cache
 * removes its oldest entry, which would also have been about the first to expire.
 */
export class VerifiedTokens {
  readonly #entries = new Map<string, Entry>();
  readonly #onLimit: (limit: LimitName) => void;

  /** @param onLimit called when the oldest entry is removed. */
  constructor(onLimit: (limit: LimitName) => void = () => undefined) {
    this.#onLimit = onLimit;
  }

  find(key: string, nowMs: number): Principal | undefined {
    const entry = this.#entries.get(key);
    if (entry === undefined) return undefined;
    if (isValid(entry, nowMs)) return entry.principal;
    this.#entries.delete(key);
    return undefined;
  }

  addFrom(others: VerifiedTokens, isAccepted: (principal: Principal) => boolean): void {
    for (const [key, entry] of others.#entries) {
      if (this.#entries.size < LIMITS.verifiedTokens && isAccepted(entry.principal)) this.#entries.set(key, entry);
    }
  }

  add(key: string, principal: Principal, nowMs: number, expiresAtMs: number): void {
    const untilMs = Math.min(expiresAtMs, nowMs + MAX_AGE_MS);
    if (untilMs <= nowMs) return;
    removeOver(this.#entries, (entry) => !isValid(entry, nowMs));
    const entry = { principal, sinceMs: nowMs, untilMs };
    if (setLatest(this.#entries, key, entry, LIMITS.verifiedTokens)) this.#onLimit('verifiedTokens');
  }
}

/** A longer header is kept for no connection. */
const MAX_KEPT_CHARS = 4_096;

interface KeyedHeader {
  readonly header: string;
  readonly endpoint: string;
  readonly key: string;
}

/**
 * Makes the cache keys of requests, from their `Authorization` header and their endpoint.
 *
 * The key of the last request of each connection is kept. Most connections repeat one header, and its digest takes 3 % of a call.
 */
export class HeaderKeys {
  readonly #lastOf = new WeakMap<object, KeyedHeader>();

  /** Returns the key of a request. It covers the whole header, so a known header is not even parsed. */
  of(header: string, endpoint: string, connection?: object): string {
    const last = connection === undefined ? undefined : this.#lastOf.get(connection);
    if (last?.header === header && last.endpoint === endpoint) return last.key;
    const key = `${hash('sha256', header)} ${endpoint}`;
    if (connection !== undefined && header.length <= MAX_KEPT_CHARS)
      this.#lastOf.set(connection, { header, endpoint, key });
    return key;
  }
}
