/** When changes were last handed on, and how long those of a start wait after that. Monotonic ms. */
export interface Pace {
  readonly lastMs: number;
  readonly gapMs: number;
}

/** Changes this close together are one change. */
export const COALESCE_MS = 25;
/** Between two announcements to one client. */
export const LEAST_GAP_MS = 1_000;
const WIDEST_GAP_MS = 10_000;
const WIDENING = 3;

/**
 * Returns when a change is handed on.
 *
 * @param isStart whether it comes from an upstream that is listed for the first time. While upstreams start, one follows
 *   another, and each hand-over costs every client a list.
 */
export function dueMs(pace: Pace | undefined, isStart: boolean, nowMs: number): number {
  const soonest = nowMs + COALESCE_MS;
  if (pace === undefined) return soonest;
  return Math.max(soonest, pace.lastMs + (isStart ? pace.gapMs : LEAST_GAP_MS));
}

/** Returns the pace after a hand-over: the gap widens with each one that soon follows another. */
export function nextPace(pace: Pace | undefined, nowMs: number): Pace {
  const isQuiet = pace === undefined || nowMs - pace.lastMs > 2 * pace.gapMs;
  return { lastMs: nowMs, gapMs: isQuiet ? LEAST_GAP_MS : Math.min(WIDENING * pace.gapMs, WIDEST_GAP_MS) };
}
