import type { Document } from '../document/document.ts';
import { type Problem, problemLine } from '../document/problem.ts';
import type { GatewaySettings } from '../schema/gateway-schema.ts';
import { sizeText } from '../schema/units.ts';

/** Half of a total is for one principal. */
const PRINCIPALS = 2;

/** The totals of bytes, with the limit of one message of which a principal should have room for one. */
const TOTALS = [
  { total: 'bodyTotal', one: 'body', effect: 'larger requests are refused' },
  { total: 'unsentTotal', one: 'message', effect: 'a client that reads a larger answer slowly loses its connection' },
] as const;

/** Returns warnings, one line each, about totals in which one principal has no room for the largest message. */
export function limitWarnings(document: Document, { limits, workers }: GatewaySettings): string[] {
  return TOTALS.flatMap(({ total, one, effect }) => {
    const [bytes, largest] = [limits[total], limits[one]];
    const least = PRINCIPALS * workers * largest;
    if (bytes === undefined || bytes >= least) return [];
    const part = sizeText(Math.floor(bytes / workers / PRINCIPALS));
    const message = `one principal may use ${part} of it, less than ${one}; ${effect}; set at least ${sizeText(least)}`;
    return [problemLine(document.problem(['gateway', 'limits', total], message))];
  });
}

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
