import type { Round } from './job.ts';
import { BEFORE } from './options.ts';
import { type Scenario, type Target, TARGETS } from './scenarios.ts';

/** One subject in one scenario. A subject that failed has no rounds: the cost of wrong answers is meaningless. */
export interface Row {
  readonly subject: string;
  readonly title: string;
  readonly rounds: readonly Round[];
  readonly failure?: string;
  /** True if it is a gateway of `--against`. */
  readonly isOtherCheckout?: boolean;
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
    stolenMs: of((round) => round.stolenMs),
    peakMb: last.peakMb,
    answersAs: last.answersAs,
  };
}

/** Returns the CPU per request of `subject` as a multiple of that of `of`, in each round in which both took part. */
export function ratios(result: ScenarioResult, subject: string, of: string): readonly number[] {
  const rounds = (id: string) => result.rows.find((row) => row.subject === id)?.rounds ?? [];
  const base = rounds(of);
  return rounds(subject).flatMap((round, i) => {
    const beside = base[i];
    return beside === undefined ? [] : [round.cpuUs / beside.cpuUs];
  });
}

/** CPU per request of `subject` as a multiple of that of `of`: the median of {@link ratios}. */
export function ratio(result: ScenarioResult, subject: string, of: string): number | undefined {
  const all = ratios(result, subject, of);
  return all.length === 0 ? undefined : median(all);
}

const CONFIDENCE = 0.95;

/**
 * Returns an interval that holds the median of a distribution with a probability of at least 95 %, given samples of it; undefined
 * for fewer than six samples. Assumes nothing about the distribution: the samples below the median are coin tosses.
 */
export function medianInterval(samples: readonly number[]): readonly [low: number, high: number] | undefined {
  const sorted = samples.toSorted((a, b) => a - b);
  const { length } = sorted;
  // Probability that exactly `below` samples are below the median.
  let probability = 0.5 ** length;
  let outside = 0;
  let below = 0;
  while (2 * (outside + probability) <= 1 - CONFIDENCE) {
    outside += probability;
    below++;
    probability *= (length - below + 1) / below;
  }
  const [low, high] = [sorted[below - 1], sorted[length - below]];
  return low === undefined || high === undefined ? undefined : [low, high];
}

/** Subjects that take part only when the command line asks for them. Without them their targets mean nothing. */
const OPTIONAL: ReadonlySet<string> = new Set([
  BEFORE,
  'gateway-redis',
  'gateway-forwarded',
  'gateway-jwt',
  'gateway-guarded',
]);

/** Returns the targets of the scenarios that were run. */
export function targetResults(results: readonly ScenarioResult[]): TargetResult[] {
  return TARGETS.flatMap((target) => {
    const result = results.find(({ scenario }) => scenario.id === target.scenario);
    if (result === undefined) return [];
    const isLeftOut = (id: string) => OPTIONAL.has(id) && result.rows.every(({ subject }) => subject !== id);
    if (isLeftOut(target.of) || isLeftOut(target.subject)) return [];
    const measured = ratio(result, target.subject, target.of);
    return [{ ...target, ratio: measured, isMet: measured === undefined ? undefined : measured <= target.atMost }];
  });
}
