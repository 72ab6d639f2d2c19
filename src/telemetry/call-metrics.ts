import { Histogram, type Registry } from 'prom-client';
import { knownCounter } from './metric-kinds.ts';

/**
 * `made`: sent to the upstream, as a call without a key. `replayed`: answered with the answer of the first call. `running`: refused while that
 * is under way. `lost`: its answer is not known. `full`: too many keys are remembered. `unavailable`: the shared state cannot be used.
 */
const KEYED_CALL_OUTCOMES = ['made', 'replayed', 'running', 'lost', 'full', 'unavailable'] as const;
export type KeyedCallOutcome = (typeof KEYED_CALL_OUTCOMES)[number];

/** `late`: no answer within the timeout. `failed`: no answer, or none with a decision. `ambiguous`, `overloaded`, `too-large`: it was not asked. */
const EXTERNAL_OUTCOMES = ['allowed', 'denied', 'ambiguous', 'late', 'failed', 'overloaded', 'too-large'] as const;
type ExternalOutcome = (typeof EXTERNAL_OUTCOMES)[number];
const EXTERNAL_SECONDS = [0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5];

export function createCallMetrics(registry: Registry) {
  const countExternal = knownCounter(registry, {
    name: 'linkspan_external_decisions_total',
    help: 'Questions to the decision point of the access policy, by outcome.',
    values: EXTERNAL_OUTCOMES,
  });
  const externalSeconds = new Histogram({
    name: 'linkspan_external_decision_duration_seconds',
    help: 'Time from a request to the end of the question about it.',
    buckets: EXTERNAL_SECONDS,
    registers: [registry],
  });
  return {
    /** Records the end of a question to a decision point. */
    recordExternalDecision: (outcome: ExternalOutcome, seconds: number) => {
      countExternal(outcome);
      externalSeconds.observe(seconds);
    },
    countKeyedCall: knownCounter(registry, {
      name: 'linkspan_keyed_calls_total',
      help: 'Calls with an idempotency key, by outcome.',
      values: KEYED_CALL_OUTCOMES,
    }),
  };
}
