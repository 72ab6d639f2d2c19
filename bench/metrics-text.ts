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

/** Returns the sum of a metric over all labels; 0 if there is none. */
export function total(samples: readonly Sample[], name: string): number {
  return samples.reduce((sum, sample) => (sample.name === name ? sum + sample.value : sum), 0);
}

/** Node measures with a timer of this interval, so that an idle loop has this value. */
const RESOLUTION_MS = 10;

/**
 * Returns the longest block of the event loop since the last reading of the metrics, with Node's precision: the true
 * value is at most 10 ms less.
 */
export function longestBlockMs(samples: readonly Sample[]): number {
  return Math.max(0, total(samples, 'nodejs_eventloop_lag_max_seconds') * 1_000 - RESOLUTION_MS);
}
