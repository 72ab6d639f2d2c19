import { Counter, type Registry } from 'prom-client';
import { knownCounter } from './metric-kinds.ts';

/** `unreachable`: nothing was sent. `misdirected`: the session had moved. `refused`: not accepted. `broken`: the outcome is unknown. `abandoned`: the client has gone. */
const FORWARD_OUTCOMES = ['answered', 'unreachable', 'misdirected', 'refused', 'broken', 'abandoned'] as const;
export type ForwardOutcome = (typeof FORWARD_OUTCOMES)[number];

const REDIS_FAILURES = ['timeout', 'connection', 'full', 'refused'] as const;

const LEASE_TROUBLES = ['lapsed', 'failed'] as const;

/** `ended`: by itself or by a signal. `silent`: it did not answer its parent, which has ended it. */
const WORKER_LOSSES = ['ended', 'silent'] as const;
export type WorkerLoss = (typeof WORKER_LOSSES)[number];

export function createReplicaMetrics(registry: Registry) {
  const registers = [registry];
  const refused = new Counter({
    name: 'linkspan_internal_refused_total',
    help: 'Connections and requests of other replicas that were refused.',
    labelNames: ['reason'],
    registers,
  });
  const fenced = new Counter({
    name: 'linkspan_fenced_sessions_total',
    help: 'Sessions in memory that another replica has got or ended.',
    registers,
  });
  return {
    countForwarded: knownCounter(registry, {
      name: 'linkspan_forwarded_requests_total',
      help: 'Requests passed on to the replica that has the session.',
      values: FORWARD_OUTCOMES,
    }),
    countInternalRefusal: (reason: string) => refused.inc({ reason }),
    countFencedSession: () => fenced.inc(),
    countRedisFailure: knownCounter(registry, {
      name: 'linkspan_redis_failures_total',
      help: 'Commands that Redis has not answered.',
      label: 'reason',
      values: REDIS_FAILURES,
    }),
    countLeaseTrouble: knownCounter(registry, {
      name: 'linkspan_lease_troubles_total',
      help: 'Leases that have lapsed, or could not be renewed.',
      label: 'trouble',
      values: LEASE_TROUBLES,
    }),
    countLostWorker: knownCounter(registry, {
      name: 'linkspan_lost_workers_total',
      help: 'Workers that have ended before the gateway was stopped.',
      label: 'reason',
      values: WORKER_LOSSES,
    }),
  };
}
