import type { Attempt, Trial } from './history.ts';

/** Counts over any number of trials. */
export interface Figures {
  seeds: number;
  calls: number;
  attempts: number;
  runs: number;
  resumptions: number;
  readonly ends: Record<string, number>;
  readonly faults: Record<string, number>;
  readonly violations: Record<string, number>;
  longestRecoveryMs: number;
  longestCallMs: number;
  longestChildMs: number;
}

export function noFigures(): Figures {
  return {
    seeds: 0,
    calls: 0,
    attempts: 0,
    runs: 0,
    resumptions: 0,
    ends: {},
    faults: {},
    violations: {},
    longestRecoveryMs: 0,
    longestCallMs: 0,
    longestChildMs: 0,
  };
}

function count(counts: Record<string, number>, name: string): void {
  counts[name] = (counts[name] ?? 0) + 1;
}

/** Returns the kind of the end of an attempt. */
function endName({ ends: [end] }: Attempt): string {
  return end?.kind === 'error' ? `executed ${end.claim ?? 'unsaid'}` : (end?.kind ?? 'none');
}

/** Adds the counts of one trial. */
export function addFigures(figures: Figures, trial: Trial, violations: readonly { readonly rule: string }[]): void {
  const attempts = trial.histories.flatMap((history) => history.attempts);
  figures.seeds++;
  figures.calls += new Set(attempts.map(({ call }) => call.id)).size;
  figures.attempts += attempts.length;
  figures.runs += trial.ledger.length;
  for (const attempt of attempts) {
    const [end] = attempt.ends;
    count(figures.ends, endName(attempt));
    figures.resumptions += attempt.resumed;
    figures.longestCallMs = Math.max(figures.longestCallMs, (end?.atMs ?? 0) - attempt.sentMs);
  }
  figures.longestChildMs = Math.max(figures.longestChildMs, trial.longestChildMs);
  for (const { kind } of trial.plan.faults) count(figures.faults, kind);
  for (const { rule } of violations) count(figures.violations, rule);
  for (const { tookMs = 0 } of trial.recoveries)
    figures.longestRecoveryMs = Math.max(figures.longestRecoveryMs, tookMs);
}

function counts(of: Readonly<Record<string, number>>): string {
  const each = Object.entries(of).toSorted(([one], [two]) => one.localeCompare(two));
  return each.map(([name, number]) => `${name} ${number}`).join(', ') || 'none';
}

/** Returns the counts as lines. */
export function figuresText(figures: Figures): string {
  return [
    `${figures.seeds} seeds, ${figures.calls} calls in ${figures.attempts} attempts, ${figures.runs} executions, ${figures.resumptions} resumptions`,
    `ends: ${counts(figures.ends)}`,
    `faults: ${counts(figures.faults)}`,
    `longest call ${figures.longestCallMs} ms, longest recovery ${figures.longestRecoveryMs} ms, children gone ${figures.longestChildMs} ms after their replica`,
    `violations: ${counts(figures.violations)}`,
  ].join('\n');
}
