import { Histogram, type Registry } from 'prom-client';
import { detach, KeptMap } from '../json/memo.ts';
import { Bounded, OTHER } from './bounded.ts';
import { METHODS } from './methods.ts';
import type { Operation } from './operation.ts';

/** From the OpenTelemetry conventions for MCP. */
const BUCKETS_SECONDS = [0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 30, 60, 120, 300] as const;

const MAX_TOOLS = 256;
const MAX_UPSTREAMS = 256;
const MAX_REVISIONS = 8;
/** Series of one histogram; each costs 17 lines at every scrape. */
const MAX_SERIES = 2_000;

export const OPERATION_LABELS = [
  'mcp_method_name',
  'gen_ai_tool_name',
  'error_type',
  'mcp_protocol_version',
  'network_transport',
] as const;

type Labels = Readonly<Record<string, string>>;

/** One combination of labels and what was observed for it. `counts[i]` is bucket i alone, the last one what lies above all. */
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

/** A histogram as the registry asks for it, over series that are found without making a key of their labels each time. */
class Exported extends Histogram {
  readonly #name: string;
  readonly #help: string;
  readonly #series: () => Iterable<Series>;

  constructor(name: string, help: string, labels: readonly string[], series: () => Iterable<Series>) {
    super({ name, help, labelNames: labels, buckets: [...BUCKETS_SECONDS], registers: [] });
    this.#name = name;
    this.#help = help;
    this.#series = series;
  }

  // What the registry calls; not in the library's types.
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

/** The last series of a method and tool, and the rest of what chose it. */
interface Recent {
  readonly error: string | undefined;
  readonly revision: string;
  readonly transport: string;
  readonly upstream: string | undefined;
  readonly series: Series;
}

/** How long operations took, by what was done to whom and how it ended. */
export class Durations {
  readonly #tools = new Bounded(MAX_TOOLS);
  readonly #revisions = new Bounded(MAX_REVISIONS);
  readonly #upstreams = new Bounded(MAX_UPSTREAMS);
  readonly #series = new Map<string, Series>();
  /** By tool, else by method: the same is asked again and again, and ends the same way. */
  readonly #recent = new KeptMap<Recent>();

  constructor(name: string, help: string, labels: readonly string[], registry: Registry) {
    registry.registerMetric(new Exported(name, help, labels, () => this.#series.values()));
  }

  observe(operation: Operation, seconds: number, upstream?: string): void {
    const { error, revision, transport } = operation;
    // A tool's name stands for its method: only calls have one.
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
    // Labels are bounded before they make a key, so that what peers choose cannot fill the map.
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
