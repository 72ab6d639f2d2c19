import { countersOf, mergedMetrics } from '../../telemetry/merged-metrics.ts';
import type { Metrics } from '../../telemetry/metrics.ts';
import { WORKER } from './methods.ts';
import type { WorkerProcess } from './worker-process.ts';

type ScrapedWorker = Pick<WorkerProcess, 'call' | 'lastMetrics'>;

/** The metrics of a parent and its workers as those of one process, with the counts of workers that have ended. */
export class WorkerMetrics {
  readonly #own: Metrics;
  readonly #workers: () => readonly ScrapedWorker[];
  /** The counters of workers that have ended, as of their last scrapes. */
  #ended = '';

  constructor(own: Metrics, workers: () => readonly ScrapedWorker[]) {
    this.#own = own;
    this.#workers = workers;
  }

  async text(): Promise<string> {
    // A worker that ends meanwhile is among those that are asked.
    const ended = this.#ended;
    const asked = this.#workers().map(async (worker) => {
      try {
        worker.lastMetrics = await worker.call(WORKER.metrics, undefined);
      } catch {
        // A worker that does not answer keeps its last numbers, so that no counter falls.
      }
      return worker.lastMetrics;
    });
    const own = await this.#own.text();
    return mergedMetrics([...(await Promise.all(asked)), own, ended]);
  }

  /** Keeps the counters of a worker that has ended. */
  onEnded(text: string): void {
    this.#ended = mergedMetrics([this.#ended, countersOf(text)]);
  }
}
