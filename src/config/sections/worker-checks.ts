import type { Document } from '../document/document.ts';
import type { Problem } from '../document/problem.ts';
import type { GatewaySettings } from '../schema/gateway-schema.ts';
import { sizeText } from '../schema/units.ts';

/** The least `overload.memory` of one process. */
const LEAST_MEMORY_BYTES = 67_108_864;

/** Returns the problems with totals that are too small for several workers. */
export function workerProblems(document: Document, { workers, limits, overload }: GatewaySettings): Problem[] {
  if (workers === 1) return [];
  const problems: Problem[] = [];
  if (limits.processes > 0 && limits.processes < workers) {
    const message = `is shared by ${workers} workers, and some of them would get none; set at least ${workers}, or 0`;
    problems.push(document.problem(['gateway', 'limits', 'processes'], message));
  }
  const { memory } = overload;
  if (typeof memory === 'number' && memory < workers * LEAST_MEMORY_BYTES) {
    const message = `is shared by ${workers} workers, each of which needs ${sizeText(LEAST_MEMORY_BYTES)}; set at least ${sizeText(workers * LEAST_MEMORY_BYTES)}`;
    problems.push(document.problem(['gateway', 'overload', 'memory'], message));
  }
  return problems;
}
