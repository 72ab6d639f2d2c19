import { setTimeout as sleep } from 'node:timers/promises';
import type { Logger } from 'pino';
import { GatewayError } from '../errors.ts';
import type { Core } from './core/core.ts';
import type { Edge } from './edge.ts';
import type { Replicas } from './replicas/replicas.ts';
import type { Front } from '../gateway/front/front.ts';
import { expected } from '../thrown.ts';

/** The time that a stopping gateway waits for requests in flight. */
const DRAIN_MS = 60_000;
const POLL_MS = 50;
/** The time in which load balancers and other replicas notice that this one leaves. */
const NOTICE_MS = 3_000;
/** The time in which an answer gets from its call to its client. It is longer than a command of Redis takes, which may store it on its way. */
const SETTLE_MS = 300;
/** The shortest time in which the last responses are written. */
const RETIRE_MS = 5_000;

export interface DrainParts {
  readonly core: Pick<Core, 'handOver' | 'inFlightCount' | 'parkedCount'> & {
    readonly gateway: Pick<Front, 'successor'>;
  };
  readonly edge: Pick<Edge, 'drain' | 'finish' | 'forwardedCount' | 'retire'>;
  /** Undefined if there are no other replicas. */
  readonly replicas:
    | {
        readonly owners: Pick<Replicas['owners'], 'leave' | 'others'>;
        readonly counters: Pick<Replicas['counters'], 'renew'>;
      }
    | undefined;
  /** True if the others end at the same time, as all workers of a gateway do. */
  readonly isStopOfAll?: boolean;
  readonly log: Logger;
}

/**
 * Finishes the requests in flight, for a bounded time.
 *
 * With other replicas, sessions are given away at once and new requests are passed on, so that clients notice nothing. Without any, new requests
 * are refused.
 */
export async function drain({ core, edge, replicas, isStopOfAll, log }: DrainParts): Promise<void> {
  const beganMs = performance.now();
  const failure = await leave(replicas);
  if (failure !== undefined) log.warn({ err: failure }, 'sessions cannot be given to other replicas at the moment');
  let hasLeft = failure === undefined;
  // As of the leaving: others may have come since the last renewal.
  const hasOthers = replicas !== undefined && replicas.owners.others.length > 0;
  const hasSuccessor = () => core.gateway.successor() !== undefined;
  edge.drain(hasOthers, isStopOfAll);
  let areCountsGiven = false;
  let busyMs = -Infinity;
  for (;;) {
    // Sessions that were about to be opened or restored are given away in a later round.
    if (hasSuccessor()) core.handOver();
    if (hasSuccessor() && !areCountsGiven) {
      areCountsGiven = true;
      // Other replicas count them from now on.
      void replicas?.counters.renew();
    }
    const durationMs = performance.now() - beganMs;
    // Requests that are passed on do not count: load balancers may send new ones as long as this process accepts connections.
    const isBusy = core.inFlightCount + edge.forwardedCount + (hasSuccessor() ? core.parkedCount : 0) > 0;
    if (isBusy) busyMs = performance.now();
    const isSettled = performance.now() - busyMs > SETTLE_MS;
    const isNoticed = durationMs > NOTICE_MS || (hasLeft && !hasSuccessor());
    if (durationMs > DRAIN_MS || (isSettled && isNoticed)) break;
    await sleep(POLL_MS);
    hasLeft ||= (await leave(replicas)) === undefined;
  }
  const restMs = Math.max(RETIRE_MS, DRAIN_MS - (performance.now() - beganMs));
  // Requests that are passed on may be under way, also to a process that leaves at the same time.
  if (hasOthers) await edge.retire(restMs, () => !hasSuccessor());
  // Clients may still read answers of calls that have ended.
  else await edge.finish(restMs);
}

/** Tells the other replicas that this one leaves. Resolves with the failure if they cannot be told. */
async function leave(replicas: DrainParts['replicas']): Promise<GatewayError | undefined> {
  const left = await replicas?.owners.leave().catch(expected(GatewayError));
  return left instanceof GatewayError ? left : undefined;
}
