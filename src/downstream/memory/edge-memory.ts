import { getHeapStatistics } from 'node:v8';
import type { Config } from '../../config/config.ts';
import type { Metrics } from '../../telemetry/metrics.ts';
import { BodyBudget } from './body-budget.ts';
import { type BudgetLimits, ByteBudget } from './byte-budget.ts';

const MIB = 1_048_576;

/** One principal may use this part of each budget, so that others find room. */
const PRINCIPAL_PART = 2;

/** The total has room for this many of the largest bodies. */
const LARGEST_BODIES = 4;

/** Bounds on all that the client's edge keeps in memory for its clients. */
export interface EdgeMemory {
  /** Events kept for clients that resume a stream. */
  readonly events: ByteBudget;
  /** Events and answers that wait for slow readers. */
  readonly unsent: ByteBudget;
  /** Request bodies that are being received. */
  readonly bodies: BodyBudget;
}

/** A part of the heap, up to a maximum: a process with a small heap keeps less. */
function partOfHeap(heapBytes: number, part: number, maxBytes: number): number {
  return Math.min(maxBytes, Math.floor(heapBytes / part));
}

function shared(totalBytes: number): BudgetLimits {
  return { totalBytes, principalBytes: Math.floor(totalBytes / PRINCIPAL_PART) };
}

/** @param heapBytes the heap limit of this process. */
export function createEdgeMemory(
  { sessions, limits }: Pick<Config, 'sessions' | 'limits'>,
  metrics: Metrics | undefined,
  heapBytes: number = getHeapStatistics().heap_size_limit,
): EdgeMemory {
  const eventBytes = sessions.eventTotalBytes ?? partOfHeap(heapBytes, 8, 128 * MIB);
  const unsentBytes = limits.unsentTotalBytes ?? partOfHeap(heapBytes, 4, 256 * MIB);
  const bodyBytes =
    limits.bodyTotalBytes ?? Math.max(partOfHeap(heapBytes, 8, 128 * MIB), LARGEST_BODIES * limits.bodyBytes);
  const events = new ByteBudget(shared(eventBytes), () => metrics?.budgetExceeded('events'));
  const unsent = new ByteBudget(shared(unsentBytes), () => metrics?.budgetExceeded('unsent'));
  const bodies = new BodyBudget(shared(bodyBytes), {
    onRefused: () => metrics?.budgetExceeded('bodies'),
    onStalled: () => metrics?.limitReached('bodyStallMs'),
  });
  metrics?.reportHeldBytes('events', () => events.bytes);
  metrics?.reportHeldBytes('unsent', () => unsent.bytes);
  metrics?.reportHeldBytes('bodies', () => bodies.bytes);
  return { events, unsent, bodies };
}
