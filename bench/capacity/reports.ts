import type { Figures } from '../sheet.ts';
import type { CallerReport } from './caller-job.ts';

export function sumOf(counts: Readonly<Record<string, number>>): number {
  return Object.values(counts).reduce((sum, count) => sum + count, 0);
}

/** Returns counts as figures, each named by its kind. */
export function named(prefix: string, counts: Readonly<Record<string, number>>): Figures {
  return Object.fromEntries(Object.entries(counts).map(([kind, count]) => [`${prefix}: ${kind}`, count]));
}

/** Returns the figures of clients that called. */
export function callFigures(report: CallerReport): Figures {
  const { due, answered, answeredPerSecond, p50Ms, p95Ms, p99Ms, maxMs, refused, lost, unsent, unanswered } = report;
  return {
    'calls due': due,
    answered,
    'answered/s': answeredPerSecond,
    'p50 ms': p50Ms,
    'p95 ms': p95Ms,
    'p99 ms': p99Ms,
    'max ms': maxMs,
    refused: sumOf(refused),
    ...named('refused', refused),
    'connections lost': sumOf(lost),
    ...named('lost', lost),
    'not sent in 1 s': unsent,
    'not answered in 30 s': unanswered,
  };
}

/** Returns by how much calls through the gateway take longer than direct ones, at each percentile. */
export function addedFigures(report: CallerReport, direct: CallerReport): Figures {
  return {
    'direct p50 ms': direct.p50Ms,
    'direct p95 ms': direct.p95Ms,
    'direct p99 ms': direct.p99Ms,
    'added p50 ms': report.p50Ms - direct.p50Ms,
    'added p95 ms': report.p95Ms - direct.p95Ms,
    'added p99 ms': report.p99Ms - direct.p99Ms,
  };
}
