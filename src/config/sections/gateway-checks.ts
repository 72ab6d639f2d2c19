import type { Faults } from '../document/faults.ts';
import type { GatewaySettings } from '../schema/gateway-schema.ts';
import { sizeText } from '../schema/units.ts';

/** Half of a total is for one principal. */
const PRINCIPALS = 2;

/** The totals of bytes, with the limit of one message of which a principal should have room for one. */
const TOTALS = [
  { total: 'bodyTotal', one: 'body', effect: 'larger requests are refused' },
  { total: 'unsentTotal', one: 'message', effect: 'a client that reads a larger answer slowly loses its connection' },
] as const;

/** Adds a warning for each total in which one principal has no room for the largest message. */
export function warnOfLimits({ limits, workers }: GatewaySettings, faults: Faults): void {
  for (const { total, one, effect } of TOTALS) {
    const [bytes, largest] = [limits[total], limits[one]];
    const least = PRINCIPALS * workers * largest;
    if (bytes === undefined || bytes >= least) continue;
    const part = sizeText(Math.floor(bytes / workers / PRINCIPALS));
    const message = `one principal may use ${part} of it, less than ${one}; ${effect}; set at least ${sizeText(least)}`;
    faults.warn(['gateway', 'limits', total], message);
  }
}

/** The least `overload.memory` of one process. */
const LEAST_MEMORY_BYTES = 67_108_864;

/** Judges totals that are too small for several workers. */
export function judgeWorkers({ workers, limits, overload }: GatewaySettings, faults: Faults): void {
  if (workers === 1) return;
  if (limits.processes > 0 && limits.processes < workers) {
    const message = `is shared by ${workers} workers, and some of them would get none; set at least ${workers}, or 0`;
    faults.refuse(['gateway', 'limits', 'processes'], message);
  }
  const { memory } = overload;
  if (typeof memory === 'number' && memory < workers * LEAST_MEMORY_BYTES) {
    const message = `is shared by ${workers} workers, each of which needs ${sizeText(LEAST_MEMORY_BYTES)}; set at least ${sizeText(workers * LEAST_MEMORY_BYTES)}`;
    faults.refuse(['gateway', 'overload', 'memory'], message);
  }
}

/** Judges settings of `gateway.redis` that contradict each other, or that workers cannot have. */
export function judgeRedis({ workers, redis }: Pick<GatewaySettings, 'workers' | 'redis'>, faults: Faults): void {
  if (redis === undefined) return;
  if (workers > 1) {
    const message = 'needs a gateway without gateway.redis; start a replica for each core instead';
    faults.refuse(['gateway', 'workers'], message);
  }
  if (redis.advertise !== undefined && redis.internal === undefined) {
    const message = 'needs "internal", the address that this one leads to; without it, the port is any free one';
    faults.refuse(['gateway', 'redis', 'advertise'], message, 'key');
  }
  if (redis.caFile !== undefined && !redis.url.tls) {
    const message = 'the URL is not rediss, so that Redis is not reached over TLS; remove "caFile", or write rediss://';
    faults.refuse(['gateway', 'redis', 'caFile'], message, 'key');
  }
}
