import { setTimeout as sleep } from 'node:timers/promises';
import { upstreamError } from '../../errors.ts';
import { decideOpening, type Lifecycle } from './lifecycle.ts';

/** Waits for the end of a short pause after failures. @throws {GatewayError} `upstream-unavailable` during a long pause, and when the signal aborts. */
export async function awaitOpening(upstream: string, lifecycle: () => Lifecycle, signal: AbortSignal): Promise<void> {
  for (;;) {
    const decision = decideOpening(lifecycle(), performance.now());
    if (decision.kind === 'go') return;
    if (decision.kind === 'refuse') {
      // Until an operator has corrected the credentials, a client would try again in vain.
      const isFinal = decision.retryAfterMs === undefined || lifecycle().phase === 'needs-authorization';
      const detail = isFinal ? { retryable: false } : { data: { retryAfterMs: decision.retryAfterMs } };
      throw upstreamError('upstream-unavailable', upstream, `is not available: ${decision.reason}`, detail);
    }
    await sleep(decision.ms, undefined, { signal }).catch(() => undefined);
    if (signal.aborted) throw upstreamError('upstream-unavailable', upstream, 'was stopped');
  }
}
