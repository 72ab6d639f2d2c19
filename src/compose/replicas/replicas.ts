import type { Logger } from 'pino';
import { Cleanups } from '../cleanups.ts';
import type { Config, RedisConfig } from '../../config/values/config.ts';
import { addressText } from '../../config/schema/address.ts';
import type { Endpoints } from '../../downstream/http/app.ts';
import type { StoredEventLogsParts } from '../../downstream/streams/stored-event-log.ts';
import type { LimitName } from '../../limits.ts';
import type { Front } from '../../gateway/front/front.ts';
import { forwardedRequests } from '../../replicas/forwarded-requests.ts';
import type { Callers } from '../../policy/callers.ts';
import type { AdminPort } from '../../operator/admin/admin-port.ts';
import { answerQuestion } from '../../replicas/operator-question.ts';
import { InternalKeys } from '../../replicas/internal-keys.ts';
import type { ReplicaOwners } from '../../replicas/replica-owners.ts';
import type { ApiKeyStore } from '../../store/api-key-store.ts';
import type { State } from '../../store/open-state.ts';
import { makeStateDir } from '../../store/disk/state-file.ts';
import type { RedisAccess } from '../../store/redis/access.ts';
import { RedisApiKeyStore } from '../../store/redis/api-key-store.ts';
import { RedisConnection } from '../../store/redis/connection.ts';
import { RedisCounterTable } from '../../store/redis/counter-table.ts';
import { RedisEventStore } from '../../store/redis/event-store.ts';
import { RedisKeyedCallStore } from '../../store/redis/keyed-call-store.ts';
import { RedisKeyStore } from '../../store/redis/key-store.ts';
import { RedisKeys } from '../../store/redis/keys.ts';
import { RedisOfferStore } from '../../store/redis/offer-store.ts';
import { RedisOutcomeStore } from '../../store/redis/outcome-store.ts';
import { RedisPlacementTable } from '../../store/redis/placement-table.ts';
import { SealedBox } from '../../store/redis/sealed-box.ts';
import { RedisRateTable } from '../../store/redis/rate-table.ts';
import { RedisSessionStore } from '../../store/redis/session-store.ts';
import { checkRedis } from '../../store/redis/start-checks.ts';
import { RedisTaskStore } from '../../store/redis/task-store.ts';
import type { RateTable } from '../../store/rate-table.ts';
import type { SharedCounters } from '../../store/shared-counters.ts';
import type { Metrics } from '../../telemetry/metrics.ts';
import type { Core } from '../core/core.ts';
import { joinProcesses } from './join-processes.ts';
import { type ChangedCore, LatestChanges } from './latest-changes.ts';
import { sessionOf } from '../admin/admin-port.ts';
import { replicaAnswers } from './replica-answers.ts';
import { ReplicasAdmin } from './replicas-admin.ts';
import { type RingCallbacks, RingWatch } from './ring-watch.ts';

/** A replica that does not renew its lease for this long has lost its sessions. */
const LEASE_MS = 5_000;
/** The units that a dead replica has counted are free after this time. */
const COUNTER_LEASE_MS = 30_000;

/** The parts of this replica that operators of all replicas see and change. */
export interface AnswerForAllParts {
  readonly own: AdminPort;
  readonly core: ChangedCore & Pick<Core, 'sessions'>;
  /** Records an operation. @param target what it changes, if that has an id. */
  readonly onOperation: (operator: string, operation: string, target: string | undefined) => void;
}

/** The operations for all replicas. */
interface AnsweringForAll {
  readonly port: AdminPort;
  /** Makes the changes that the others know, after the config has changed. Never rejects. */
  readonly catchUp: () => Promise<void>;
}

/** The part of a gateway that works together with other replicas. */
export interface Replicas {
  readonly state: State;
  readonly owners: ReplicaOwners;
  readonly counters: SharedCounters;
  readonly rateTable: RateTable;
  /** Returns the number of replicas, this one included. */
  readonly processes: () => number;
  /** The events of streams for other replicas; undefined if they are kept in this process alone. */
  readonly events: Pick<StoredEventLogsParts, 'store' | 'onRefused'> | undefined;
  /** `host:port` where other replicas connect. */
  readonly address: string;
  /** The API keys of clients that all replicas share; undefined if they are in a file. */
  readonly apiKeys: ApiKeyStore | undefined;
  /** Lets this replica answer operators for all; undefined for workers, whose parent does. */
  readonly answerForAll: ((parts: AnswerForAllParts) => Promise<AnsweringForAll>) | undefined;
  /**
   * Answers requests of other replicas from now on. Until then they get 503.
   */
  serve(front: Front, endpoints: Endpoints, bodyBytes: () => number, callbacks: RingCallbacks): void;
  /** Hands over all sessions, and closes the port and the connection to Redis. */
  close(): Promise<void>;
}

/**
 * Connects to Redis and joins the other replicas.
 *
 * @throws {StartError} if Redis or the internal address cannot be used.
 */
export async function openReplicas(
  { redis, stateDir, sessions: limits }: Pick<Config, 'stateDir' | 'sessions'> & { readonly redis: RedisConfig },
  metrics: Metrics,
  log: Logger,
  callers: Callers,
): Promise<Replicas> {
  // For the command line. A replica works without it.
  await makeStateDir(stateDir).catch((thrown: unknown) => log.warn({ err: thrown, stateDir }, 'no state directory'));
  await using cleanups = new Cleanups();
  const connection = cleanups.use(
    await RedisConnection.open(redis, { onCommandFailed: (reason) => metrics.countRedisFailure(reason) }),
  );
  const keys = new RedisKeys(redis.prefix);
  connection.bePatient();
  await checkRedis(connection, keys, () => Date.now());
  const access: RedisAccess = { connection, keys, box: new SealedBox(redis.wrappingKeys) };
  const ring = new RedisKeyStore(access);
  await ring.reseal();
  const apiKeys = new RedisApiKeyStore(access);
  // They can be read all the same, or their reading says why not.
  await apiKeys.reseal().catch((thrown: unknown) => log.warn({ err: thrown }, 'API keys were not encrypted again'));
  const internalKeys = new InternalKeys();
  internalKeys.update(await ring.read());

  const onLimit = (limit: LimitName) => metrics.countLimit(limit);
  const host = connection.localHost ?? '127.0.0.1';
  const table = new RedisPlacementTable(access, LEASE_MS);
  const { server, owners, counters, address, processes, setHandler, setOperatorHandler } = await joinProcesses({
    kind: 'replica',
    listen: redis.internal ?? { host, port: 0 },
    addressOf: (port) => addressText(redis.advertise ?? { host, port }),
    keys: internalKeys,
    table,
    counterTable: new RedisCounterTable(access, COUNTER_LEASE_MS),
    metrics,
    log,
    callers,
    onLimit,
    isEnded: (session) => sessions.isEnded(session),
    cleanups,
  });

  const sessions: RedisSessionStore = new RedisSessionStore({
    ...access,
    fenceOf: (session) => owners.fenceOf(session),
    onFenced: (session) => owners.recheck(session),
    revokedText: (key) => table.revokedText(key),
    onLimit,
  });
  const { eventLimit: events, eventLimitBytes: bytes } = limits;
  const eventStore = new RedisEventStore({
    ...access,
    fenceOf: (session) => owners.fenceOf(session),
    process: owners.name,
    isAlive: (name) => owners.isAlive(name),
    limits: { events, bytes },
    onLimit,
  });
  const state: State = {
    keys: ring,
    sessions,
    offers: new RedisOfferStore(access, onLimit),
    tasks: new RedisTaskStore(access, onLimit),
    keyedCalls: new RedisKeyedCallStore(access, onLimit),
    outcomes: new RedisOutcomeStore(access, onLimit),
    notice: undefined,
    servesWithout: true,
    [Symbol.asyncDispose]: async () => {
      await eventStore[Symbol.asyncDispose]();
      await sessions[Symbol.asyncDispose]();
    },
  };
  metrics.readReplicas({
    isRedisDown: () => connection.failure !== undefined,
    replicas: processes,
  });

  const running = cleanups.move();
  return {
    state,
    owners,
    counters,
    rateTable: new RedisRateTable(access),
    processes,
    events: redis.events ? { store: eventStore, onRefused: (session) => owners.recheck(session) } : undefined,
    address,
    apiKeys,
    answerForAll: async ({ own, core, onOperation }) => {
      const changes = new LatestChanges(core, log);
      const hasUpstream = (id: string): boolean => core.upstreams.has(id);
      const colleagues = () => owners.colleagues();
      const all = new ReplicasAdmin({ own, name: address, colleagues, changes, hasUpstream, onLimit, log });
      running.defer(() => all.close());
      const handle = replicaAnswers({
        own,
        changes,
        hasUpstream,
        hasSession: (digest) => sessionOf(core, digest) !== undefined,
        onOperation: (operator, operation, target, through) => {
          onOperation(operator, operation, target);
          log.info({ operator, operation, target, through }, 'operator request');
        },
      });
      const onFailed = (thrown: unknown) => log.error({ err: thrown }, 'operator request of another replica failed');
      // Before the others are asked: what an operator changes after that comes by itself.
      setOperatorHandler((exchange, head) => answerQuestion(exchange, head, handle, onFailed));
      const catchUp = () => all.catchUp();
      owners.onRejoined = catchUp;
      // It has no calls in flight yet.
      await all.catchUp(0);
      return { port: all.port, catchUp };
    },
    serve: (front, endpoints, bodyBytes, callbacks) => {
      connection.endPatience();
      setHandler(forwardedRequests({ front, endpoints, log, callers, bodyBytes }));
      const watch = new RingWatch(ring, internalKeys, log, {
        ...callbacks,
        // The connections between replicas were authenticated by the lost keys.
        onLost: () => {
          server.closeConnections();
          owners.closeConnections();
        },
      });
      running.defer(() => watch.close());
    },
    close: () => running[Symbol.asyncDispose](),
  };
}
