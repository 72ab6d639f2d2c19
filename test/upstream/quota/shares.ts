import type { SharedPool, Shares } from '../../../src/upstream/quota/fair-pool.ts';

/** Shares of several principals. Records the refusals of principals above their share. */
export interface TestShares extends Shares {
  readonly refused: SharedPool[];
}

/** Returns shares with these weights; the weight of other principals is 1. */
export function sharesOf(weights: Readonly<Record<string, number>> = {}): TestShares {
  const refused: SharedPool[] = [];
  return {
    isOn: true,
    weightOf: (principal) => weights[principal] ?? 1,
    onRefused: (pool) => refused.push(pool),
    refused,
  };
}
