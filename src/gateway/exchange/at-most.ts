import { setTimeout as sleep } from 'node:timers/promises';

/**
 * Resolves when all promises have resolved, or after `limitMs`. The work of the promises continues after that. Rejects
 * if one of them rejects in time.
 */
export async function waitAtMost(waits: readonly Promise<unknown>[], limitMs: number): Promise<void> {
  const limit = new AbortController();
  await Promise.race([Promise.all(waits), sleep(limitMs, undefined, { signal: limit.signal, ref: false })]);
  limit.abort();
}
