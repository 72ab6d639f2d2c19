/** The time of the last report of changes, and the least time until the next one during a start. Monotonic ms. */
export interface Pace {
  readonly lastMs: number;
  readonly gapMs: number;
}

/** Changes within this time are reported together. */
export const COALESCE_MS = 25;
/** The least time between two announcements to one client. */
export const LEAST_GAP_MS = 1_000;
const LARGEST_GAP_MS = 10_000;
const GAP_FACTOR = 3;

/**
 * Returns the time to report a change; monotonic ms.
 *
 * @param isStart whether the upstream is listed for the first time. While upstreams start, many changes follow each
 *   other, and each report costs every client a list.
 */
export function dueMs(pace: Pace | undefined, isStart: boolean, nowMs: number): number {
  const soonest = nowMs + COALESCE_MS;
  if (pace === undefined) return soonest;
  return Math.max(soonest, pace.lastMs + (isStart ? pace.gapMs : LEAST_GAP_MS));
}

/** Returns the pace after a report. The gap grows with each report that soon follows another. */
export function nextPace(pace: Pace | undefined, nowMs: number): Pace {
  const isQuiet = pace === undefined || nowMs - pace.lastMs > 2 * pace.gapMs;
  return { lastMs: nowMs, gapMs: isQuiet ? LEAST_GAP_MS : Math.min(GAP_FACTOR * pace.gapMs, LARGEST_GAP_MS) };
}
