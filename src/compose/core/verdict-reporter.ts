import type { Logger } from 'pino';
import type { DecisionPointDeps } from '../../auth/decision-point.ts';
import type { VerdictObserver } from '../../gateway/exchange/gate.ts';
import { isDenial } from '../../policy/external-question.ts';
import type { Metrics } from '../../telemetry/metrics.ts';
import type { FailureObserver } from '../../policy/rights.ts';
import { RepeatedEvents } from '../../telemetry/repeated-events.ts';

/** Returns the observer that counts and logs failed conditions. */
export function failureReporter(metrics: Metrics, log: Logger): FailureObserver {
  const failures = new RepeatedEvents();
  return (failed) => {
    for (const { name, place } of failed) {
      metrics.countRuleFailure(name);
      // The reason is not logged: it may quote arguments.
      const before = failures.dueAfter(name, 'failed', performance.now());
      if (before === undefined) continue;
      log.warn({ rule: name, place: `${place.file}:${place.line}`, before }, 'the condition of an access rule failed');
    }
  };
}

/** Returns the function that counts the answers of a decision point, and logs failures. */
export function decisionReporter(metrics: Metrics, log: Logger): DecisionPointDeps['onAnswer'] {
  const failures = new RepeatedEvents();
  return ({ outcome, why }, ms) => {
    metrics.recordExternalDecision(outcome, ms / 1_000);
    if (outcome === 'allowed' || isDenial(outcome)) return;
    const before = failures.dueAfter(outcome, why, performance.now());
    if (before !== undefined)
      log.warn({ outcome, why, before }, 'no external decision about a request, which is refused');
  };
}

/** Returns the observer that counts and logs denied requests and failed conditions. */
export function verdictReporter(metrics: Metrics, log: Logger, onFailed: FailureObserver): VerdictObserver {
  return ({ principal, endpoint, method, item, effect, rule, why, failed }) => {
    onFailed(failed);
    if (effect === 'allow') return;
    metrics.countDenial(item.upstream);
    log.debug(
      { principal: principal.label, endpoint, method, upstream: item.upstream, rule: rule?.name, why },
      'denied by the access policy',
    );
  };
}
