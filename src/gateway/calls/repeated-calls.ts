import { hash } from 'node:crypto';
import { LIMITS, type LimitName } from '../../limits.ts';

interface Repeated {
  count: number;
  /** Monotonic ms. */
  readonly untilMs: number;
}

/** Counts equal calls of this process. The least recently begun count is removed first. */
export class RepeatedCalls {
  readonly #counts = new Map<string, Repeated>();
  readonly #onLimit: (limit: LimitName) => void;

  constructor(onLimit: (limit: LimitName) => void) {
    this.#onLimit = onLimit;
  }

  /**
   * Counts a call. Returns the time until its window ends, in ms, if it was made more often than the limit; else undefined.
   *
   * @param parts the texts in which equal calls are equal. Only their hash is kept.
   * @param nowMs monotonic.
   */
  count(parts: readonly string[], limit: number, windowMs: number, nowMs: number): number | undefined {
    const key = keyOf(parts);
    let known = this.#counts.get(key);
    if (known === undefined || known.untilMs <= nowMs) {
      known = { count: 0, untilMs: nowMs + windowMs };
      this.#counts.delete(key);
      this.#counts.set(key, known);
      if (this.#counts.size > LIMITS.repeatedCalls) this.#removeOldest(nowMs);
    }
    known.count++;
    return known.count > limit ? known.untilMs - nowMs : undefined;
  }

  /** Uncounts a call that was not made. */
  forget(parts: readonly string[]): void {
    const known = this.#counts.get(keyOf(parts));
    if (known !== undefined) known.count--;
  }

  #removeOldest(nowMs: number): void {
    const [oldest] = this.#counts;
    if (oldest === undefined) return;
    this.#counts.delete(oldest[0]);
    if (oldest[1].untilMs > nowMs) this.#onLimit('repeatedCalls');
  }
}

function keyOf(parts: readonly string[]): string {
  return hash('sha256', JSON.stringify(parts), 'base64');
}
