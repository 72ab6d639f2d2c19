import type { UpstreamStatus } from '../operator/status.ts';

/** Decides when the processes of upstreams get a log line: with their first process, and each time their number has doubled. */
export class ProcessReportTimes {
  /** By upstream, the most connections that a line has shown. */
  readonly #shown = new Map<string, number>();

  /** @param connections of each upstream that is a program. Those of a line that is due count as shown. */
  isDue(connections: ReadonlyMap<string, number>): boolean {
    const isDue = [...connections].some(([id, count]) => count > 0 && count >= 2 * (this.#shown.get(id) ?? 0));
    if (!isDue) return false;
    for (const [id, count] of connections) this.#shown.set(id, Math.max(count, this.#shown.get(id) ?? 0));
    return true;
  }
}

/** One upstream in {@link processReport}. */
type UpstreamProcesses = Pick<UpstreamStatus, 'processes' | 'memoryBytes' | 'memoryNote' | 'advice'>;

/** Returns the fields of the log line about the processes of upstreams, those with the most memory first. */
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
