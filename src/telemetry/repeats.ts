/** An event that stays away for this long is told as new. */
const FORGET_MS = 10 * 60_000;
const FIRST_INTERVAL_MS = 60_000;
const LONGEST_INTERVAL_MS = 60 * 60_000;
const FACTOR = 4;

interface Repeated {
  reason: string;
  /** Since it was last told. */
  count: number;
  toldMs: number;
  seenMs: number;
  intervalMs: number;
}

/**
 * Decides which of many equal events are worth a line: the first at once, later ones as a count at widening intervals.
 *
 * Keys come from the config and the program (upstream, message, state), so their number is bounded by it.
 */
export class Repeats {
  readonly #events = new Map<string, Repeated>();

  /**
   * Counts one event. Returns how often it happened since it was last told, without this one, or undefined where no line is
   * due. Another reason is another event; reasons that differ in numbers alone are the same.
   */
  due(key: string, reason: string, nowMs: number): number | undefined {
    const like = reason.replace(/\d+/g, '#');
    const known = this.#events.get(key);
    if (known === undefined || known.reason !== like || nowMs - known.seenMs > FORGET_MS + known.intervalMs) {
      this.#events.set(key, {
        reason: like,
        count: 0,
        toldMs: nowMs,
        seenMs: nowMs,
        intervalMs: FIRST_INTERVAL_MS,
      });
      return 0;
    }
    known.seenMs = nowMs;
    known.count++;
    if (nowMs - known.toldMs < known.intervalMs) return undefined;
    const { count } = known;
    known.count = 0;
    known.toldMs = nowMs;
    known.intervalMs = Math.min(known.intervalMs * FACTOR, LONGEST_INTERVAL_MS);
    return count;
  }
}
