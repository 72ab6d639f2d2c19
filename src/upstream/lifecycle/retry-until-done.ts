import { setTimeout as sleep } from 'node:timers/promises';
import { isFulfilled } from '../../thrown.ts';
import { backoffMs } from '../rpc/backoff.ts';

/** The longest pause between two attempts, unless `waitMs` asks for more. */
const LONGEST_MS = 5_000;

/** Returns the shortest pause before a retry, in milliseconds. @param retry its number; the first is 1. */
export function retryPauseMs(retry: number, random: number): number {
  return Math.min(LONGEST_MS, backoffMs(retry, random));
}

/**
 * Repeats an attempt until it succeeds or the signal is aborted, after longer and longer pauses.
 *
 * @param waitMs returns the shortest pause before a retry, in milliseconds, by its number; the first is 1.
 */
export async function retryUntilDone(
  attempt: () => Promise<void>,
  waitMs: (retry: number) => number,
  signal: AbortSignal,
): Promise<void> {
  for (let retry = 1; !signal.aborted; retry++) {
    const pauseMs = Math.max(retryPauseMs(retry, Math.random()), waitMs(retry));
    // An abort ends the sleep with an error, which is not needed.
    await sleep(pauseMs, undefined, { signal, ref: false }).catch(() => undefined);
    if (signal.aborted) return;
    if (await isFulfilled(attempt())) return;
  }
}
