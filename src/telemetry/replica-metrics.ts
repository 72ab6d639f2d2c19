import { Counter, type Registry } from 'prom-client';
import { knownCounter, readGauge } from './metric-kinds.ts';

/** `unreachable`: nothing was sent. `misdirected`: the session had moved. `refused`: not accepted. `broken`: the outcome is unknown. `abandoned`: the client has gone. */
const FORWARD_OUTCOMES = ['answered', 'unreachable', 'misdirected', 'refused', 'broken', 'abandoned'] as const;
export type ForwardOutcome = (typeof FORWARD_OUTCOMES)[number];

const REDIS_FAILURES = ['timeout', 'connection', 'full', 'refused'] as const;
export type RedisFailure = (typeof REDIS_FAILURES)[number];

const LEASE_TROUBLES = ['lapsed', 'failed'] as const;

/** `ended`: by itself or by a signal. `silent`: it did not answer its parent, which has ended it. */
const WORKER_LOSSES = ['ended', 'silent'] as const;
export type WorkerLoss = (typeof WORKER_LOSSES)[number];

/** Records how replicas work together. */
export interface ReplicaMetrics {
  /** Sets the functions that return the state of Redis and the number of replicas; they are called at each scrape. */
  readReplicas(values: { readonly isRedisDown: () => boolean; readonly replicas: () => number }): void;
  /** Counts a request that was passed on to another replica. */
  countForwarded(outcome: ForwardOutcome): void;
  /** Counts a connection or request of another replica that was refused. */
  countInternalRefusal(reason: string): void;
  /** Counts a session that another replica has got or ended. */
  countFencedSession(): void;
  /** Counts a command that Redis has not answered. */
  countRedisFailure(reason: RedisFailure): void;
  /** Counts a lease that has lapsed, or could not be renewed. */
  countLeaseTrouble(trouble: (typeof LEASE_TROUBLES)[number]): void;
  /** Counts a worker in whose place another one starts. */
  countLostWorker(loss: WorkerLoss): void;
}

/** Creates the metrics of replicas. */
export function createReplicaMetrics(registry: Registry): ReplicaMetrics {
  const counter = (name: string, help: string, label?: string) =>
    new Counter({ name, help, labelNames: label === undefined ? [] : [label], registers: [registry] });
  const forwarded = knownCounter(registry, {
    name: 'linkspan_forwarded_requests_total',
    help: 'Requests passed on to the replica that has the session.',
    label: 'outcome',
    values: FORWARD_OUTCOMES,
  });
  const refused = counter(
    'linkspan_internal_refused_total',
    'Connections and requests of other replicas that were refused.',
    'reason',
  );
  const fenced = counter('linkspan_fenced_sessions_total', 'Sessions in memory that another replica has got or ended.');
  const redisFailed = knownCounter(registry, {
    name: 'linkspan_redis_failures_total',
    help: 'Commands that Redis has not answered.',
    label: 'reason',
    values: REDIS_FAILURES,
  });
  const leaseTrouble = knownCounter(registry, {
    name: 'linkspan_lease_troubles_total',
    help: 'Leases that have lapsed, or could not be renewed.',
    label: 'trouble',
    values: LEASE_TROUBLES,
  });
  const workerLost = knownCounter(registry, {
    name: 'linkspan_lost_workers_total',
    help: 'Workers that have ended before the gateway was stopped.',
    label: 'reason',
    values: WORKER_LOSSES,
  });
  let values = { isRedisDown: () => false, replicas: () => 1 };
  readGauge(registry, 'linkspan_redis_down', '1 if Redis is configured and cannot be used, else 0.', () =>
    values.isRedisDown() ? 1 : 0,
  );
  readGauge(registry, 'linkspan_replicas', 'Replicas with a lease, this one included.', () => values.replicas());
  return {
    readReplicas: (next) => {
      values = next;
    },
    countForwarded: forwarded,
    countInternalRefusal: (reason) => refused.inc({ reason }),
    countFencedSession: () => fenced.inc(),
    countRedisFailure: redisFailed,
    countLeaseTrouble: leaseTrouble,
    countLostWorker: workerLost,
  };
}
