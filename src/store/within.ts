import { resultOrLate } from '../deadline.ts';
import { GatewayError } from '../errors.ts';

/**
 * Waits for work at a store, for a bounded time. The work goes on after that, so it must bear that nobody waits for it.
 *
 * @param limitMs ms.
 * @throws {GatewayError} `store-unavailable` if it takes longer.
 */
export function within<Value>(work: Promise<Value>, limitMs: number): Promise<Value> {
  const late = () => new GatewayError('store-unavailable', {}, new Error(`no answer within ${limitMs} ms`));
  return resultOrLate(work, limitMs, late);
}
