import { setTimeout as sleep } from 'node:timers/promises';
import { GatewayError } from '../errors.ts';
import { admit, type Lifecycle } from './lifecycle.ts';

/** Waits for the end of a short pause after failures. @throws {GatewayError} `upstream-unavailable` during a long pause. */
export async function awaitAdmission(upstream: string, lifecycle: () => Lifecycle, signal: AbortSignal): Promise<void> {
  for (;;) {
    const admission = admit(lifecycle(), performance.now());
    if (admission.kind === 'go') return;
    if (admission.kind === 'refuse') {
      throw new GatewayError('upstream-unavailable', {
        upstream,
        message: `upstream "${upstream}" is not available: ${admission.reason}`,
        ...(admission.retryAfterMs === undefined
          ? { retryable: false }
          : { data: { retryAfterMs: admission.retryAfterMs } }),
      });
    }
    await sleep(admission.ms, undefined, { signal });
  }
}
