import { Histogram, type Registry } from 'prom-client';
import { detach, KeptMap } from '../json/kept-text.ts';
import { Bounded, OTHER } from './bounded.ts';
import { METHODS } from './methods.ts';
import type { Operation } from './operation.ts';

/** From the OpenTelemetry conventions for MCP. */
const BUCKETS_SECONDS = [0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 30, 60, 120, 300] as const;

const MAX_TOOLS = 256;
const MAX_UPSTREAMS = 256;
const MAX_REVISIONS = 8;
/** Time series of one histogram; each takes 17 lines in a scrape. */
const MAX_SERIES = 2_000;

export const OPERATION_LABELS = [
  'mcp_method_name',
  'gen_ai_tool_name',
  'error_type',
  'mcp_protocol_version',
  'network_transport',
] as const;

type Labels = Readonly<Record<string, string>>;

/**
 * One combination of labels with its observations. `counts[i]` counts bucket i alone; the last bucket has no upper
 * bound.
 */
interface Series {
  readonly labels: Labels;
  readonly counts: number[];
  sum: number;
}

interface Value {
  readonly labels: Labels;
  readonly value: number;
  readonly metricName: string;
}

/**
 * Exports the series to the registry. `Durations` finds its series without building a key from the labels at each
 * observation, which prom-client's own histogram would do.
 */
class ExportedHistogram extends Histogram {
  readonly #name: string;
  readonly #help: string;
  readonly #series: () => Iterable<Series>;

  constructor(name: string, help: string, labels: readonly string[], series: () => Iterable<Series>) {
    super({ name, help, labelNames: labels, buckets: [...BUCKETS_SECONDS], registers: [] });
    this.#name = name;
    this.#help = help;
    this.#series = series;
  }

  // The registry calls this method; the library's types do not declare it.
  getForPromString() {
    const values = [...this.#series()].flatMap((series) => valuesOf(this.#name, series));
    return Promise.resolve({ name: this.#name, help: this.#help, type: 'histogram', values, aggregator: 'sum' });
  }
}

function valuesOf(name: string, { labels, counts, sum }: Series): Value[] {
  let count = 0;
  const values: Value[] = counts.map((own, i) => {
    count += own;
    const le = i < BUCKETS_SECONDS.length ? String(BUCKETS_SECONDS[i]) : '+Inf';
    return { labels: { le, ...labels }, value: count, metricName: `${name}_bucket` };
  });
  values.push({ labels, value: sum, metricName: `${name}_sum` });
  values.push({ labels, value: count, metricName: `${name}_count` });
  return values;
}

/** The latest series of a tool or method, with the other values that select it. */
interface Recent {
  readonly error: string | undefined;
  readonly revision: string;
  readonly transport: string;
  readonly upstream: string | undefined;
  readonly series: Series;
}

/** Histogram of operation durations by method, tool, outcome, revision, transport and upstream. */
export class Durations {
  readonly #tools = new Bounded(MAX_TOOLS);
  readonly #revisions = new Bounded(MAX_REVISIONS);
  readonly #upstreams = new Bounded(MAX_UPSTREAMS);
  readonly #series = new Map<string, Series>();
  /** The latest series by tool, else by method. Requests mostly repeat, and end in the same way. */
  readonly #recent = new KeptMap<Recent>();

  constructor(name: string, help: string, labels: readonly string[], registry: Registry) {
    registry.registerMetric(new ExportedHistogram(name, help, labels, () => this.#series.values()));
  }

  observe(operation: Operation, seconds: number, upstream?: string): void {
    const { error, revision, transport } = operation;
    // A tool name implies its method, because only calls have one.
    const subject = operation.tool ?? operation.method;
    let recent = this.#recent.get(subject);
    if (
      recent === undefined ||
      recent.error !== error ||
      recent.revision !== revision ||
      recent.transport !== transport ||
      recent.upstream !== upstream
    ) {
      recent = { error, revision, transport, upstream, series: this.#find(operation, upstream) };
      if (METHODS.has(operation.method) && this.#recent.size < MAX_SERIES) this.#recent.set(detach(subject), recent);
    }
    const { series } = recent;
    let bucket = 0;
    while (bucket < BUCKETS_SECONDS.length && seconds > (BUCKETS_SECONDS[bucket] ?? 0)) bucket++;
    series.counts[bucket] = (series.counts[bucket] ?? 0) + 1;
    series.sum += seconds;
  }

  #find(operation: Operation, upstream: string | undefined): Series {
    // Labels are bounded before they become a key, so that peers cannot fill the map.
    const { error = '', transport } = operation;
    const method = METHODS.has(operation.method) ? operation.method : OTHER;
    const bounded = operation.tool === undefined ? '' : this.#tools.label(operation.tool);
    const tool = bounded !== '' && this.#series.size >= MAX_SERIES ? OTHER : bounded;
    const revision = this.#revisions.label(operation.revision);
    const peer = upstream === undefined ? '' : this.#upstreams.label(upstream);
    const key = `${method} ${tool} ${error} ${revision} ${transport} ${peer}`;
    let series = this.#series.get(key);
    if (series === undefined) {
      const labels = {
        mcp_method_name: method,
        gen_ai_tool_name: tool,
        error_type: error,
        mcp_protocol_version: revision,
        network_transport: transport,
        ...(upstream === undefined ? {} : { upstream: peer }),
      };
      series = { labels, counts: Array.from({ length: BUCKETS_SECONDS.length + 1 }, () => 0), sum: 0 };
      this.#series.set(key, series);
    }
    return series;
  }
}
