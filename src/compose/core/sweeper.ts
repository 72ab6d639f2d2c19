import { processReport, ProcessReportTimes } from '../process-report.ts';
import { fullUpstreamStatuses } from '../upstream-status.ts';
import type { ClientRequestParts } from './client-requests.ts';
import type { ClientParts } from './clients.ts';
import type { ConnectionParts } from './connections.ts';
import type { CommonParts } from './core-parts.ts';

/** The interval at which unused sessions, groups and connections are released. */
const SWEEP_MS = 5_000;

/** Releases unused sessions, groups and connections, and logs the processes of upstreams. */
export class Sweeper {
  readonly #common: CommonParts;
  readonly #connections: ConnectionParts;
  readonly #clients: ClientParts;
  readonly #requests: Pick<ClientRequestParts, 'connectionOwners'>;
  readonly #reportTimes = new ProcessReportTimes();
  #timer: NodeJS.Timeout | undefined;

  constructor(
    common: CommonParts,
    connections: ConnectionParts,
    clients: ClientParts,
    requests: Pick<ClientRequestParts, 'connectionOwners'>,
  ) {
    this.#common = common;
    this.#connections = connections;
    this.#clients = clients;
    this.#requests = requests;
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
    this.#clients.sessions.sweep(nowMs);
    this.#clients.groups.sweep(nowMs);
    this.#requests.connectionOwners.sweep(nowMs);
    for (const upstream of this.#common.upstreams.values()) upstream.closeIdleLinks(nowMs);
  }

  async #reportProcesses(): Promise<void> {
    const { upstreams, transports, log } = this.#common;
    const { offers } = this.#connections;
    const { holders } = this.#clients;
    const programs = [...upstreams.values()].filter(({ isProcess }) => isProcess);
    if (!this.#reportTimes.isDue(new Map(programs.map(({ id, connections }) => [id, connections])))) return;
    const processUsage = () => transports.processUsage();
    log.info(
      processReport(await fullUpstreamStatuses({ upstreams, offers, holders, processUsage })),
      'processes of upstreams',
    );
  }
}
