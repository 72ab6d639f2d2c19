import { randomUUID } from 'node:crypto';
import type { Logger } from 'pino';
import type { Cleanups } from '../cleanups.ts';
import type { Endpoints } from '../../downstream/http/app.ts';
import type { StoredEventLogsParts } from '../../downstream/streams/stored-event-log.ts';
import type { Front } from '../../gateway/front/front.ts';
import type { LimitName } from '../../limits.ts';
import type { AdminPort } from '../../operator/admin/admin-port.ts';
import type { Callers } from '../../policy/callers.ts';
import { forwardedRequests } from '../../replicas/forwarded-requests.ts';
import type { InternalAddress } from '../../replicas/internal-address.ts';
import { InternalKeys } from '../../replicas/internal-keys.ts';
import { type ForwardedHandler, openInternalServer, NOT_SERVING, STARTING } from '../../replicas/internal-server.ts';
import { answerQuestion } from '../../replicas/operator-question.ts';
import { ReplicaOwners } from '../../replicas/replica-owners.ts';
import type { ApiKeyStore } from '../../store/api-key-store.ts';
import type { CounterTable } from '../../store/counter-table.ts';
import type { KeyStore } from '../../store/key-store.ts';
import type { State } from '../../store/open-state.ts';
import type { PlacementTable } from '../../store/placement-table.ts';
import type { RateTable } from '../../store/rate-table.ts';
import { SharedCounters } from '../../store/shared-counters.ts';
import type { Metrics } from '../../telemetry/metrics.ts';
import { VERSION } from '../../version.ts';
import { sessionOf } from '../admin/admin-port.ts';
import type { Core } from '../core/core.ts';
import { type ChangedCore, LatestChanges } from './latest-changes.ts';
import { replicaAnswers } from './replica-answers.ts';
import { ReplicasAdmin } from './replicas-admin.ts';
import { type RingCallbacks, RingWatch } from './ring-watch.ts';
import { sharedAddresses } from './shared-addresses.ts';

/** A place of shared state, as a process needs it to join the others. */
export interface SharedPlace {
  /** A word for this process in the log. */
  readonly kind: 'replica' | 'worker';
  /** The address where this process accepts requests of the others. */
  readonly listen: InternalAddress;
  /** Returns the address under which the others reach it. @param port the port of `listen`, once it is bound. */
  readonly addressOf: (port: number) => string;
  readonly keys: KeyStore;
  readonly placements: PlacementTable;
  readonly counters: CounterTable;
  readonly rates: RateTable;
  /** The API keys of clients that all replicas share; undefined if they are in a file. */
  readonly apiKeys: ApiKeyStore | undefined;
  /** Makes the stores that this process writes as a member. */
  readonly storesOf: (owners: ReplicaOwners) => MemberStores;
  /** Runs once for each process whose entry cannot be read. Default: all can be. */
  readonly onUnreadable?: (process: string) => void;
  /** Runs once for an address, as long as several replicas have it. Default: none is shared. */
  readonly onSharedAddress?: (address: string) => void;
  /** Runs when this process begins to serve clients. */
  readonly onServing?: () => void;
}

interface MemberStores {
  readonly state: State;
  /** The events of streams for other replicas; undefined if they are kept in this process alone. */
  readonly events: Pick<StoredEventLogsParts, 'store' | 'onRefused'> | undefined;
}

/** The parts of this process that its replicas work with. */
export interface ReplicaSurroundings {
  readonly metrics: Metrics;
  readonly log: Logger;
  readonly callers: Callers;
}

/** The parts of this replica that operators of all replicas see and change. */
interface AnswerForAllParts {
  readonly own: AdminPort;
  readonly core: ChangedCore & Pick<Core, 'sessions'>;
  /** Records an operation. @param target what it changes, if that has an id. */
  readonly onOperation: (operator: string, operation: string, target: string | undefined) => void;
}

/** The operations for all replicas. */
export interface AnsweringForAll {
  readonly port: AdminPort;
  /** Makes the changes that the others know, after the config has changed. Never rejects. */
  readonly catchUp: () => Promise<void>;
}

/** The part of a gateway that works together with other replicas. */
export interface Replicas extends MemberStores {
  readonly owners: ReplicaOwners;
  readonly counters: SharedCounters;
  readonly rateTable: RateTable;
  readonly apiKeys: ApiKeyStore | undefined;
  /** Returns the number of replicas, this one included. */
  readonly processes: () => number;
  /** Lets this replica answer operators for all. */
  answerForAll(parts: AnswerForAllParts): Promise<AnsweringForAll>;
  /** Answers requests of other replicas from now on, and may get their sessions. Until then requests get 503. Never rejects. */
  serve(front: Front, endpoints: Endpoints, bodyBytes: () => number, callbacks: RingCallbacks): Promise<void>;
  /** Hands over all sessions, and closes the port and the connection to the place of their state. */
  close(): Promise<void>;
}

/**
 * Joins the other processes of a gateway: opens the port for them, and says that this one can own sessions.
 *
 * @param cleanups close the place. They are moved to what is returned.
 * @throws {StartError} if the internal address cannot be used.
 */
export async function joinReplicas(
  place: SharedPlace,
  { metrics, log, callers }: ReplicaSurroundings,
  cleanups: Cleanups,
): Promise<Replicas> {
  const { kind, placements, apiKeys } = place;
  const keys = new InternalKeys();
  keys.update(await place.keys.read());
  const onLimit = (limit: LimitName) => metrics.countLimit(limit);
  let handle: ForwardedHandler = (exchange) => exchange.refuse(NOT_SERVING);
  let handleOperator: ForwardedHandler = (exchange) => exchange.refuse(STARTING);
  let isSelf = (_member: string) => false;
  const server = await openInternalServer(
    place.listen,
    { keys, metrics, isSelf: (member) => isSelf(member), onLimit },
    (exchange, head) => (head.kind === 'admin' ? handleOperator : handle)(exchange, head),
  );
  cleanups.defer(() => server.close());
  const address = place.addressOf(server.port);
  const findShared = sharedAddresses(placements.leaseMs, (shared) => place.onSharedAddress?.(shared));
  const owners = await ReplicaOwners.open({
    table: placements,
    process: randomUUID(),
    address,
    version: VERSION,
    keys,
    metrics,
    tokenOf: (principal) => callers.tokenOf(principal),
    isEnded: (session) => state.sessions.isEnded(session),
    onMembers: (members) => findShared(members, performance.now()),
    onUnreadable: (other) => place.onUnreadable?.(other),
    onTrouble: (trouble, cause) => {
      metrics.countLeaseTrouble(trouble);
      if (trouble === 'lapsed') log.warn(`the lease of this ${kind} has lapsed; it joins again`);
      else log.debug({ err: cause }, `the lease of this ${kind} could not be renewed`);
    },
  });
  cleanups.defer(() => owners.close());
  isSelf = (member) => owners.isSelf(member);
  const processes = () => owners.others.length + 1;
  const counters = new SharedCounters({ table: place.counters, process: owners.name, processes });
  cleanups.defer(() => counters.close());
  const { state, events } = place.storesOf(owners);
  const running = cleanups.move();
  return {
    state,
    events,
    owners,
    counters,
    rateTable: place.rates,
    apiKeys,
    processes,
    answerForAll: async ({ own, core, onOperation }) => {
      const changes = new LatestChanges(core, log);
      const colleagues = () => owners.colleagues();
      const all = new ReplicasAdmin({ own, name: address, colleagues, changes, onLimit, log });
      running.defer(() => all.close());
      const answer = replicaAnswers({
        own,
        changes,
        hasSession: (digest) => sessionOf(core, digest) !== undefined,
        onOperation: (operator, operation, target, through) => {
          onOperation(operator, operation, target);
          log.info({ operator, operation, target, through }, 'operator request');
        },
      });
      const onFailed = (thrown: unknown) => log.error({ err: thrown }, 'operator request of another replica failed');
      // Before the others are asked: what an operator changes after that comes by itself.
      handleOperator = (exchange, head) => answerQuestion(exchange, head, answer, onFailed);
      const catchUp = () => all.catchUp();
      owners.onRejoined = catchUp;
      // It has no calls in flight yet.
      await all.catchUp(0);
      return { port: all.port, catchUp };
    },
    serve: async (front, endpoints, bodyBytes, callbacks) => {
      place.onServing?.();
      handle = forwardedRequests({ front, endpoints, log, callers, bodyBytes });
      const watch = new RingWatch(place.keys, keys, log, {
        ...callbacks,
        // The connections between replicas were authenticated by the lost keys.
        onLost: () => {
          server.closeConnections();
          owners.closeConnections();
        },
      });
      running.defer(() => watch.close());
      await owners.announce();
    },
    close: () => running[Symbol.asyncDispose](),
  };
}
