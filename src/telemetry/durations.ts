import { setImmediate as turn } from 'node:timers/promises';
import { detach, KeptMap } from '../json/kept-text.ts';
import { Bounded, OTHER } from './bounded.ts';
import { METHODS } from './methods.ts';
import type { Operation } from './operation.ts';

/** From the OpenTelemetry conventions for MCP. */
const BUCKETS_SECONDS = [0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 30, 60, 120, 300] as const;

const MAX_TOOLS = 256;
export const MAX_UPSTREAMS = 256;
const MAX_REVISIONS = 8;
/** Time series of one histogram; each takes 17 lines in a scrape. Beyond it, new ones do not name their tool and upstream. */
const MAX_SERIES = 1_000;
/** Beyond it, new series name only their outcome and transport. */
const MAX_COARSE_SERIES = 1_250;
/** Series that are written in one turn of the event loop. */
const SERIES_PER_TURN = 100;

/**
 * One combination of labels with its observations. `counts[i]` counts bucket i alone; the last bucket has no upper
 * bound.
 */
interface Series {
  /** In the text format: `name="value",…`. */
  readonly labels: string;
  readonly counts: number[];
  sum: number;
}

function escaped(text: string): string {
  return /["\\\n]/.test(text) ? text.replaceAll('\\', '\\\\').replaceAll('\n', '\\n').replaceAll('"', '\\"') : text;
}

/** @see https://prometheus.io/docs/instrumenting/exposition_formats/ */
function labelsText(labels: Readonly<Record<string, string>>): string {
  return Object.entries(labels)
    .map(([name, value]) => `${name}="${escaped(value)}"`)
    .join(',');
}

/** Returns the lines of a series in the text format. */
function seriesText(name: string, { labels, counts, sum }: Series): string {
  let count = 0;
  let text = '';
  for (const [i, own] of counts.entries()) {
    count += own;
    text += `${name}_bucket{le="${BUCKETS_SECONDS[i] ?? '+Inf'}",${labels}} ${count}\n`;
  }
  return `${text}${name}_sum{${labels}} ${sum}\n${name}_count{${labels}} ${count}\n`;
}

/** The latest series of a tool or method, with the other values that select it. */
interface Recent {
  /** True if the text that finds this entry names a tool. A tool may have the name of a method, such as `ping`. */
  readonly isTool: boolean;
  readonly error: string | undefined;
  readonly revision: string;
  readonly transport: string;
  readonly upstream: string | undefined;
  readonly series: Series;
}

/**
 * Histogram of operation durations by method, tool, outcome, revision, transport and upstream. Finds its series without building a key from
 * the labels at each observation, and writes them in several turns of the event loop. The histogram of prom-client does neither.
 */
export class Durations {
  readonly #name: string;
  readonly #help: string;
  readonly #tools = new Bounded(MAX_TOOLS);
  readonly #revisions = new Bounded(MAX_REVISIONS);
  readonly #upstreams = new Bounded(MAX_UPSTREAMS);
  readonly #series = new Map<string, Series>();
  /** The latest series by tool, else by method. Requests mostly repeat, and end in the same way. */
  readonly #recent = new KeptMap<Recent>();

  constructor(name: string, help: string) {
    this.#name = name;
    this.#help = help;
  }

  /** Returns all series in Prometheus' text format. Other work runs between parts of it. */
  async text(): Promise<string> {
    const parts = [`# HELP ${this.#name} ${this.#help}\n# TYPE ${this.#name} histogram\n`];
    for (const series of this.#series.values()) {
      if (parts.length % SERIES_PER_TURN === 0) await turn();
      parts.push(seriesText(this.#name, series));
    }
    return parts.join('');
  }

  observe(operation: Operation, seconds: number, upstream?: string): void {
    const { error, revision, transport } = operation;
    // A tool name implies its method, because only calls have one.
    const subject = operation.tool ?? operation.method;
    const isTool = operation.tool !== undefined;
    let recent = this.#recent.get(subject);
    if (
      recent === undefined ||
      recent.isTool !== isTool ||
      recent.error !== error ||
      recent.revision !== revision ||
      recent.transport !== transport ||
      recent.upstream !== upstream
    ) {
      recent = { isTool, error, revision, transport, upstream, series: this.#find(operation, upstream) };
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
    const labels = {
      mcp_method_name: METHODS.has(operation.method) ? operation.method : OTHER,
      gen_ai_tool_name: operation.tool === undefined ? '' : this.#tools.label(operation.tool),
      error_type: error,
      mcp_protocol_version: this.#revisions.label(operation.revision),
      network_transport: transport,
      ...(upstream === undefined ? {} : { upstream: this.#upstreams.label(upstream) }),
    };
    const known = this.#series.get(labelsText(labels));
    if (known !== undefined) return known;
    const { size } = this.#series;
    if (size >= MAX_SERIES) {
      if (labels.gen_ai_tool_name !== '') labels.gen_ai_tool_name = OTHER;
      if (labels.upstream !== undefined) labels.upstream = OTHER;
    }
    if (size >= MAX_COARSE_SERIES) {
      labels.mcp_method_name = labels.mcp_protocol_version = OTHER;
      labels.gen_ai_tool_name = '';
    }
    const text = labelsText(labels);
    let series = this.#series.get(text);
    if (series === undefined) {
      series = { labels: text, counts: Array.from({ length: BUCKETS_SECONDS.length + 1 }, () => 0), sum: 0 };
      this.#series.set(text, series);
    }
    return series;
  }
}
