import { GatewayError } from '../errors.ts';

/**
 * Waits for work at a store, for a bounded time. The work goes on after that, so it must bear that nobody waits for it.
 *
 * @param limitMs ms.
 * @throws {GatewayError} `store-unavailable` if it takes longer.
 */
export async function within<Value>(work: Promise<Value>, limitMs: number): Promise<Value> {
  const late = Promise.withResolvers<never>();
  const fail = () =>
    late.reject(new GatewayError('store-unavailable', {}, new Error(`no answer within ${limitMs} ms`)));
  // If this process was busy, the answer may have come, and is read first.
  const timer = setTimeout(() => setImmediate(fail), limitMs);
  try {
    return await Promise.race([work, late.promise]);
  } finally {
    clearTimeout(timer);
  }
}
