import { resultWithin } from '../../deadline.ts';
import type { Wire, WireRequest } from '../../http1/wire.ts';

/** Sends a DELETE request and ignores its outcome. Resolves at the end of the response, on a failure, or after `limitMs`. */
export async function deleteSession(wire: Wire, request: WireRequest, limitMs: number): Promise<void> {
  const { promise, resolve } = Promise.withResolvers<void>();
  let isLate = false;
  let abort = (): void => undefined;
  wire.dispatch(request, {
    onRequestStart(controller) {
      if (isLate) throw new Error('too late');
      // With credentials of an issuer, it may be sent twice.
      abort = () => controller.abort(new Error('too late'));
    },
    // The status is not used. A server that ends sessions by itself answers 405.
    onResponseStart: () => undefined,
    onResponseData: () => undefined,
    onResponseEnd: () => resolve(),
    onResponseError: () => resolve(),
  });
  await resultWithin(promise, limitMs);
  isLate = true;
  abort();
}
