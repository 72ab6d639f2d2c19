import type { Level } from '../telemetry/metrics.ts';
import { ConnectionQuota } from './connection-quota.ts';

/** Kept for listeners, files, pipes of processes and connections that are not counted. */
const RESERVED = 256;

/** Of a connection: its event stream, a request under way, and the connection of the client that it serves. */
const FILES_PER_CONNECTION = 3;

/** Returns how many connections to remote upstreams fit into this many open files; any number, where files are not bounded. */
export function remoteConnections(openFiles: number): number {
  return Math.max(1, Math.floor((openFiles - RESERVED) / FILES_PER_CONNECTION));
}

/** Bounds the processes of all stdio upstreams. */
export function processQuota(limit: number, gauge: Level): ConnectionQuota {
  const refusal =
    `all ${limit} processes are in use by other clients (gateway.limits.processes); ` +
    'try again later, or ask the operator to raise the limit or to share upstreams with isolation: shared';
  return new ConnectionQuota({ limit, refusal, gauge });
}

/** Bounds the connections of all remote upstreams by the limit on open files. */
export function remoteQuota(openFiles: number): ConnectionQuota {
  const limit = remoteConnections(openFiles);
  const refusal =
    `all ${limit} connections to remote upstreams are in use by other clients, as many as the limit on open files ` +
    'allows (ulimit -n); try again later';
  return new ConnectionQuota({ limit, refusal });
}
