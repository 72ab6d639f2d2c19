import type { UpstreamStatus } from '../operator/admin/answers.ts';

/**
 * Returns the function that decides which upstreams get a line about their processes: those with their first one, and those whose number has doubled.
 * It gets the number of connections of each stdio upstream by its id, and returns ids. These numbers then count as logged.
 */
export function processReportTimes(): (connections: ReadonlyMap<string, number>) => ReadonlySet<string> {
  /** The highest number of connections in a log line, by upstream id. */
  const shown = new Map<string, number>();
  return (connections) => {
    const due = [...connections].filter(([id, count]) => count > 0 && count >= 2 * (shown.get(id) ?? 0));
    for (const [id, count] of due) shown.set(id, count);
    return new Set(due.map(([id]) => id));
  };
}

/** One upstream in {@link processReport}. */
type UpstreamProcesses = Pick<UpstreamStatus, 'processes' | 'memoryBytes' | 'memoryNote' | 'advice'>;

/**
 * Returns the fields of the log line about the processes of upstreams: the sums of all, and those that are due, the largest first. A line with
 * all of them at each start would make the log grow with the square of their number.
 */
export function processReport(
  statuses: readonly (Pick<UpstreamStatus, 'id'> & UpstreamProcesses)[],
  due: ReadonlySet<string>,
): {
  readonly processes: number;
  readonly memoryBytes: number;
  readonly byUpstream: Readonly<Record<string, UpstreamProcesses>>;
} {
  const running = statuses
    .filter(({ processes = 0 }) => processes > 0)
    .toSorted((a, b) => (b.memoryBytes ?? 0) - (a.memoryBytes ?? 0));
  return {
    processes: running.reduce((sum, { processes = 0 }) => sum + processes, 0),
    memoryBytes: running.reduce((sum, { memoryBytes = 0 }) => sum + memoryBytes, 0),
    byUpstream: Object.fromEntries(
      running
        .filter(({ id }) => due.has(id))
        .map(({ id, processes, memoryBytes, memoryNote, advice }) => [
          id,
          { processes, memoryBytes, memoryNote, advice },
        ]),
    ),
  };
}
