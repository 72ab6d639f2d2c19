import { setTimeout as sleep } from 'node:timers/promises';

/** The shortest pause between two tries. */
const PAUSE_MS = 250;

/**
 * Tries until it succeeds or the signal is aborted, and resolves then.
 *
 * @param waitMs how long not to try, asked before each try.
 */
export async function retryUntilDone(
  attempt: () => Promise<void>,
  waitMs: () => number,
  signal: AbortSignal,
): Promise<void> {
  while (!signal.aborted) {
    // Woken by the abort, whose reason is not of interest.
    await sleep(Math.max(PAUSE_MS, waitMs()), undefined, { signal, ref: false }).catch(() => undefined);
    if (signal.aborted) return;
    const isDone = await attempt().then(
      () => true,
      () => false,
    );
    if (isDone) return;
  }
}
