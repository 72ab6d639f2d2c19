import { setTimeout as sleep } from 'node:timers/promises';

/** The shortest pause between two attempts. */
const PAUSE_MS = 250;

/**
 * Repeats an attempt until it succeeds or the signal is aborted.
 *
 * @param waitMs returns the pause before the next attempt, in milliseconds.
 */
export async function retryUntilDone(
  attempt: () => Promise<void>,
  waitMs: () => number,
  signal: AbortSignal,
): Promise<void> {
  while (!signal.aborted) {
    // An abort ends the sleep with an error, which is not needed.
    await sleep(Math.max(PAUSE_MS, waitMs()), undefined, { signal, ref: false }).catch(() => undefined);
    if (signal.aborted) return;
    const isDone = await attempt().then(
      () => true,
      () => false,
    );
    if (isDone) return;
  }
}
