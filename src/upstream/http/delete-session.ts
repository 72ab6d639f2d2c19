import type { Wire, WireRequest } from '../../http1/wire.ts';

/** Sends a request nobody reads the answer to. Resolves when there was one, when it failed, or when the time is over. */
export async function deleteSession(wire: Wire, request: WireRequest, limitMs: number): Promise<void> {
  const { promise, resolve } = Promise.withResolvers<void>();
  const timer = setTimeout(resolve, limitMs);
  let isOver = false;
  let end = (): void => {
    isOver = true;
  };
  wire.dispatch(request, {
    onRequestStart(controller) {
      if (isOver) throw new Error('too late');
      end = () => controller.abort(new Error('too late'));
    },
    // The status decides nothing: 405 is an upstream that ends sessions by itself.
    onResponseStart: () => undefined,
    onResponseData: () => undefined,
    onResponseEnd: () => resolve(),
    onResponseError: () => resolve(),
  });
  await promise;
  clearTimeout(timer);
  end();
}
