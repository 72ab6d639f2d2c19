import type { Level } from '../../telemetry/metrics.ts';
import type { Shares } from './fair-pool.ts';
import { GatewayError } from '../../errors.ts';
import { type ConnectionPermit, ConnectionQuota, type QuotaOptions, type QuotaRequest } from './connection-quota.ts';

/** File descriptors reserved for listeners, files, process pipes and connections that are not counted. */
const RESERVED = 256;

/** File descriptors of a connection: its event stream, a request in flight, and the connection of its client. */
const FILES_PER_CONNECTION = 3;

/** Returns how many connections to remote upstreams fit into this many open files, sockets included. */
export function remoteConnections(openFiles: number): number {
  return Math.max(1, Math.floor((openFiles - RESERVED) / FILES_PER_CONNECTION));
}

export function processQuota(limit: number, gauge: Level, shares: Shares): ConnectionQuota {
  return new ConnectionQuota({ ...processLimit(limit), gauge, pool: 'processes', shares });
}

export function processLimit(limit: number): Pick<QuotaOptions, 'limit' | 'refusal'> {
  const refusal =
    `all processes are in use by other clients (gateway.limits.processes: ${limit}); ` +
    'try again later, or have the operator raise the limit or set isolation: shared';
  return { limit, refusal };
}

/** Returns the quota of connections for all remote upstreams, derived from the limit on open files. */
export function remoteQuota(openFiles: number, shares: Shares): ConnectionQuota {
  const limit = remoteConnections(openFiles);
  const refusal =
    `all ${limit} connections to remote upstreams are in use by other clients, as many as ulimit -n allows; ` +
    'try again later';
  return new ConnectionQuota({ limit, refusal, shares });
}

/** The quotas of the connections of one upstream: its own, and that of its kind. */
export class UpstreamQuotas {
  readonly #id: string;
  readonly #own: ConnectionQuota;
  /** In the order in which they are acquired. */
  readonly #all: readonly ConnectionQuota[];
  readonly #leave: readonly (() => void)[];

  /** @param findSpare returns a function that closes a connection without a client; undefined if there is none. */
  constructor(
    id: string,
    limit: number,
    ofKind: ConnectionQuota,
    shares: Shares,
    findSpare: () => (() => Promise<void>) | undefined,
  ) {
    this.#id = id;
    this.#own = new ConnectionQuota({ ...upstreamLimit(id, limit), shares });
    this.#all = [this.#own, ofKind];
    this.#leave = this.#all.map((quota) => quota.join(findSpare));
  }

  setLimit(limit: number): void {
    this.#own.setLimit(upstreamLimit(this.#id, limit));
  }

  /** Takes one connection of each quota. @throws {GatewayError} `overloaded` if one of them had no free connection in time. */
  async acquire(request: QuotaRequest): Promise<ConnectionPermit> {
    const dueMs = performance.now() + request.waitMs;
    const permits: ConnectionPermit[] = [];
    const all: ConnectionPermit = {
      release: () => {
        for (const permit of permits) permit.release();
      },
      assign: (principal) => {
        for (const permit of permits) permit.assign(principal);
      },
    };
    for (const quota of this.#all) {
      const permit = await quota.acquire({ ...request, waitMs: Math.max(0, dueMs - performance.now()) });
      if (permit === undefined) {
        all.release();
        // Nobody waits for it any more, so it is no refusal.
        if (request.signal.aborted) throw new GatewayError('cancelled', { upstream: this.#id, executed: 'no' });
        throw new GatewayError('overloaded', { upstream: this.#id, message: quota.refuse(request.principal) });
      }
      permits.push(permit);
    }
    return all;
  }

  closeSpares(): void {
    for (const quota of this.#all) quota.closeSpares();
  }

  leave(): void {
    for (const leave of this.#leave) leave();
  }
}

function upstreamLimit(id: string, limit: number): Pick<QuotaOptions, 'limit' | 'refusal'> {
  const refusal = `all connections of upstream "${id}" are in use by other clients (its setting maxConnections: ${limit})`;
  return { limit, refusal };
}
