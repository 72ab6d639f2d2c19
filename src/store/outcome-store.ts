import type { LimitName } from '../limits.ts';

/**
 * Stores the ends of parked calls. So a retry gets the same end at every process, also after the one that made the call has died. The first
 * end of a call wins.
 */
export interface OutcomeStore {
  /**
   * Stores the end of a call, unless one is stored. Resolves with false if it is not: another end is, or it is larger than the limit
   * `outcomeBytes`. If all ends take too much, the one that expires first is removed.
   */
  settle(id: string, outcome: string, ttlMs: number): Promise<boolean>;
  /** Returns the end of a call; undefined if it is not stored. */
  find(id: string): Promise<string | undefined>;
}

/** Called with the name of a limit that refuses or removes an end. */
export type OnOutcomeLimit = (limit: Extract<LimitName, 'outcomeBytes' | 'outcomesBytes'>) => void;
