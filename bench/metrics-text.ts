/** One value of Prometheus' text format. */
export interface Sample {
  readonly name: string;
  readonly labels: string;
  readonly value: number;
}

const LINE = /^([A-Za-z_:][\w:]*)(?:\{(.*)\})? (\S+)/;

/** Reads Prometheus' text format. Comments and lines that are no samples are left out. */
export function parseSamples(text: string): readonly Sample[] {
  return text.split('\n').flatMap((line) => {
    const [, name, labels = '', value] = LINE.exec(line) ?? [];
    return name === undefined ? [] : [{ name, labels, value: Number(value) }];
  });
}

/** Returns the sum over all labels of a metric; 0 where there is none. */
export function total(samples: readonly Sample[], name: string): number {
  return samples.reduce((sum, sample) => (sample.name === name ? sum + sample.value : sum), 0);
}

/** Node measures with a timer of this interval, so that an idle loop reads as this much. */
const RESOLUTION_MS = 10;

/**
 * Returns how long the event loop was blocked at a stretch since the metrics were read before: at least this long, and at
 * most 10 ms longer, which is how finely Node measures.
 */
export function longestBlockMs(samples: readonly Sample[]): number {
  return Math.max(0, total(samples, 'nodejs_eventloop_lag_max_seconds') * 1_000 - RESOLUTION_MS);
}
