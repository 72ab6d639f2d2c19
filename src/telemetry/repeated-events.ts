import { getOrMake, setLatest } from '../map-entries.ts';

/** An event that has not happened for this long counts as new. */
const FORGET_MS = 10 * 60_000;
const FIRST_INTERVAL_MS = 60_000;
const LONGEST_INTERVAL_MS = 60 * 60_000;
const FACTOR = 4;

/** The reasons of one key that are known at the same time. A failure may alternate between some. */
const MAX_REASONS = 8;

interface Repeated {
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
export class RepeatedEvents {
  /** Events by key and by reason, the least recent reason first. */
  readonly #events = new Map<string, Map<string, Repeated>>();

  /**
   * Counts one event. Returns how often it happened since its last line, with this time; 0 for the first; undefined if no
   * line is due. An event with another reason is another event. Digits in reasons are ignored, but not those of an HTTP status or exit code.
   */
  due(key: string, reason: string, nowMs: number): number | undefined {
    const like = reason.replace(/((?:HTTP|code) \d+)|\d+/g, (_, kept?: string) => kept ?? '#');
    const reasons = getOrMake(this.#events, key, () => new Map());
    const known = reasons.get(like);
    reasons.delete(like);
    if (known === undefined || nowMs - known.seenMs > FORGET_MS + known.intervalMs) {
      const first = { count: 0, loggedMs: nowMs, seenMs: nowMs, intervalMs: FIRST_INTERVAL_MS };
      setLatest(reasons, like, first, MAX_REASONS);
      return 0;
    }
    reasons.set(like, known);
    known.seenMs = nowMs;
    known.count++;
    if (nowMs - known.loggedMs < known.intervalMs) return undefined;
    const { count } = known;
    known.count = 0;
    known.loggedMs = nowMs;
    known.intervalMs = Math.min(known.intervalMs * FACTOR, LONGEST_INTERVAL_MS);
    return count;
  }

  /** Counts one event as {@link due} does. Returns how many without a line came before it; undefined if no line is due. */
  dueAfter(key: string, reason: string, nowMs: number): number | undefined {
    const due = this.due(key, reason, nowMs);
    return due === undefined ? undefined : Math.max(0, due - 1);
  }

  /** Returns how often the events of a key happened since their last lines, and counts them as reported. */
  takeUnreported(key: string): number {
    let sum = 0;
    for (const event of this.#events.get(key)?.values() ?? []) {
      sum += event.count;
      event.count = 0;
    }
    return sum;
  }
}
