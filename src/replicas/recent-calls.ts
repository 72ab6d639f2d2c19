import { LIMITS } from '../limits.ts';

/** The time that an id is remembered, unless too many follow it. TLS refuses replays; this finds a request that a replica has sent twice by mistake. */
const KEPT_MS = 30_000;

/**
 * The ids of the requests that other replicas have passed on lately, so that none is answered twice. Two sets take turns, because removing single
 * ids in their order would cost a `Map` more than all else. An id takes about 100 bytes.
 */
export class RecentCalls {
  readonly #onLimit: () => void;
  #young = new Set<string>();
  #old = new Set<string>();
  /** Monotonic ms. */
  #turnedMs = 0;

  /** @param onLimit called when ids are forgotten early, because there are too many. */
  constructor(onLimit: () => void) {
    this.#onLimit = onLimit;
  }

  /** Adds an id. Returns false if it is known already. */
  add(id: string, nowMs: number): boolean {
    const isFull = this.#young.size >= LIMITS.recentCalls / 2;
    if (isFull && this.#old.size > 0) this.#onLimit();
    if (isFull || nowMs - this.#turnedMs >= KEPT_MS) {
      // After a longer pause all of them are old enough.
      this.#old = nowMs - this.#turnedMs >= 2 * KEPT_MS ? new Set() : this.#young;
      this.#young = new Set();
      this.#turnedMs = nowMs;
    }
    if (this.#young.has(id) || this.#old.has(id)) return false;
    this.#young.add(id);
    return true;
  }
}
