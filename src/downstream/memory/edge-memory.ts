import { getHeapStatistics } from 'node:v8';
import type { Config } from '../../config/values/config.ts';
import type { Metrics } from '../../telemetry/metrics.ts';
import { BodyBudget } from './body-budget.ts';
import { type BudgetLimits, ByteBudget } from './byte-budget.ts';
import { RunningBodies } from './running-bodies.ts';

const MIB = 1_048_576;

/** One principal may use this fraction (1/n) of each budget, so that others find room. */
const PRINCIPAL_FRACTION = 2;

/** The budget has room for at least this many of the largest bodies. */
const LARGEST_BODIES = 4;

/** The byte budgets of the client's edge. */
export interface EdgeMemory {
  /** Events kept for clients that resume a stream. */
  readonly events: ByteBudget;
  /** Events and answers that wait for slow readers. */
  readonly unsent: ByteBudget;
  /** Request bodies that are being received. */
  readonly bodies: BodyBudget;
  /** Large bodies whose requests are not answered. They have the same limits, and room of their own. */
  readonly running: RunningBodies;
}

/** Returns a fraction (1/part) of the heap, up to a maximum, so that a process with a small heap keeps less. */
function fractionOfHeap(heapBytes: number, part: number, maxBytes: number): number {
  return Math.min(maxBytes, Math.floor(heapBytes / part));
}

function limitsOf(totalBytes: number): BudgetLimits {
  return { totalBytes, principalBytes: Math.floor(totalBytes / PRINCIPAL_FRACTION) };
}

/** Returns the bounds of bodies. @param heapBytes the heap limit of this process. */
export function bodyBudgetLimits(
  { bodyBytes, bodyTotalBytes }: Config['limits'],
  heapBytes: number = getHeapStatistics().heap_size_limit,
): BudgetLimits {
  return limitsOf(bodyTotalBytes ?? Math.max(fractionOfHeap(heapBytes, 8, 128 * MIB), LARGEST_BODIES * bodyBytes));
}

/** Creates the budgets of this process. */
export function createEdgeMemory(
  { sessions, limits }: Pick<Config, 'sessions' | 'limits'>,
  metrics: Metrics,
): EdgeMemory {
  const heapBytes = getHeapStatistics().heap_size_limit;
  const eventBytes = sessions.eventTotalBytes ?? fractionOfHeap(heapBytes, 8, 128 * MIB);
  const unsentBytes = limits.unsentTotalBytes ?? fractionOfHeap(heapBytes, 4, 256 * MIB);
  const events = new ByteBudget(limitsOf(eventBytes), () => metrics.countBudgetRefusal('events'));
  const unsent = new ByteBudget(limitsOf(unsentBytes), () => metrics.countBudgetRefusal('unsent'));
  const bodyLimits = bodyBudgetLimits(limits, heapBytes);
  const bodies = new BodyBudget(bodyLimits, {
    onRefused: () => metrics.countBudgetRefusal('bodies'),
    onStalled: () => metrics.countLimit('bodyStallMs'),
  });
  const running = new RunningBodies(bodyLimits, () => metrics.countBudgetRefusal('running'));
  metrics.reportHeldBytes('events', () => events.bytes);
  metrics.reportHeldBytes('unsent', () => unsent.bytes);
  metrics.reportHeldBytes('bodies', () => bodies.bytes);
  metrics.reportHeldBytes('running', () => running.bytes);
  return { events, unsent, bodies, running };
}
