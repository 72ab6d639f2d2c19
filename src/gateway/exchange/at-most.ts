import { setTimeout as sleep } from 'node:timers/promises';

/** Waits for what is under way, but no longer than this; it goes on by itself. */
export async function atMost(waits: readonly Promise<unknown>[], limitMs: number): Promise<void> {
  const limit = new AbortController();
  await Promise.race([Promise.all(waits), sleep(limitMs, undefined, { signal: limit.signal, ref: false })]);
  limit.abort();
}
