import { setLatest } from '../map-entries.ts';
import { type CryptoKey, errors } from 'jose';
import type { Logger } from 'pino';
import { shownUrl } from '../config/shown-url.ts';
import type { Egress } from '../egress/egress.ts';
import { downloadKeySet, type KeySet } from './jwks-download.ts';

/**
 * The time that keys are fresh. A verified token is cached for another minute, so a withdrawn key stops working after ten.
 */
const FRESH_MS = 9 * 60_000;
/** The time that keys stay usable while the issuer cannot be reached. */
const STALE_MS = 60 * 60_000;
/** Shortest time between fetches caused by unknown key ids, because anyone can invent key ids. */
const UNKNOWN_KEY_FETCH_MS = 30_000;
/** The time that an absent key id is remembered, so that one client with an old key does not use up every such fetch. */
const ABSENT_MS = 60_000;
const ABSENT_LIMIT = 1_000;
const FIRST_RETRY_MS = 1_000;
const LAST_RETRY_MS = 30_000;
/** A failure is reported for this long after the next attempt was due. Without further tokens there is none, and the issuer may be back. */
export const REPORTED_MS = 60_000;

type Found =
  | { readonly kind: 'keys'; readonly keys: readonly CryptoKey[]; readonly set: KeySet }
  /** The issuer has no such key. */
  | { readonly kind: 'unknown' }
  /** It is unknown whether the issuer has the key, because the issuer could not be reached. */
  | { readonly kind: 'unreachable' }
  /** The same, because the keys were fetched for another unknown key just before. */
  | { readonly kind: 'withheld' };

export interface JwksDeps {
  readonly log: Logger;
  /** Sends the requests for keys. */
  readonly egress: Egress;
  /** Monotonic ms. */
  readonly clock: () => number;
}

async function matching(set: KeySet, alg: string, kid: string | undefined): Promise<CryptoKey[]> {
  try {
    return [await set.keysFor({ alg, ...(kid === undefined ? {} : { kid }) })];
  } catch (error) {
    if (error instanceof errors.JWKSNoMatchingKey) return [];
    if (error instanceof errors.JWKSMultipleMatchingKeys) return Array.fromAsync(error);
    throw error;
  }
}

/**
 * The public keys of one issuer. Fetches them at first use, when they are old, and when a token names an unknown key.
 *
 * jose's own remote set fails with the first failed fetch, and asks a dead endpoint on every request.
 */
export class Jwks {
  readonly #url: string;
  readonly #deps: JwksDeps;
  #set: KeySet | undefined;
  #loadedMs = -Infinity;
  #loading: Promise<void> | undefined;
  #failures = 0;
  #retryMs = -Infinity;
  #unknownKeyFetchMs = -Infinity;
  /** Absent key ids, with the time until which they count as absent. */
  readonly #absent = new Map<string, number>();

  constructor(url: string, deps: JwksDeps) {
    this.#url = url;
    this.#deps = deps;
  }

  /**
   * Finds the keys for an algorithm and a key id.
   *
   * @param tried the set whose keys did not fit a signature; its keys are no answer.
   * @throws if the named key cannot be used.
   */
  async find(alg: string, kid: string | undefined, tried?: KeySet): Promise<Found> {
    const sinceMs = this.#deps.clock();
    await this.#refreshIfOld(sinceMs);
    let found = await this.#known(alg, kid, tried);
    if (found === undefined && this.#loading !== undefined) {
      await this.#loading;
      found = await this.#known(alg, kid, tried);
    }
    if (found === undefined && this.#loadedMs < sinceMs && this.#mayFetchFor(kid)) {
      this.#unknownKeyFetchMs = this.#deps.clock();
      await this.#load();
      // Otherwise each bad signature would cause such a fetch.
      if (tried !== undefined && this.#loadedMs >= sinceMs) this.#rememberAbsent(kid);
      found = await this.#known(alg, kid, tried);
    }
    if (found !== undefined) return found;

    if (this.#usable() === undefined || this.#failures > 0) return { kind: 'unreachable' };
    if (this.#loadedMs >= sinceMs) this.#rememberAbsent(kid);
    // The issuer may have changed its keys: anyone can cause the fetch before, and a client discards a token that is refused.
    return { kind: this.#isAbsent(kid) ? 'unknown' : 'withheld' };
  }

  /** Why the issuer is not of use now, in words; undefined if nothing is known to be wrong. */
  get failure(): string | undefined {
    if (this.#failures === 0 || this.#deps.clock() >= this.#retryMs + REPORTED_MS) return undefined;
    const effect = this.#usable() === undefined ? 'are refused' : 'are checked with older keys, for an hour at most';
    return `the keys of an issuer cannot be fetched from ${shownUrl(new URL(this.#url))}; its tokens ${effect}`;
  }

  #usable(): KeySet | undefined {
    return this.#deps.clock() - this.#loadedMs < STALE_MS ? this.#set : undefined;
  }

  async #known(alg: string, kid: string | undefined, tried: KeySet | undefined): Promise<Found | undefined> {
    const set = this.#usable();
    if (set === undefined || set === tried) return undefined;
    const keys = await matching(set, alg, kid);
    if (keys.length > 0) return { kind: 'keys', keys, set };
    // The key exists, but not for this algorithm.
    return kid !== undefined && set.kids.has(kid) ? { kind: 'unknown' } : undefined;
  }

  async #refreshIfOld(nowMs: number): Promise<void> {
    if (nowMs - this.#loadedMs < FRESH_MS) return;
    const isFailing = this.#failures > 0;
    if (nowMs >= this.#retryMs) void this.#load();
    // Otherwise a hanging endpoint would delay every request by its timeout.
    if (this.#usable() === undefined || !isFailing) await this.#loading;
  }

  #mayFetchFor(kid: string | undefined): boolean {
    const nowMs = this.#deps.clock();
    const isDue = nowMs >= this.#retryMs && nowMs - this.#unknownKeyFetchMs >= UNKNOWN_KEY_FETCH_MS;
    return isDue && !this.#isAbsent(kid);
  }

  #isAbsent(kid = ''): boolean {
    return this.#deps.clock() < (this.#absent.get(kid) ?? -Infinity);
  }

  #rememberAbsent(kid = ''): void {
    setLatest(this.#absent, kid, this.#deps.clock() + ABSENT_MS, ABSENT_LIMIT);
  }

  /** Fetches the keys; concurrent callers share one fetch. Never rejects. */
  #load(): Promise<void> {
    this.#loading ??= this.#fetch().finally(() => {
      this.#loading = undefined;
    });
    return this.#loading;
  }

  async #fetch(): Promise<void> {
    const startedMs = this.#deps.clock();
    const jwksUrl = shownUrl(new URL(this.#url));
    try {
      const next = await downloadKeySet(this.#url, this.#deps.egress);
      // A withdrawn key needs no other fetch.
      for (const kid of this.#set?.kids ?? []) if (!next.kids.has(kid)) this.#rememberAbsent(kid);
      this.#set = next;
      this.#loadedMs = startedMs;
      if (this.#failures > 0) this.#deps.log.info({ jwksUrl, failures: this.#failures }, 'JWKS can be fetched again');
      this.#failures = 0;
      this.#retryMs = -Infinity;
    } catch (thrown) {
      const delayMs = Math.min(LAST_RETRY_MS, FIRST_RETRY_MS * 2 ** this.#failures);
      this.#failures++;
      this.#retryMs = this.#deps.clock() + delayMs;
      this.#deps.log.warn({ err: thrown, jwksUrl, delayMs }, 'JWKS cannot be fetched');
    }
  }
}
