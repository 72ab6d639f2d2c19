import type { Logger } from 'pino';
import { type ListProblem, problemKey } from '../../catalog/problems.ts';
import { LIMITS } from '../../limits.ts';
import { type Era, ERAS } from '../../protocol/revisions.ts';
import type { Metrics } from '../../telemetry/metrics.ts';

/** Problems of one upstream's lists that are logged individually, each time they change. */
const MAX_LOGGED = 50;

/** Logs and counts the problems in the lists of upstreams, each once. */
export class ProblemReports {
  readonly #log: Logger;
  readonly #metrics: Metrics;
  /** The problems that were logged, by upstream and era. */
  readonly #reported = new Map<string, ReadonlySet<string>>();

  constructor(log: Logger, metrics: Metrics) {
    this.#log = log;
    this.#metrics = metrics;
  }

  /** Reports the problems that this era's lists of an upstream did not have at the last report. */
  report(upstream: string, era: Era, found: readonly ListProblem[]): void {
    // `PinnedOffers` reports those.
    const problems = found.filter(({ repair }) => repair !== 'item withheld');
    const key = `${upstream} ${era}`;
    const before = this.#reported.get(key);
    const fresh = problems.filter((problem) => before?.has(problemKey(problem)) !== true);
    this.#reported.set(key, new Set(problems.map(problemKey)));
    if (found.length >= LIMITS.listProblems) this.#metrics.countLimit('listProblems');
    for (const { kind, name, repair, detail } of fresh.slice(0, MAX_LOGGED)) {
      if (repair === 'lists refused') {
        this.#log.warn({ upstream, era, why: detail }, 'lists of an upstream are refused');
        continue;
      }
      const isLeftOut = repair === 'item left out';
      const fields = isLeftOut ? { why: detail } : { repair, detail };
      const text = isLeftOut ? 'left out of the lists' : 'list item repaired';
      this.#log.warn({ upstream, era, kind, name, ...fields }, text);
    }
    for (const { repair, limit } of fresh) {
      this.#metrics.countRepair(repair);
      if (limit !== undefined) this.#metrics.countLimit(limit);
    }
    if (fresh.length > MAX_LOGGED)
      this.#log.warn({ upstream, era, more: fresh.length - MAX_LOGGED }, 'further list items repaired or left out');
  }

  /** Removes an upstream: all problems of a later one with its id are new. */
  remove(upstream: string): void {
    for (const era of ERAS) this.#reported.delete(`${upstream} ${era}`);
  }
}
