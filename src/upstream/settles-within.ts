import { setTimeout as sleep } from 'node:timers/promises';

/** Resolves with whether a promise is fulfilled or rejected within this time. */
export async function settlesWithin(promise: Promise<unknown>, limitMs: number): Promise<boolean> {
  const limit = new AbortController();
  const settled = promise.then(
    () => true,
    () => true,
  );
  const late = sleep(limitMs, false, { signal: limit.signal, ref: false }).catch(() => false);
  const isSettled = await Promise.race([settled, late]);
  limit.abort();
  return isSettled;
}
