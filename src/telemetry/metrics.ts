import { setImmediate as turn } from 'node:timers/promises';
import { collectDefaultMetrics, Counter, Gauge, Registry } from 'prom-client';

import type { LimitName } from '../limits.ts';
import { type Era, ERAS } from '../protocol/revisions.ts';
import { knownCounter, readGauge } from './metric-kinds.ts';
import { createCallMetrics } from './call-metrics.ts';
import { Bounded } from './bounded.ts';
import { Durations } from './durations.ts';
import type { Operation } from './operation.ts';
import { createKeyMetrics } from './key-metrics.ts';
import { createReloadMetrics } from './reload-metrics.ts';
import { createReplicaMetrics } from './replica-metrics.ts';
import { createUpstreamMetrics } from './upstream-metrics.ts';

export const METRICS_TYPE: string = Registry.PROMETHEUS_CONTENT_TYPE;

/** A gauge that goes up and down by one. */
export interface Level {
  add(): void;
  remove(): void;
}

/** Records metrics. `docs/metrics.md` lists every metric and the values of its labels. */
export type Metrics = ReturnType<typeof createMetrics>;

/**
 * `post`: the response to one request. `get`: the GET stream of a session. `sse`: the stream of a 2024-11-05 client.
 */
const STREAM_KINDS = ['post', 'get', 'sse'] as const;
export type StreamKind = (typeof STREAM_KINDS)[number];

/**
 * `continued`: the events after the named one are sent. `complete`: the client has received all of the stream.
 * `answer-lost`: the answer to a request is no longer kept. `unknown`: the client gets a new stream.
 */
const RESUME_OUTCOMES = ['continued', 'recovered', 'complete', 'answer-lost', 'unknown'] as const;

/** `exported`: accepted by the receiver. `failed`: could not be exported. `dropped`: the queue was full. */
const SPAN_OUTCOMES = ['exported', 'failed', 'dropped'] as const;

/** `written`: in the file. `dropped`: the queue was full. `failed`: an attempt to write that failed; its records are written later. */
const AUDIT_OUTCOMES = ['written', 'dropped', 'failed'] as const;

/** Gauges that are read at each scrape: name, help, and the value before somebody says how (default: 0). */
const SCRAPED = {
  ready: ['linkspan_ready', '1 while /readyz answers 200, else 0.'],
  loopDelay: ['linkspan_loop_delay_seconds', 'Median of the latest delays of the event loop.'],
  memoryUsed: ['linkspan_memory_used_ratio', 'Share of the memory limit that is used.'],
  readCacheBytes: ['linkspan_read_cache_bytes', 'Bytes of cached resources.'],
  auditSeq: ['linkspan_audit_sequence', 'Number of the last record of the audit log.'],
  auditQueueBytes: ['linkspan_audit_queue_bytes', 'Bytes of records that wait for being written.'],
  auditFailing: ['linkspan_audit_failing', '1 while the audit log cannot be written, else 0.'],
  redisDown: ['linkspan_redis_down', '1 if Redis is configured and cannot be used, else 0.'],
  unreachableIssuers: ['linkspan_unreachable_issuers', 'Issuers of tokens that cannot be asked now.'],
  replicas: ['linkspan_replicas', 'Replicas with a lease, this one included.', 1],
} as const;
export type ScrapedGauge = keyof typeof SCRAPED;
/** `events`: events kept for resumption. `unsent`: output for slow readers. `bodies`: requests being received. `running`: large ones until they are
 * answered. `messages`: those from upstreams. */
const HELD_KINDS = ['events', 'unsent', 'bodies', 'running', 'messages'] as const;
export type HeldKind = (typeof HELD_KINDS)[number];

const MAX_VIEWS = 256;
/** Credentials are refused for about 40 reasons. */
const MAX_REASONS = 64;

function scrapedGauges(registry: Registry): (gauge: ScrapedGauge, read: () => number) => void {
  const reads = new Map<string, () => number>();
  for (const [name, help, first = 0] of Object.values(SCRAPED))
    readGauge(registry, name, help, () => reads.get(name)?.() ?? first);
  return (gauge, read) => reads.set(SCRAPED[gauge][0], read);
}

/** Returns a level that is read at each scrape, which costs nothing during requests. */
function level(name: string, help: string, registry: Registry): Level {
  let value = 0;
  readGauge(registry, name, help, () => value);
  return { add: () => void value++, remove: () => void value-- };
}

function streamLevels(registry: Registry): Readonly<Record<StreamKind, Level>> {
  const counts = { post: 0, get: 0, sse: 0 };
  registry.registerMetric(
    new Gauge({
      name: 'linkspan_streams',
      help: 'Open event streams toward clients.',
      labelNames: ['kind'],
      registers: [],
      collect() {
        for (const kind of STREAM_KINDS) this.set({ kind }, counts[kind]);
      },
    }),
  );
  const levelOf = (kind: StreamKind): Level => ({
    add: () => void counts[kind]++,
    remove: () => void counts[kind]--,
  });
  return { post: levelOf('post'), get: levelOf('get'), sse: levelOf('sse') };
}

function heldBytes(registry: Registry): (kind: HeldKind, read: () => number) => void {
  const readers = new Map<HeldKind, () => number>();
  registry.registerMetric(
    new Gauge({
      name: 'linkspan_held_bytes',
      help: 'Bytes that are held: of events and output for clients, and of what is being received.',
      labelNames: ['kind'],
      registers: [],
      collect() {
        for (const [kind, read] of readers) this.set({ kind }, read());
      },
    }),
  );
  return (kind, read) => readers.set(kind, read);
}

function droppedLines(registry: Registry): (read: () => number) => void {
  let dropped = () => 0;
  registry.registerMetric(
    new Counter({
      name: 'linkspan_log_dropped_lines_total',
      help: 'Lines of the log that are lost, because they were not read fast enough.',
      registers: [],
      collect() {
        this.reset();
        this.inc(dropped());
      },
    }),
  );
  return (read) => {
    dropped = read;
  };
}

function toolGauges(registry: Registry) {
  const gauge = (name: string, help: string) =>
    new Gauge({ name, help, labelNames: ['view', 'era'], registers: [registry] });
  const tools = gauge(
    'linkspan_catalog_tools',
    'Tools listed at an endpoint for clients of an era; view "_merged" is /mcp.',
  );
  const tokens = gauge(
    'linkspan_catalog_tokens',
    'Estimated tokens of the list of tools of an endpoint, at 4 characters each.',
  );
  const views = new Bounded(MAX_VIEWS);
  return {
    /**
     * Sets the number of tools that an endpoint lists for clients of an era. Also sets the estimated number of tokens that the list takes in
     * the context of a model. @param id `''` for the merged endpoint.
     */
    setCatalogTools: (id: string, era: Era, size: { readonly tools: number; readonly tokens: number }) => {
      const view = id === '' ? '_merged' : views.label(id);
      tools.set({ view, era }, size.tools);
      tokens.set({ view, era }, size.tokens);
    },
    /** Removes the series of an endpoint that the config does not have any more. */
    removeView: (id: string) => {
      const view = views.forget(id);
      if (view === undefined) return;
      for (const gauge of [tools, tokens]) for (const era of ERAS) gauge.remove({ view, era });
    },
  };
}

/** Gauges of prom-client whose names end as those of counters do, which `promtool check metrics` refuses. */
const MISNAMED = ['handles', 'requests', 'resources'].map((what) => `nodejs_active_${what}_total`);

/**
 * Creates all metrics in a registry of their own, without those of the process itself.
 *
 * @param commit of the build; `unknown` if it is not known.
 */
export function createMetrics(version: string, commit = 'unknown') {
  const registry = new Registry();
  const server = new Durations(
    'mcp_server_operation_duration_seconds',
    'Time from the request of a client to its answer.',
  );
  const client = new Durations(
    'mcp_client_operation_duration_seconds',
    'Time from a request to an upstream to its answer.',
  );
  const updates: (() => Promise<void>)[] = [];
  new Gauge({
    name: 'linkspan_build_info',
    help: 'Always 1; the labels are the version of the gateway and the commit of its build.',
    labelNames: ['version', 'commit'],
    registers: [registry],
  }).set({ version, commit }, 1);

  const limits = new Counter({
    name: 'linkspan_limit_reached_total',
    help: 'Refusals and removals because a fixed bound was reached.',
    labelNames: ['limit'],
    registers: [registry],
  });

  const merged = new Counter({
    name: 'linkspan_merged_notifications_total',
    help: 'Notifications that a later one about the same resource has replaced.',
    registers: [registry],
  });
  const stateWriteFailures = new Counter({
    name: 'linkspan_state_write_failures_total',
    help: 'Failed writes to the state directory; those of sessions are repeated.',
    registers: [registry],
  });

  /** Creates a counter with one label. Its values are a few constants, such as rows of the error table: never text from a peer. */
  const tally = (name: string, help: string, label = 'reason', limit = MAX_REASONS) => {
    const counter = new Counter({ name, help, labelNames: [label], registers: [registry] });
    const values = new Bounded(limit);
    return (value: string) => counter.inc({ [label]: values.label(value) });
  };
  return {
    ...createUpstreamMetrics(registry),
    ...createReloadMetrics(registry),
    ...createKeyMetrics(registry),
    ...createReplicaMetrics(registry),
    ...createCallMetrics(registry),
    /** Registers the function that returns the number of lines that the log has lost; it is called at each scrape. */
    reportDroppedLines: droppedLines(registry),
    ...toolGauges(registry),
    /** Records an answered request of a client. @param seconds how long the client waited. */
    recordRequest: (operation: Operation, seconds: number) => server.observe(operation, seconds),
    /** Records an answered request to an upstream. */
    recordUpstreamRequest: (upstream: string, operation: Operation, seconds: number) =>
      client.observe(operation, seconds, upstream),
    sessions: level('linkspan_sessions', 'Sessions of clients held in memory.', registry),
    parked: level('linkspan_parked_calls', 'Parked calls, which wait for an answer of their client.', registry),
    requestsInFlight: level('linkspan_requests_in_flight', 'Requests of clients in flight.', registry),
    processes: level('linkspan_processes', 'Processes of stdio upstreams.', registry),
    streams: streamLevels(registry),
    countAuthFailure: tally('linkspan_auth_failures_total', 'Requests refused for their credentials.'),
    countShed: tally('linkspan_shed_total', 'Requests and connections refused because of a limit.'),
    /** Counts a refusal of a principal above its share, for which other principals have or get the unit of a pool. */
    countShareRefusal: tally(
      'linkspan_fair_share_refusals_total',
      'Requests of principals above their share that were refused for the sake of others.',
      'pool',
    ),
    countDenial: tally(
      'linkspan_access_denied_total',
      'Requests that the access policy denied.',
      'upstream',
      MAX_VIEWS,
    ),
    countRuleFailure: tally(
      'linkspan_access_rule_failures_total',
      'Conditions of access rules that failed, so that they deny.',
      'rule',
      MAX_VIEWS,
    ),
    countRefusedQuestion: tally('linkspan_questions_refused_total', 'Questions of upstreams that were refused.'),
    countMergedNotification: () => merged.inc(),
    countResumption: knownCounter(registry, {
      name: 'linkspan_stream_resumes_total',
      help: 'GET requests with Last-Event-ID, by outcome.',
      values: RESUME_OUTCOMES,
    }),
    countSpans: knownCounter(registry, {
      name: 'linkspan_trace_spans_total',
      help: 'Ended spans of traces, by outcome.',
      values: SPAN_OUTCOMES,
    }),
    countAuditRecords: knownCounter(registry, {
      name: 'linkspan_audit_records_total',
      help: 'Records of the audit log by outcome.',
      values: AUDIT_OUTCOMES,
    }),
    countStateWriteFailure: () => stateWriteFailures.inc(),
    /** Registers a function that returns the value of a gauge; it is called at each scrape. */
    onScrape: scrapedGauges(registry),
    /** Counts a refusal or removal because of a bound in `limits.ts`. */
    countLimit: (limit: LimitName) => limits.inc({ limit }),
    countRepair: tally(
      'linkspan_list_repairs_total',
      'Items left out of lists, members left out of items, and items whose texts held hidden characters.',
      'repair',
    ),
    countBudgetRefusal: tally(
      'linkspan_budget_exceeded_total',
      'Refusals and removals because a budget of bytes was exceeded.',
      'kind',
      HELD_KINDS.length,
    ),
    /** Registers a function that returns the bytes held of this kind; it is called at each scrape. */
    reportHeldBytes: heldBytes(registry),
    /** Adds the metrics of the process itself. They are measured until it ends, so only a registry that is served gets them. */
    addProcess: () => {
      collectDefaultMetrics({ register: registry });
      for (const name of MISNAMED) registry.removeSingleMetric(name);
    },
    /** Calls `update` before each scrape, for gauges that are expensive to keep up to date. */
    beforeScrape: (update: () => Promise<void>) => void updates.push(update),
    /** Returns all metrics in Prometheus' text format, of {@link METRICS_TYPE}. */
    text: async () => {
      for (const update of updates) await update();
      const texts = [await server.text(), await client.text()];
      // One metric in each turn of the event loop.
      for (const { name } of registry.getMetricsAsArray()) {
        await turn();
        texts.push(`${await registry.getSingleMetricAsString(name)}\n`);
      }
      return texts.join('');
    },
  };
}
