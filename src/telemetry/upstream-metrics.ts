import { Counter, Gauge, Histogram, type Registry } from 'prom-client';
import { type Era, ERAS } from '../protocol/revisions.ts';
import { Bounded } from './bounded.ts';
import { MAX_UPSTREAMS } from './durations.ts';

/** The load of one upstream at the time of a scrape. */
export interface UpstreamLoad {
  readonly id: string;
  /** True if the gateway is ready only while this upstream is up. */
  readonly isRequired: boolean;
  readonly inFlight: number;
  /** Requests that wait for a slot. */
  readonly queued: number;
  readonly connections: number;
  /** Processes including their descendants; undefined for a remote upstream, or if unknown. */
  readonly processes?: number | undefined;
  readonly memoryBytes?: number | undefined;
  /** Items that the lock withholds; undefined if nothing of the upstream is pinned. */
  readonly withheldItems?: number | undefined;
}

const STATE_LOSS_REASONS = ['idle', 'crash', 'forgotten', 'replaced', 'restored'] as const;
export type StateLossReason = (typeof STATE_LOSS_REASONS)[number];

const LOCK_STATUSES = ['added', 'changed', 'removed'] as const;
type LockStatus = (typeof LOCK_STATUSES)[number];

const REATTACH_OUTCOMES = ['continued', 'refused'] as const;
export type ReattachOutcome = (typeof REATTACH_OUTCOMES)[number];

const CREDENTIAL_OUTCOMES = ['ok', 'failed'] as const;
/** The outcome of an attempt to get credentials. */
export type CredentialOutcome = (typeof CREDENTIAL_OUTCOMES)[number];

/** Why a message was dropped before it reached a client: the last two because of the client, and not of one upstream. */
const DROP_REASONS = [
  'log-unattributable',
  'log-denied',
  'log-undeliverable',
  'notification-unattributable',
  'session-queue',
  'slow-client',
] as const;
export type DropReason = (typeof DROP_REASONS)[number];

const LISTING_BUCKETS_SECONDS = [0.05, 0.2, 1, 5, 20, 60];

/** Creates the metrics with the label `upstream`. Upstreams beyond the 256th share the label `_other`. */
export function createUpstreamMetrics(registry: Registry) {
  const upstreams = new Bounded(MAX_UPSTREAMS);
  const label = (id: string) => upstreams.label(id);
  const registers = [registry];
  const counter = (name: string, help: string, ...further: readonly string[]) =>
    new Counter({ name, help, labelNames: ['upstream', ...further], registers });
  const restarts = counter(
    'linkspan_upstream_restarts_total',
    'Connections of an upstream (for stdio: processes) that ended unexpectedly.',
  );
  const startFailures = counter(
    'linkspan_upstream_start_failures_total',
    'Connections of an upstream (for stdio: processes) that could not be started.',
  );
  const stateLost = counter(
    'linkspan_upstream_state_lost_total',
    'Clients whose state at an upstream was lost while they were connected.',
    'reason',
  );
  const reattached = counter(
    'linkspan_upstream_reattached_total',
    'Sessions at an upstream that a restored session of a client tried to continue.',
    'outcome',
  );
  const lockDifferences = counter(
    'linkspan_lock_differences_total',
    'Definitions that were found to differ from the lock, each time they changed.',
    'status',
  );
  const credentials = counter(
    'linkspan_upstream_credentials_total',
    'Attempts to get credentials for an upstream from an authorization server.',
    'outcome',
  );
  const junk = counter('linkspan_stdio_junk_lines_total', 'Lines on the stdout of an upstream that are not messages.');
  const dropped = counter(
    'linkspan_dropped_messages_total',
    'Messages dropped before they reached a client.',
    'reason',
  );
  const listings = new Histogram({
    name: 'linkspan_upstream_listing_duration_seconds',
    help: 'Time to read all lists of an upstream over one connection.',
    labelNames: ['upstream'],
    buckets: LISTING_BUCKETS_SECONDS,
    registers,
  });
  const states = stateGauges(registry, label);
  const eras = eraGauge(registry, label);
  return {
    /** Starts the counters of an upstream at 0: Prometheus sees no increase in a series that begins with its first event. */
    addUpstream: (id: string) => {
      const upstream = label(id);
      for (const metric of [restarts, startFailures, junk]) metric.inc({ upstream }, 0);
      for (const reason of STATE_LOSS_REASONS) stateLost.inc({ upstream, reason }, 0);
      for (const status of LOCK_STATUSES) lockDifferences.inc({ upstream, status }, 0);
      for (const outcome of REATTACH_OUTCOMES) reattached.inc({ upstream, outcome }, 0);
      for (const outcome of CREDENTIAL_OUTCOMES) credentials.inc({ upstream, outcome }, 0);
    },
    /** Removes the series of an upstream that the config does not have any more. Further events of it begin new ones. */
    removeUpstream: (id: string) => {
      const upstream = upstreams.forget(id);
      // The series of the label for all others belong to several upstreams.
      if (upstream === undefined) return;
      for (const metric of [restarts, startFailures, junk, listings]) metric.remove({ upstream });
      for (const reason of STATE_LOSS_REASONS) stateLost.remove({ upstream, reason });
      for (const status of LOCK_STATUSES) lockDifferences.remove({ upstream, status });
      for (const outcome of REATTACH_OUTCOMES) reattached.remove({ upstream, outcome });
      for (const outcome of CREDENTIAL_OUTCOMES) credentials.remove({ upstream, outcome });
      for (const reason of DROP_REASONS) dropped.remove({ upstream, reason });
      states.remove(upstream);
      eras.remove(upstream);
    },
    setUpstreamState: states.set,
    /** Sets whether an upstream supports each era, as far as known. */
    setUpstreamEras: eras.set,
    /** Counts a connection (for stdio: a process) that ended by itself. The next use starts another. */
    countRestart: (id: string) => restarts.inc({ upstream: label(id) }),
    countStartFailure: (id: string) => startFailures.inc({ upstream: label(id) }),
    countStateLoss: (id: string, reason: StateLossReason) => stateLost.inc({ upstream: label(id), reason }),
    countReattachment: (id: string, outcome: ReattachOutcome) => reattached.inc({ upstream: label(id), outcome }),
    recordListing: (id: string, seconds: number) => listings.observe({ upstream: label(id) }, seconds),
    countLockDifference: (id: string, status: LockStatus) => lockDifferences.inc({ upstream: label(id), status }),
    countCredentials: (id: string, outcome: CredentialOutcome) => credentials.inc({ upstream: label(id), outcome }),
    /** @param id the sender, if that is known. */
    countDropped: (reason: DropReason, id?: string) =>
      dropped.inc(id === undefined ? { reason } : { upstream: label(id), reason }),
    countNonProtocolOutput: (id: string) => junk.inc({ upstream: label(id) }),
    /** Sets the load of all upstreams. Series of other upstreams end. */
    setUpstreamLoads: loadGauges(registry, label),
  };
}

type KnownEras = Readonly<Record<Era, { readonly speaks: 'yes' | 'no' | 'unknown' }>>;

/** Returns the gauges of states. `remove` removes the series with this label, as for all gauges of upstreams. */
function stateGauges(registry: Registry, label: (id: string) => string) {
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
  const states = new Map<string, string>();
  const removeInfo = (upstream: string) => {
    const state = states.get(upstream);
    if (state !== undefined) info.remove({ upstream, state });
  };
  return {
    set: (id: string, state: string) => {
      const upstream = label(id);
      if (states.get(upstream) === state) return;
      removeInfo(upstream);
      states.set(upstream, state);
      info.set({ upstream, state }, 1);
      up.set({ upstream }, state === 'ready' || state === 'degraded' ? 1 : 0);
    },
    remove: (upstream: string) => {
      removeInfo(upstream);
      states.delete(upstream);
      up.remove({ upstream });
    },
  };
}

function eraGauge(registry: Registry, label: (id: string) => string) {
  const gauge = new Gauge({
    name: 'linkspan_upstream_era',
    help: '1 if the upstream supports the era, 0 if not. Absent while that is unknown.',
    labelNames: ['upstream', 'era'],
    registers: [registry],
  });
  return {
    set: (id: string, eras: KnownEras) => {
      const upstream = label(id);
      for (const era of ERAS) {
        const { speaks } = eras[era];
        if (speaks === 'unknown') gauge.remove({ upstream, era });
        else gauge.set({ upstream, era }, speaks === 'yes' ? 1 : 0);
      }
    },
    remove: (upstream: string) => {
      for (const era of ERAS) gauge.remove({ upstream, era });
    },
  };
}

const LOADS = [
  ['linkspan_upstream_required', '1 if the gateway is ready only while this upstream is up, else 0.', 'isRequired'],
  ['linkspan_upstream_requests_in_flight', 'Requests in flight at an upstream.', 'inFlight'],
  ['linkspan_upstream_requests_queued', 'Requests that wait for a slot of an upstream.', 'queued'],
  ['linkspan_upstream_connections', 'Open connections of an upstream; for stdio, its processes.', 'connections'],
  ['linkspan_upstream_processes', 'Processes of an upstream, including those that they have started.', 'processes'],
  ['linkspan_upstream_memory_bytes', 'Memory of the processes of an upstream.', 'memoryBytes'],
  ['linkspan_lock_withheld_items', 'Items of an upstream that the lock withholds.', 'withheldItems'],
] as const;

function loadGauges(registry: Registry, label: (id: string) => string): (loads: readonly UpstreamLoad[]) => void {
  const gauges = LOADS.map(([name, help, member]) => {
    return { gauge: new Gauge({ name, help, labelNames: ['upstream'], registers: [registry] }), member };
  });
  return (loads) => {
    for (const { gauge, member } of gauges) {
      gauge.reset();
      // Upstreams that share a label are added up.
      for (const load of loads) {
        const value = load[member];
        if (value !== undefined) gauge.inc({ upstream: label(load.id) }, Number(value));
      }
    }
  };
}
