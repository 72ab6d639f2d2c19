import { setTimeout as sleep } from 'node:timers/promises';
import { GatewayError } from '../../errors.ts';
import { decideOpening, type Lifecycle } from './lifecycle.ts';

/** Waits for the end of a short pause after failures. @throws {GatewayError} `upstream-unavailable` during a long pause, and when the signal aborts. */
export async function awaitOpening(upstream: string, lifecycle: () => Lifecycle, signal: AbortSignal): Promise<void> {
  for (;;) {
    const decision = decideOpening(lifecycle(), performance.now());
    if (decision.kind === 'go') return;
    if (decision.kind === 'refuse') {
      throw new GatewayError('upstream-unavailable', {
        upstream,
        message: `upstream "${upstream}" is not available: ${decision.reason}`,
        ...(decision.retryAfterMs === undefined
          ? { retryable: false }
          : { data: { retryAfterMs: decision.retryAfterMs } }),
      });
    }
    await sleep(decision.ms, undefined, { signal }).catch(() => undefined);
    if (signal.aborted) {
      throw new GatewayError('upstream-unavailable', { upstream, message: `upstream "${upstream}" was stopped` });
    }
  }
}
