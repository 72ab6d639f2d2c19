import { setLatest } from '../../map-entries.ts';
import type { RateLimiterMemory } from 'rate-limiter-flexible';
import { LIMITS, type LimitName } from '../../limits.ts';
import type { RateTable, TakenUnits } from '../rate-table.ts';
import { takeFrom } from '../rate-limiter.ts';

/** Limiters with different limits and windows, which a reload adds. */
const MAX_LIMITERS = 256;

/** Counts in memory, for a gateway of one process. */
export class MemoryRateTable implements RateTable {
  readonly #limiters = new Map<string, RateLimiterMemory>();
  /** The limiters of counters that may have a window, the oldest counter first. */
  readonly #counters = new Map<string, { readonly limiter: RateLimiterMemory; readonly untilMs: number }>();
  readonly #onLimit: (limit: LimitName) => void;

  constructor(onLimit: (limit: LimitName) => void) {
    this.#onLimit = onLimit;
  }

  async take(counter: string, units: number, limit: number, windowMs: number): Promise<TakenUnits> {
    const limiter = await this.#limiter(limit, windowMs);
    const taken = await takeFrom(limiter, counter, units, limit);
    this.#counters.delete(counter);
    this.#counters.set(counter, { limiter, untilMs: performance.now() + taken.endsInMs });
    if (this.#counters.size > LIMITS.rateCounters) await this.#makeRoom();
    return taken;
  }

  async #limiter(limit: number, windowMs: number): Promise<RateLimiterMemory> {
    const key = `${limit} ${windowMs}`;
    const known = this.#limiters.get(key);
    if (known !== undefined) return known;
    const { RateLimiterMemory } = await import('../libraries/rate-limiters.ts');
    const made = new RateLimiterMemory({ keyPrefix: '', points: limit, duration: windowMs / 1_000 });
    const raced = this.#limiters.get(key);
    if (raced !== undefined) return raced;
    setLatest(this.#limiters, key, made, MAX_LIMITERS);
    return made;
  }

  /** Removes the oldest counter, which begins again. */
  async #makeRoom(): Promise<void> {
    const [oldest] = this.#counters;
    if (oldest === undefined) return;
    const [counter, { limiter, untilMs }] = oldest;
    this.#counters.delete(counter);
    if (untilMs <= performance.now()) return;
    this.#onLimit('rateCounters');
    await limiter.delete(counter);
  }
}
