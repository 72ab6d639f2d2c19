import type { Registry } from 'prom-client';
import { knownCounter } from './metric-kinds.ts';

/**
 * `made`: sent to the upstream, as a call without a key. `replayed`: answered with the answer of the first call. `running`: refused while that
 * is under way. `lost`: its answer is not known. `full`: too many keys are remembered. `unavailable`: the shared state cannot be used.
 */
const KEYED_CALL_OUTCOMES = ['made', 'replayed', 'running', 'lost', 'full', 'unavailable'] as const;
export type KeyedCallOutcome = (typeof KEYED_CALL_OUTCOMES)[number];

/** Records calls with idempotency keys. */
export interface CallMetrics {
  countKeyedCall(outcome: KeyedCallOutcome): void;
}

/** Creates the metrics of calls. */
export function createCallMetrics(registry: Registry): CallMetrics {
  return {
    countKeyedCall: knownCounter(registry, {
      name: 'linkspan_keyed_calls_total',
      help: 'Calls with an idempotency key, by outcome.',
      label: 'outcome',
      values: KEYED_CALL_OUTCOMES,
    }),
  };
}
