import { readdirSync, statSync } from 'node:fs';
import { join } from 'node:path';
import type { Gateway } from '../gateway-program.ts';
import { heapBytes } from '../heap.ts';
import { total } from '../metrics-text.ts';
import { descendantsOf, memory, threads } from '../process-cost.ts';
import { cpuSeconds } from '../settle.ts';

const MIB = 1_048_576;

/** The figures of one moment, by name. Those of {@link SLOPED} are fitted with a line. */
export type SoakSample = Readonly<Record<string, number>>;

/** Figures that must not grow, in the order of the report. */
export const SLOPED = [
  'RSS MB',
  'heap MB',
  'open files',
  'processes',
  'threads',
  'sessions',
  'streams',
  'requests in flight',
  'upstream connections',
  'active handles',
  'active requests',
  'held bytes',
  'state MB',
  'redis keys',
] as const;

function bytesIn(dir: string): number {
  return readdirSync(dir, { recursive: true, withFileTypes: true }).reduce((sum, entry) => {
    if (!entry.isFile()) return sum;
    const { size } = statSync(join(entry.parentPath, entry.name), { throwIfNoEntry: false }) ?? { size: 0 };
    return sum + size;
  }, 0);
}

/** Measures a gateway. The heap is that after a full collection, which makes the resident memory smaller too. */
export async function takeSample(
  gateway: Gateway,
  stateDir: string,
  redisKeys: (() => Promise<number>) | undefined,
): Promise<SoakSample> {
  const heap = await heapBytes(gateway);
  const samples = await gateway.metrics();
  const { pid } = gateway;
  const of = (name: string) => total(samples, name);
  return {
    'RSS MB': memory([pid]).rssMb,
    'heap MB': heap / MIB,
    'open files': readdirSync(`/proc/${pid}/fd`).length,
    processes: descendantsOf(pid).length,
    threads: threads([pid]),
    sessions: of('linkspan_sessions'),
    streams: of('linkspan_streams'),
    'requests in flight': of('linkspan_requests_in_flight'),
    'upstream connections': of('linkspan_upstream_connections'),
    'active handles': of('nodejs_active_handles'),
    'active requests': of('nodejs_active_requests'),
    'held bytes': of('linkspan_held_bytes'),
    'state MB': bytesIn(stateDir) / MIB,
    ...(redisKeys === undefined ? {} : { 'redis keys': await redisKeys() }),
    'CPU s': cpuSeconds(pid),
    requests: of('mcp_server_operation_duration_seconds_count'),
    shed: of('linkspan_shed_total'),
    dropped: of('linkspan_dropped_messages_total'),
    'limits reached': of('linkspan_limit_reached_total'),
    reloads: of('linkspan_config_reloads_total'),
  };
}
