/**
 * Waits of a bounded time. The work goes on after that, so it must bear that nobody waits for it: a later rejection is ignored.
 */

import { addAbortListener } from 'node:events';

/** The longest delay of a timer in Node. */
export const MAX_TIMER_MS = 2 ** 31 - 1;

/**
 * Resolves with the result of work, or with undefined after `limitMs`. Rejects if the work rejects in time. The wait alone keeps no process
 * alive.
 */
export async function resultWithin<Value>(work: Promise<Value>, limitMs: number): Promise<Value | undefined> {
  const late = Promise.withResolvers<undefined>();
  const timer = setTimeout(late.resolve, limitMs, undefined).unref();
  try {
    return await Promise.race([work, late.promise]);
  } finally {
    clearTimeout(timer);
  }
}

/** Resolves with whether a promise is fulfilled or rejected within this time. */
export async function settlesWithin(promise: Promise<unknown>, limitMs: number): Promise<boolean> {
  return (await resultWithin(Promise.allSettled([promise]), limitMs)) !== undefined;
}

/** Runs a function after `limitMs`, once this process has read what came meanwhile. A busy process runs timers before that. */
export function setDeadline(onLate: () => void, limitMs: number): NodeJS.Timeout {
  return setTimeout(() => setImmediate(onLate), limitMs);
}

/** Resolves with the result of work, or rejects with an error after `limitMs`. */
export async function resultOrLate<Value>(work: Promise<Value>, limitMs: number, late: () => Error): Promise<Value> {
  const failing = Promise.withResolvers<never>();
  const timer = setDeadline(() => failing.reject(late()), limitMs);
  try {
    return await Promise.race([work, failing.promise]);
  } finally {
    clearTimeout(timer);
  }
}

/** Resolves with the result of work, or rejects with an error as soon as the signal is aborted. */
export async function resultUnlessAborted<Value>(
  work: Promise<Value>,
  signal: AbortSignal,
  aborted: () => Error,
): Promise<Value> {
  const failing = Promise.withResolvers<never>();
  using _failing = addAbortListener(signal, () => failing.reject(aborted()));
  return await Promise.race([work, failing.promise]);
}
