import { processReport, processReportTimes } from '../process-report.ts';
import { fullUpstreamStatuses } from '../upstream-status.ts';
import type { ClientRequestParts } from './client-requests.ts';
import type { ClientParts } from './clients.ts';
import type { ConnectionParts } from './connections.ts';
import type { CommonParts } from './core-parts.ts';

/** The interval at which unused sessions, groups and connections are released. */
const SWEEP_MS = 5_000;

type SweeperParts = Pick<CommonParts, 'upstreams' | 'transports' | 'log'> &
  Pick<ConnectionParts, 'offers'> &
  ClientParts &
  Pick<ClientRequestParts, 'connectionOwners'>;

/** Releases unused sessions, groups and connections, and logs the processes of upstreams. */
export class Sweeper {
  readonly #parts: SweeperParts;
  readonly #dueReports = processReportTimes();
  #timer: NodeJS.Timeout | undefined;

  constructor(parts: SweeperParts) {
    this.#parts = parts;
  }

  start(): void {
    this.#timer = setInterval(() => {
      this.sweep(performance.now());
      void this.#reportProcesses();
    }, SWEEP_MS).unref();
  }

  stop(): void {
    clearInterval(this.#timer);
  }

  /** Releases what is unused at this time. @param nowMs monotonic. */
  sweep(nowMs: number): void {
    const { sessions, groups, connectionOwners, upstreams } = this.#parts;
    sessions.sweep(nowMs);
    groups.sweep(nowMs);
    connectionOwners.sweep(nowMs);
    for (const upstream of upstreams.values()) upstream.closeIdleLinks(nowMs);
  }

  async #reportProcesses(): Promise<void> {
    const { upstreams, transports, log, offers } = this.#parts;
    const programs = [...upstreams.values()].filter(({ isProcess }) => isProcess);
    const due = this.#dueReports(new Map(programs.map(({ id, connections }) => [id, connections])));
    if (due.size === 0) return;
    const processUsage = () => transports.processUsage();
    const statuses = await fullUpstreamStatuses({ upstreams, offers, processUsage });
    log.info(processReport(statuses, due), 'processes of upstreams');
  }
}
