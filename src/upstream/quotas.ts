import type { Level } from '../telemetry/metrics.ts';
import { ConnectionQuota } from './connection-quota.ts';

/** File descriptors reserved for listeners, files, process pipes and connections that are not counted. */
const RESERVED = 256;

/** File descriptors of a connection: its event stream, a request in flight, and the connection of its client. */
const FILES_PER_CONNECTION = 3;

/** Returns how many connections to remote upstreams fit into this many open files, sockets included. */
export function remoteConnections(openFiles: number): number {
  return Math.max(1, Math.floor((openFiles - RESERVED) / FILES_PER_CONNECTION));
}

/** Returns the quota of processes for all stdio upstreams. */
export function processQuota(limit: number, gauge: Level): ConnectionQuota {
  const refusal =
    `all ${limit} processes are in use by other clients (gateway.limits.processes); ` +
    'try again later, or ask the operator to raise the limit or to share upstreams with isolation: shared';
  return new ConnectionQuota({ limit, refusal, gauge });
}

/** Returns the quota of connections for all remote upstreams, derived from the limit on open files. */
export function remoteQuota(openFiles: number): ConnectionQuota {
  const limit = remoteConnections(openFiles);
  const refusal =
    `all ${limit} connections to remote upstreams are in use by other clients, as many as the limit on open files ` +
    'allows (ulimit -n); try again later';
  return new ConnectionQuota({ limit, refusal });
}
