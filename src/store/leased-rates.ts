import { setLatest } from '../map-entries.ts';
import { GatewayError } from '../errors.ts';
import { LIMITS, type LimitName } from '../limits.ts';
import type { RateTable } from './rate-table.ts';

/** A block is this part of its limit. */
const BLOCKS = 64;
/** A process that could not reach the table asks it again after this time. */
const RETRY_MS = 1_000;
const NEVER = Number.NEGATIVE_INFINITY;

interface Window {
  readonly limit: number;
  readonly windowMs: number;
  /** Units that this process has and has not used. */
  left: number;
  /** End of the window; monotonic ms. */
  untilMs: number;
  /** The table is not asked before this time: it has no more units, or cannot be reached. Monotonic ms. */
  askAgainMs: number;
  /** The number of the window of time among those of this counter. */
  number: number;
  /** True if this process uses its share, because the table could not be reached in this window. */
  hasShare: boolean;
  taking: Promise<void> | undefined;
}

/** The time until a call may be tried again, in ms; undefined if it may be made now. */
export type Wait = number | undefined;

export interface LeasedRatesParts {
  readonly table: RateTable;
  /** Returns the number of processes, for their share of a limit while the table cannot be reached. */
  readonly processes: () => number;
  readonly onLimit: (limit: LimitName) => void;
}

/**
 * Bounds how often something happens in all processes of a gateway. Each process takes blocks of units from a table, and counts inside them
 * without asking.
 *
 * All processes together do not exceed a limit in a window. Up to (n − 1) × (block − 1) units of a window may be refused though nobody uses
 * them, for n processes. While the table cannot be reached, a process uses the units that it has. Then it uses its equal share of the limit
 * in each window. So processes may exceed the limit together until the table is back.
 */
export class LeasedRates {
  readonly #parts: LeasedRatesParts;
  /** In the order in which the windows begin. */
  readonly #windows = new Map<string, Window>();

  constructor(parts: LeasedRatesParts) {
    this.#parts = parts;
  }

  /** Takes one unit. Returns the time to wait if there is none; a promise only if the table must be asked. Never rejects. */
  take(counter: string, limit: number, windowMs: number, nowMs = performance.now()): Wait | Promise<Wait> {
    const window = this.#window(counter, limit, windowMs);
    if (nowMs < window.untilMs) {
      if (window.left > 0) {
        window.left--;
        return undefined;
      }
      if (nowMs < window.askAgainMs) return window.untilMs - nowMs;
    }
    return this.#takeMore(counter, window);
  }

  /** Returns a function that gives back the unit that was just taken, if it was not used. After the end of its window it does nothing. */
  undoTake(counter: string): () => void {
    const window = this.#windows.get(counter);
    const number = window?.number;
    return () => {
      if (window !== undefined && window.number === number && performance.now() < window.untilMs) window.left++;
    };
  }

  async #takeMore(counter: string, window: Window): Promise<Wait> {
    for (;;) {
      window.taking ??= this.#askTable(counter, window).finally(() => {
        window.taking = undefined;
      });
      await window.taking;
      if (window.left > 0) {
        window.left--;
        return undefined;
      }
      // Others may have taken all units of the block that this caller has waited for.
      const nowMs = performance.now();
      if (nowMs < window.askAgainMs) return Math.max(1, window.untilMs - nowMs);
    }
  }

  async #askTable(counter: string, window: Window): Promise<void> {
    const { table, processes } = this.#parts;
    const { limit, windowMs } = window;
    const wanted = Math.max(1, Math.floor(limit / BLOCKS));
    try {
      const { units, endsInMs } = await table.take(counter, wanted, limit, windowMs);
      // Units of an earlier window are not kept.
      const isSame = performance.now() < window.untilMs;
      window.left = isSame ? window.left + units : units;
      // The table says more if its clock was set back.
      window.untilMs = performance.now() + Math.min(endsInMs, windowMs);
      window.askAgainMs = units < wanted ? window.untilMs : NEVER;
      if (!isSame) this.#renew(counter, window);
    } catch (thrown) {
      if (!(thrown instanceof GatewayError)) throw thrown;
      this.#useShare(window, Math.floor(limit / Math.max(1, processes())), windowMs);
    }
  }

  /** Grants the share of this process, once in each window. */
  #useShare(window: Window, share: number, windowMs: number): void {
    const nowMs = performance.now();
    if (nowMs >= window.untilMs) {
      window.number++;
      window.left = 0;
      window.untilMs = nowMs + windowMs;
      window.hasShare = false;
    }
    if (!window.hasShare) window.left += Math.max(1, share);
    window.hasShare = true;
    window.askAgainMs = nowMs + RETRY_MS;
  }

  /** Moves a counter to the end of the order, since its window begins. */
  #renew(counter: string, window: Window): void {
    window.number++;
    window.hasShare = false;
    if (this.#windows.get(counter) !== window) return;
    this.#windows.delete(counter);
    this.#windows.set(counter, window);
  }

  /** Returns the window of a counter. Another limit or window of time, after a reload, begins a new one. */
  #window(counter: string, limit: number, windowMs: number): Window {
    let window = this.#windows.get(counter);
    if (window === undefined || window.limit !== limit || window.windowMs !== windowMs) {
      const nothing = { left: 0, untilMs: NEVER, askAgainMs: NEVER, number: 0, hasShare: false, taking: undefined };
      window = { limit, windowMs, ...nothing };
      // The units of the oldest window are lost until it ends.
      if (setLatest(this.#windows, counter, window, LIMITS.rateCounters)) this.#parts.onLimit('rateCounters');
    }
    return window;
  }
}
