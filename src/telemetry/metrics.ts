import { collectDefaultMetrics, Counter, Gauge, Registry } from 'prom-client';

import type { LimitName } from '../limits.ts';
import { type Era, ERAS } from '../protocol/revisions.ts';
import { Bounded } from './bounded.ts';
import { Durations, OPERATION_LABELS } from './durations.ts';
import type { Operation } from './operation.ts';

/** A gauge that goes up and down by one. */
export interface Level {
  add(): void;
  remove(): void;
}

/** Records metrics. `docs/metrics.md` lists every metric and the values of its labels. */
export interface Metrics {
  /** Records an answered request of a client. `seconds` is how long the client waited. */
  served(operation: Operation, seconds: number): void;
  /** Records an answered request to an upstream. */
  called(upstream: string, operation: Operation, seconds: number): void;

  upstreamState(upstream: string, state: string): void;
  /** Removes the state and eras of an upstream that the config does not have any more. Its counters stay. */
  upstreamRemoved(upstream: string): void;
  /** Removes the gauge of an endpoint that the config does not have any more. */
  viewRemoved(view: string): void;
  /** Records an attempt to load the config. */
  reloaded(outcome: ReloadOutcome): void;
  /** Counts a connection (for stdio: a process) that ended by itself. The next use starts another. */
  upstreamRestarted(upstream: string): void;
  /** Counts the loss of the state that an upstream kept for one client. `reason` is one of a few constants. */
  upstreamStateLost(upstream: string, reason: string): void;
  /** Counts a line on an upstream's stdout that is not a message. */
  stdioJunk(upstream: string): void;
  /** Sets the number of tools that an endpoint lists for clients of an era. `view` is `''` for the merged endpoint. */
  catalogTools(view: string, era: Era, count: number): void;
  /** Sets whether an upstream supports each era, as far as known. */
  upstreamEras(upstream: string, eras: Readonly<Record<Era, { readonly speaks: 'yes' | 'no' | 'unknown' }>>): void;

  readonly sessions: Level;
  /** Parked calls. */
  readonly parked: Level;
  readonly requestsInFlight: Level;
  readonly processes: Level;
  /** Open event streams toward clients. */
  readonly streams: Readonly<Record<StreamKind, Level>>;

  /**
   * Counts refused credentials. Every `reason` in this interface is one of a few constants, such as a row of the error
   * table: never text from a peer.
   */
  authFailed(reason: string): void;
  /** Counts a request refused because of overload. */
  shed(reason: string): void;
  /** Counts a refusal or removal because of a bound in `limits.ts`. */
  limitReached(limit: LimitName): void;
  /** Counts a list item that is changed or withheld. */
  listRepaired(repair: string): void;
  /** Counts a refused question of an upstream. */
  questionRefused(reason: string): void;
  /** Counts a failed write to the state directory. */
  stateWriteFailed(): void;
  /** Counts a refusal or removal because a byte budget was used up. */
  budgetExceeded(kind: HeldKind): void;
  /** Registers a function that returns the bytes held of this kind; it is called at each scrape. */
  reportHeldBytes(kind: HeldKind, read: () => number): void;
  /** Counts a message without a recipient. */
  dropped(reason: string): void;

  /** Registers a function that returns the value of a gauge; it is called at each scrape. */
  onScrape(gauge: ScrapedGauge, read: () => number): void;
  /** Calls `update` before each scrape, for gauges that are expensive to keep up to date. */
  beforeScrape(update: () => Promise<void>): void;

  readonly contentType: string;
  /** Returns all metrics in Prometheus' text format. */
  text(): Promise<string>;
}

/** `unchanged`: the files have changed and mean the same. `rejected`: the running config stays. */
const RELOAD_OUTCOMES = ['applied', 'unchanged', 'rejected'] as const;
export type ReloadOutcome = (typeof RELOAD_OUTCOMES)[number];

/**
 * `post`: the response to one request. `get`: the GET stream of a session. `sse`: the stream of a 2024-11-05 client.
 */
const STREAM_KINDS = ['post', 'get', 'sse'] as const;
export type StreamKind = (typeof STREAM_KINDS)[number];

/** Gauges that are read at each scrape: name and help. */
const SCRAPED = {
  readCacheBytes: ['linkspan_read_cache_bytes', 'Bytes of cached resources.'],
} as const;
export type ScrapedGauge = keyof typeof SCRAPED;
/** `events`: events kept for resumption. `unsent`: output for slow readers. `bodies`: requests being received. */
const HELD_KINDS = ['events', 'unsent', 'bodies'] as const;
export type HeldKind = (typeof HELD_KINDS)[number];

const MAX_UPSTREAMS = 256;
const MAX_VIEWS = 256;
const MAX_REASONS = 32;

function scrapedGauges(registry: Registry): (gauge: ScrapedGauge, read: () => number) => void {
  const reads = new Map<string, () => number>();
  for (const [name, help] of Object.values(SCRAPED)) {
    const gauge = new Gauge({
      name,
      help,
      registers: [],
      collect() {
        this.set(reads.get(name)?.() ?? 0);
      },
    });
    registry.registerMetric(gauge);
  }
  return (gauge, read) => reads.set(SCRAPED[gauge][0], read);
}

/** Counts in a plain number that is read at each scrape, which costs nothing during requests. */
class Count implements Level {
  value = 0;

  add(): void {
    this.value++;
  }

  remove(): void {
    this.value--;
  }
}

function level(name: string, help: string, registry: Registry): Level {
  const count = new Count();
  const gauge = new Gauge({
    name,
    help,
    collect() {
      this.set(count.value);
    },
    registers: [],
  });
  registry.registerMetric(gauge);
  return count;
}

function streamLevels(registry: Registry): Readonly<Record<StreamKind, Level>> {
  const counts = { post: new Count(), get: new Count(), sse: new Count() };
  const gauge = new Gauge({
    name: 'linkspan_streams',
    help: 'Open event streams toward clients.',
    labelNames: ['kind'],
    registers: [],
    collect() {
      for (const kind of STREAM_KINDS) this.set({ kind }, counts[kind].value);
    },
  });
  registry.registerMetric(gauge);
  return counts;
}

function heldBytes(registry: Registry): (kind: HeldKind, read: () => number) => void {
  const readers = new Map<HeldKind, () => number>();
  const gauge = new Gauge({
    name: 'linkspan_held_bytes',
    help: "Memory that the client's edge holds for clients.",
    labelNames: ['kind'],
    registers: [],
    collect() {
      for (const [kind, read] of readers) this.set({ kind }, read());
    },
  });
  registry.registerMetric(gauge);
  return (kind, read) => readers.set(kind, read);
}

/** Creates a counter with one label that has a bounded number of values. */
function tally(name: string, help: string, label: string, limit: number, registry: Registry): (value: string) => void {
  const counter = new Counter({ name, help, labelNames: [label], registers: [registry] });
  const values = new Bounded(limit);
  return (value) => counter.inc({ [label]: values.label(value) });
}

function reloads(registry: Registry): Metrics['reloaded'] {
  const total = new Counter({
    name: 'linkspan_config_reloads_total',
    help: 'Attempts to load a changed config.',
    labelNames: ['outcome'],
    registers: [registry],
  });
  for (const outcome of RELOAD_OUTCOMES) total.inc({ outcome }, 0);
  const success = new Gauge({
    name: 'linkspan_config_last_reload_successful',
    help: '1 if the config on disk is the running one, as far as known; 0 if the last attempt to load it was rejected.',
    registers: [registry],
  });
  const atSeconds = new Gauge({
    name: 'linkspan_config_last_reload_success_timestamp_seconds',
    help: 'Time when the running config was loaded, since 1970.',
    registers: [registry],
  });
  success.set(1);
  atSeconds.setToCurrentTime();
  return (outcome) => {
    total.inc({ outcome });
    success.set(outcome === 'rejected' ? 0 : 1);
    if (outcome !== 'rejected') atSeconds.setToCurrentTime();
  };
}

function upstreamStates(registry: Registry): Pick<Metrics, 'upstreamState' | 'upstreamRemoved'> {
  const up = new Gauge({
    name: 'linkspan_upstream_up',
    help: '1 while the upstream serves requests, else 0.',
    labelNames: ['upstream'],
    registers: [registry],
  });
  const info = new Gauge({
    name: 'linkspan_upstream_state_info',
    help: 'Always 1; the labels are the upstream and its state.',
    labelNames: ['upstream', 'state'],
    registers: [registry],
  });
  const upstreams = new Bounded(MAX_UPSTREAMS);
  const states = new Map<string, string>();
  const remove = (upstream: string) => {
    const before = states.get(upstream);
    if (before !== undefined) info.remove({ upstream, state: before });
  };
  return {
    upstreamState: (id, state) => {
      const upstream = upstreams.label(id);
      if (states.get(upstream) === state) return;
      remove(upstream);
      states.set(upstream, state);
      info.set({ upstream, state }, 1);
      up.set({ upstream }, state === 'ready' || state === 'degraded' ? 1 : 0);
    },
    upstreamRemoved: (id) => {
      const upstream = upstreams.label(id);
      remove(upstream);
      states.delete(upstream);
      up.remove({ upstream });
    },
  };
}

function upstreamEras(registry: Registry): {
  readonly set: Metrics['upstreamEras'];
  readonly remove: (upstream: string) => void;
} {
  const gauge = new Gauge({
    name: 'linkspan_upstream_era',
    help: '1 if the upstream supports the era, 0 if not. Absent while that is unknown.',
    labelNames: ['upstream', 'era'],
    registers: [registry],
  });
  const upstreams = new Bounded(MAX_UPSTREAMS);
  return {
    set: (id, eras) => {
      const upstream = upstreams.label(id);
      for (const era of ERAS) {
        const { speaks } = eras[era];
        if (speaks === 'unknown') gauge.remove({ upstream, era });
        else gauge.set({ upstream, era }, speaks === 'yes' ? 1 : 0);
      }
    },
    remove: (id) => {
      for (const era of ERAS) gauge.remove({ upstream: upstreams.label(id), era });
    },
  };
}

/** Creates all metrics in a registry of their own. */
export function createMetrics(version: string): Metrics {
  const registry = new Registry();
  collectDefaultMetrics({ register: registry });

  const server = new Durations(
    'mcp_server_operation_duration_seconds',
    'Time from the request of a client to its answer.',
    OPERATION_LABELS,
    registry,
  );
  const client = new Durations(
    'mcp_client_operation_duration_seconds',
    'Time from a request to an upstream to its answer.',
    [...OPERATION_LABELS, 'upstream'],
    registry,
  );
  const tools = new Gauge({
    name: 'linkspan_catalog_tools',
    help: 'Tools listed at an endpoint for clients of an era; view "_merged" is /mcp.',
    labelNames: ['view', 'era'],
    registers: [registry],
  });
  const views = new Bounded(MAX_VIEWS);
  const updates: (() => Promise<void>)[] = [];
  const states = upstreamStates(registry);
  const eras = upstreamEras(registry);
  new Gauge({
    name: 'linkspan_build_info',
    help: 'Always 1; the label is the version of the gateway.',
    labelNames: ['version'],
    registers: [registry],
  }).set({ version }, 1);

  const limits = new Counter({
    name: 'linkspan_limit_reached_total',
    help: 'Refusals and removals because a fixed bound was reached.',
    labelNames: ['limit'],
    registers: [registry],
  });

  const stateLost = new Counter({
    name: 'linkspan_upstream_state_lost_total',
    help: 'Clients whose state at an upstream was lost while they were connected.',
    labelNames: ['upstream', 'reason'],
    registers: [registry],
  });
  const stateLossUpstreams = new Bounded(MAX_UPSTREAMS);
  const stateWriteFailures = new Counter({
    name: 'linkspan_state_write_failures_total',
    help: 'Failed writes to the state directory; those of sessions are repeated.',
    registers: [registry],
  });

  return {
    served: (operation, seconds) => server.observe(operation, seconds),
    called: (upstream, operation, seconds) => client.observe(operation, seconds, upstream),
    upstreamState: states.upstreamState,
    upstreamRemoved: (id) => {
      states.upstreamRemoved(id);
      eras.remove(id);
    },
    viewRemoved: (view) => {
      for (const era of ERAS) tools.remove({ view: views.label(view), era });
    },
    reloaded: reloads(registry),
    upstreamRestarted: tally(
      'linkspan_upstream_restarts_total',
      'Connections of an upstream (for stdio: processes) that ended unexpectedly.',
      'upstream',
      MAX_UPSTREAMS,
      registry,
    ),
    upstreamStateLost: (id, reason) => stateLost.inc({ upstream: stateLossUpstreams.label(id), reason }),
    stdioJunk: tally(
      'linkspan_stdio_junk_lines_total',
      'Lines on the stdout of an upstream that are not messages.',
      'upstream',
      MAX_UPSTREAMS,
      registry,
    ),
    catalogTools: (view, era, count) => tools.set({ view: view === '' ? '_merged' : views.label(view), era }, count),
    upstreamEras: eras.set,
    sessions: level('linkspan_sessions', 'Sessions of clients held in memory.', registry),
    parked: level('linkspan_parked_calls', 'Parked calls, which wait for an answer of their client.', registry),
    requestsInFlight: level('linkspan_requests_in_flight', 'Requests of clients in flight.', registry),
    processes: level('linkspan_processes', 'Processes of stdio upstreams.', registry),
    streams: streamLevels(registry),
    authFailed: tally(
      'linkspan_auth_failures_total',
      'Requests refused for their credentials.',
      'reason',
      MAX_REASONS,
      registry,
    ),
    shed: tally(
      'linkspan_shed_total',
      'Requests and connections refused because of a limit.',
      'reason',
      MAX_REASONS,
      registry,
    ),
    dropped: tally(
      'linkspan_dropped_messages_total',
      'Messages dropped before they reached a client.',
      'reason',
      MAX_REASONS,
      registry,
    ),
    questionRefused: tally(
      'linkspan_questions_refused_total',
      'Questions of upstreams that were refused.',
      'reason',
      MAX_REASONS,
      registry,
    ),
    stateWriteFailed: () => stateWriteFailures.inc(),
    onScrape: scrapedGauges(registry),
    limitReached: (limit) => limits.inc({ limit }),
    listRepaired: tally(
      'linkspan_list_repairs_total',
      'Items left out of lists, members left out of items, and items whose texts held hidden characters.',
      'repair',
      MAX_REASONS,
      registry,
    ),
    budgetExceeded: tally(
      'linkspan_budget_exceeded_total',
      'Refusals and removals because a budget of bytes was exceeded.',
      'kind',
      HELD_KINDS.length,
      registry,
    ),
    reportHeldBytes: heldBytes(registry),
    contentType: registry.contentType,
    beforeScrape: (update) => updates.push(update),
    text: async () => {
      for (const update of updates) await update();
      return await registry.metrics();
    },
  };
}
