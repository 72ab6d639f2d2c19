/** An event that has not happened for this long counts as new. */
const FORGET_MS = 10 * 60_000;
const FIRST_INTERVAL_MS = 60_000;
const LONGEST_INTERVAL_MS = 60 * 60_000;
const FACTOR = 4;

interface Repeated {
  reason: string;
  /** Occurrences since the last line. */
  count: number;
  loggedMs: number;
  seenMs: number;
  intervalMs: number;
}

/**
 * Decides which of many equal events get a log line: the first at once, later ones as a count at growing intervals.
 *
 * Keys come from the config and the program (upstream, message, state), which bounds their number.
 */
export class Repeats {
  readonly #events = new Map<string, Repeated>();

  /**
   * Counts one event. Returns how often it happened since its last line, without this time, or undefined if no line is
   * due. An event with another reason is a new event; digits in reasons are ignored.
   */
  due(key: string, reason: string, nowMs: number): number | undefined {
    const like = reason.replace(/\d+/g, '#');
    const known = this.#events.get(key);
    if (known === undefined || known.reason !== like || nowMs - known.seenMs > FORGET_MS + known.intervalMs) {
      this.#events.set(key, {
        reason: like,
        count: 0,
        loggedMs: nowMs,
        seenMs: nowMs,
        intervalMs: FIRST_INTERVAL_MS,
      });
      return 0;
    }
    known.seenMs = nowMs;
    known.count++;
    if (nowMs - known.loggedMs < known.intervalMs) return undefined;
    const { count } = known;
    known.count = 0;
    known.loggedMs = nowMs;
    known.intervalMs = Math.min(known.intervalMs * FACTOR, LONGEST_INTERVAL_MS);
    return count;
  }
}
