import { Counter, Gauge, type Registry } from 'prom-client';

interface KnownCounterOptions<Value extends string> {
  readonly name: string;
  readonly help: string;
  /** Default: `outcome`. */
  readonly label?: string;
  /** All values of the label. */
  readonly values: readonly Value[];
}

/**
 * Creates a counter with one label whose values are known. Each of them begins at 0, so that `increase()` sees its first event. Returns the function that
 * counts one or more events.
 */
export function knownCounter<Value extends string>(
  registry: Registry,
  { name, help, label = 'outcome', values }: KnownCounterOptions<Value>,
): (value: Value, count?: number) => void {
  const counter = new Counter({ name, help, labelNames: [label], registers: [registry] });
  for (const value of values) counter.inc({ [label]: value }, 0);
  return (value, count = 1) => counter.inc({ [label]: value }, count);
}

/** Creates a gauge without labels that is read at each scrape. */
export function readGauge(registry: Registry, name: string, help: string, read: () => number): Gauge {
  return new Gauge({
    name,
    help,
    registers: [registry],
    collect() {
      this.set(read());
    },
  });
}
