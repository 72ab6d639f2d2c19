import { hash } from 'node:crypto';
import { LIMITS, type LimitName } from '../../limits.ts';

/** The number of equal calls in a window. */
interface Repeated {
  count: number;
  /** The time of the first call; monotonic ms. A reload may change the length of the window. */
  readonly begunMs: number;
}

/** Counts equal calls of this process. The least recently begun count is removed first. */
export class RepeatedCalls {
  readonly #counts = new Map<string, Repeated>();
  readonly #onLimit: (limit: LimitName) => void;

  constructor(onLimit: (limit: LimitName) => void) {
    this.#onLimit = onLimit;
  }

  /**
   * Counts a call. Returns its count, or, uncounted, the time until its window ends (ms) if it was made as often as the limit allows.
   *
   * @param parts the texts in which equal calls are equal. Only their hash is kept.
   * @param nowMs monotonic.
   */
  count(parts: readonly string[], limit: number, windowMs: number, nowMs: number): Repeated | number {
    const key = hash('sha256', JSON.stringify(parts), 'base64');
    let known = this.#counts.get(key);
    if (known === undefined || nowMs - known.begunMs >= windowMs) {
      known = { count: 0, begunMs: nowMs };
      this.#counts.delete(key);
      this.#counts.set(key, known);
      if (this.#counts.size > LIMITS.repeatedCalls) this.#removeOldest(nowMs - windowMs);
    }
    if (known.count >= limit) return known.begunMs + windowMs - nowMs;
    known.count++;
    return known;
  }

  /** @param endedMs windows that began then or earlier have ended. */
  #removeOldest(endedMs: number): void {
    const [oldest] = this.#counts;
    if (oldest === undefined) return;
    this.#counts.delete(oldest[0]);
    if (oldest[1].begunMs > endedMs) this.#onLimit('repeatedCalls');
  }
}
