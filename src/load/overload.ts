import type { Work } from './load.ts';

/** Below this many requests in flight, the delay of the loop has other reasons than load. */
export const LEAST_FOR_DELAY = 100;
/** Below this many requests in flight nothing is refused for lack of memory, so that a process that keeps its memory is of use. */
export const LEAST_FOR_MEMORY = 16;

/** The shares of the memory limit from which on caches are dropped, new work is refused, and readers are closed, each with those before. */
const LEVELS = [0.8, 0.9, 0.95];
/** A measure that has begun ends at this much less. */
const HYSTERESIS = 0.05;

/** The latest delays of the loop, of which the median counts: a single long turn is no overload. */
const DELAYS = 5;
/** The share of new work that is refused grows by this much per second of overload, and falls by this much per second without. */
const GROWTH = 0.5;
const DECLINE = 0.2;
const IDLE_DECLINE = 1;

export type OverloadReason = 'loop-delay' | 'memory';

/**
 * Decides by measurements how much new work is refused. While the loop is late, a growing share of new calls and sessions is refused. So
 * the loop is kept busy, and not more than that. Near the limit of memory all of them are.
 */
export class Overload {
  #delays: number[] = [];
  #share = 0;
  /** Fractions of refusals that add up to the next one. */
  #due = 0;
  /** The number of measures of {@link LEVELS} that are taken. */
  #level = 0;
  #lastMemory = 0;

  /** The median of the latest delays, in ms. */
  get delayMs(): number {
    const sorted = this.#delays.toSorted((a, b) => a - b);
    return sorted[Math.floor(sorted.length / 2)] ?? 0;
  }

  /** The share of new calls and sessions that is refused for the delay of the loop, 0 to 1. */
  get share(): number {
    return this.#share;
  }

  get mustDropCaches(): boolean {
    return this.#level > 0;
  }

  get mustCloseReaders(): boolean {
    return this.#level > 2;
  }

  /** True if memory is so short that new work is refused. */
  get #isFull(): boolean {
    return this.#level > 1;
  }

  /** The reasons for which new work is refused now, if enough requests are in flight. */
  get reasons(): readonly OverloadReason[] {
    return [...(this.#share > 0 ? ['loop-delay' as const] : []), ...(this.#isFull ? ['memory' as const] : [])];
  }

  /**
   * Records how late a turn of the event loop was.
   *
   * @param elapsedMs the time since the last record.
   * @param boundMs the delay beyond which work is refused.
   */
  onTurn(lateMs: number, elapsedMs: number, inFlight: number, boundMs: number): void {
    this.#delays = [...this.#delays.slice(1 - DELAYS), lateMs];
    if (this.#delays.length < DELAYS) return;
    const seconds = elapsedMs / 1_000;
    const { delayMs } = this;
    if (inFlight < LEAST_FOR_DELAY) this.#share -= seconds * IDLE_DECLINE;
    else if (delayMs > boundMs) this.#share += seconds * GROWTH;
    else if (delayMs < boundMs / 2) this.#share -= seconds * DECLINE;
    this.#share = Math.min(1, Math.max(0, this.#share));
    if (this.#share === 0) this.#due = 0;
  }

  /** Records how much of the memory limit is used, 0 to 1. One measurement alone changes nothing. */
  onMemory(used: number): void {
    const least = Math.min(used, this.#lastMemory);
    this.#lastMemory = used;
    this.#level = LEVELS.findLastIndex((share, at) => least >= share - (this.#level > at ? HYSTERESIS : 0)) + 1;
  }

  /** Returns the reason for which another piece of work is refused; undefined if it may begin. */
  refusalOf(work: Work, inFlight: number): OverloadReason | undefined {
    if (this.#share === 0 && this.#level === 0) return undefined;
    if (this.#isFull && inFlight >= LEAST_FOR_MEMORY) return 'memory';
    if (this.#share === 0 || work === 'stream' || inFlight < LEAST_FOR_DELAY) return undefined;
    this.#due += this.#share;
    if (this.#due < 1) return undefined;
    this.#due--;
    return 'loop-delay';
  }
}
