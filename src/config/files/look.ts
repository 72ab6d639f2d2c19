/** Times of a watch. Together, `pollMs` and `longestMs` are the longest time until a change is reported. */
export interface WatchTimes {
  /** The interval of looks. Events are missing on network file systems and in some containers. */
  readonly pollMs: number;
  /** A change is reported when the files have not changed for this long, so that a file that is being written is not read. */
  readonly settleMs: number;
  /** The longest wait for files to be still. Then a change is reported although they go on changing. */
  readonly longestMs: number;
}

/** States of files, by path. */
export type States = ReadonlyMap<string, string>;

/** A change that was found and is not reported yet. */
export interface PendingChange {
  /** The time of the look that has found it. */
  readonly sinceMs: number;
  /** The states of the last look. */
  readonly states: States;
}

/** The result of a look at the files. */
export type Look =
  | { readonly kind: 'unchanged' }
  | { readonly kind: 'changed'; readonly states: States }
  | { readonly kind: 'pending'; readonly change: PendingChange };

/**
 * Judges one look at the files. Looks at a pending change are `settleMs` apart.
 *
 * @param reported the states that were reported last. A file without one is not judged.
 * @param nowMs monotonic.
 */
export function judgeLook(
  reported: States,
  pending: PendingChange | undefined,
  states: States,
  nowMs: number,
  { longestMs }: Pick<WatchTimes, 'longestMs'>,
): Look {
  const found = new Map([...states].filter(([file, state]) => reported.has(file) && reported.get(file) !== state));
  if (found.size === 0) return { kind: 'unchanged' };
  const sinceMs = pending?.sinceMs ?? nowMs;
  const isStill = pending !== undefined && [...found].every(([file, state]) => pending.states.get(file) === state);
  if (isStill || nowMs - sinceMs >= longestMs) return { kind: 'changed', states: found };
  return { kind: 'pending', change: { sinceMs, states: found } };
}

/** Returns the time until the next look. */
export function nextLookMs(
  pending: PendingChange | undefined,
  nowMs: number,
  { pollMs, settleMs, longestMs }: WatchTimes,
): number {
  return pending === undefined ? pollMs : Math.max(0, Math.min(settleMs, pending.sinceMs + longestMs - nowMs));
}
