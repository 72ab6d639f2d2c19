import type { UpstreamStatus } from '../operator/admin/answers.ts';

/**
 * Returns the function that decides when the processes of upstreams are logged: for the first one, and each time their number has doubled. It gets
 * the number of connections of each stdio upstream by its id. If a line is due, these numbers count as logged.
 */
export function processReportTimes(): (connections: ReadonlyMap<string, number>) => boolean {
  /** The highest number of connections in a log line, by upstream id. */
  const shown = new Map<string, number>();
  return (connections) => {
    const isDue = [...connections].some(([id, count]) => count > 0 && count >= 2 * (shown.get(id) ?? 0));
    if (isDue) for (const [id, count] of connections) shown.set(id, Math.max(count, shown.get(id) ?? 0));
    return isDue;
  };
}

/** One upstream in {@link processReport}. */
type UpstreamProcesses = Pick<UpstreamStatus, 'processes' | 'memoryBytes' | 'memoryNote' | 'advice'>;

/** Returns the fields of the log line about the processes of upstreams, sorted by memory, the largest first. */
export function processReport(statuses: readonly UpstreamStatus[]): {
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
      running.map(({ id, processes, memoryBytes, memoryNote, advice }) => [
        id,
        { processes, memoryBytes, memoryNote, advice },
      ]),
    ),
  };
}
