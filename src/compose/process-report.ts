import type { UpstreamStatus } from '../operator/admin/answers.ts';

/** Decides when the processes of upstreams are logged: for the first process, and each time their number has doubled. */
export class ProcessReportTimes {
  /** The highest number of connections in a log line, by upstream id. */
  readonly #shown = new Map<string, number>();

  /**
   * Returns whether a log line is due. If so, these numbers count as logged.
   *
   * @param connections the number of connections of each stdio upstream, by upstream id.
   */
  isDue(connections: ReadonlyMap<string, number>): boolean {
    const isDue = [...connections].some(([id, count]) => count > 0 && count >= 2 * (this.#shown.get(id) ?? 0));
    if (!isDue) return false;
    for (const [id, count] of connections) this.#shown.set(id, Math.max(count, this.#shown.get(id) ?? 0));
    return true;
  }
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
