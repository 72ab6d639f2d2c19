import type { Round } from './job.ts';
import { type Scenario, type Target, TARGETS } from './scenarios.ts';
import { BEFORE } from './subjects.ts';

/** One subject in one scenario. A subject that failed has no rounds: the cost of wrong answers is meaningless. */
export interface Row {
  readonly subject: string;
  readonly title: string;
  readonly rounds: readonly Round[];
  readonly failure?: string;
}

export interface ScenarioResult {
  readonly scenario: Scenario;
  readonly rows: readonly Row[];
}

interface Median extends Round {
  readonly subject: string;
}

interface TargetResult extends Target {
  /** Undefined if one of the two was not measured. */
  readonly ratio: number | undefined;
  readonly isMet: boolean | undefined;
}

export function median(values: readonly number[]): number {
  const sorted = values.toSorted((a, b) => a - b);
  const upper = sorted[Math.floor(sorted.length / 2)] ?? Number.NaN;
  const lower = sorted[Math.ceil(sorted.length / 2) - 1] ?? Number.NaN;
  return (lower + upper) / 2;
}

/** Returns the median of each figure over the rounds; of the peak of memory, the last value. */
export function medianOf({ subject, rounds }: Row): Median | undefined {
  const last = rounds.at(-1);
  if (last === undefined) return undefined;
  const of = (pick: (round: Round) => number) => median(rounds.map(pick));
  return {
    subject,
    requests: of((round) => round.requests),
    perSecond: of((round) => round.perSecond),
    cpuUs: of((round) => round.cpuUs),
    p50Us: of((round) => round.p50Us),
    p99Us: of((round) => round.p99Us),
    rssMb: of((round) => round.rssMb),
    pssMb: of((round) => round.pssMb),
    refusals: of((round) => round.refusals),
    peakMb: last.peakMb,
    answersAs: last.answersAs,
  };
}

/** Returns the CPU per request of `subject` as a multiple of that of `of`: the median of the ratios in each round. */
export function ratio(result: ScenarioResult, subject: string, of: string): number | undefined {
  const rounds = (id: string) => result.rows.find((row) => row.subject === id)?.rounds ?? [];
  const base = rounds(of);
  const ratios = rounds(subject).flatMap((round, i) => {
    const beside = base[i];
    return beside === undefined ? [] : [round.cpuUs / beside.cpuUs];
  });
  return ratios.length === 0 ? undefined : median(ratios);
}

/** Returns the targets of the scenarios that were run. */
export function targetResults(results: readonly ScenarioResult[]): TargetResult[] {
  return TARGETS.flatMap((target) => {
    const result = results.find(({ scenario }) => scenario.id === target.scenario);
    if (result === undefined) return [];
    // The other gateway is a subject only with `--against`.
    if (target.of === BEFORE && result.rows.every(({ subject }) => subject !== BEFORE)) return [];
    const measured = ratio(result, target.subject, target.of);
    return [{ ...target, ratio: measured, isMet: measured === undefined ? undefined : measured <= target.atMost }];
  });
}
