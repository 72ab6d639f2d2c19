import { Counter, type Registry } from 'prom-client';

/** Records the losses of the log. */
export interface LogMetrics {
  /** Registers the function that returns the number of lines that the log has lost; it is called at each scrape. */
  reportDroppedLines(read: () => number): void;
}

/** Creates the metrics of the log. */
export function createLogMetrics(registry: Registry): LogMetrics {
  let dropped = () => 0;
  const counter = new Counter({
    name: 'linkspan_log_dropped_lines_total',
    help: 'Lines of the log that are lost, because they were not read fast enough.',
    registers: [],
    collect() {
      this.reset();
      this.inc(dropped());
    },
  });
  registry.registerMetric(counter);
  return {
    reportDroppedLines: (read) => {
      dropped = read;
    },
  };
}
