import { randomUUID } from 'node:crypto';
import type { Logger } from 'pino';
import type { Cleanups } from '../cleanups.ts';
import type { LimitName } from '../../limits.ts';
import type { Callers } from '../../policy/callers.ts';
import type { InternalAddress } from '../../replicas/internal-address.ts';
import type { InternalKeys } from '../../replicas/internal-keys.ts';
import { type ForwardedHandler, InternalServer, NOT_SERVING, STARTING } from '../../replicas/internal-server.ts';
import { ReplicaOwners } from '../../replicas/replica-owners.ts';
import type { CounterTable } from '../../store/counter-table.ts';
import type { PlacementTable } from '../../store/placement-table.ts';
import { KEYS_ADVICE } from '../../store/redis/sealed-box.ts';
import type { SessionRef } from '../../store/session-store.ts';
import { SharedCounters } from '../../store/shared-counters.ts';
import type { Metrics } from '../../telemetry/metrics.ts';
import { VERSION } from '../../version.ts';
import { SharedAddresses } from './shared-addresses.ts';

/** The parts of {@link joinProcesses}. */
interface JoinParts {
  /** A word for this process in the log. */
  readonly kind: 'replica' | 'worker';
  /** The address where this process accepts requests of the others. */
  readonly listen: InternalAddress;
  /** Returns the address under which the others reach it. @param port the port of `listen`, once it is bound. */
  readonly addressOf: (port: number) => string;
  readonly keys: InternalKeys;
  readonly table: PlacementTable;
  readonly counterTable: CounterTable;
  readonly metrics: Metrics;
  readonly log: Logger;
  readonly callers: Callers;
  readonly onLimit: (limit: LimitName) => void;
  /** Returns whether a session has ended at any process. @throws {GatewayError} `store-unavailable` */
  readonly isEnded: (session: SessionRef) => Promise<boolean>;
  /** Gets what leaves again. */
  readonly cleanups: Cleanups;
}

/** The parts of this process that connect it to the others of one gateway. */
interface JoinedProcess {
  readonly server: InternalServer;
  readonly owners: ReplicaOwners;
  readonly counters: SharedCounters;
  readonly address: string;
  /** Returns the number of processes, with this one. */
  readonly processes: () => number;
  /** Handles the requests of clients that other processes pass on from now on. Until then they get 503. */
  readonly setHandler: (handler: ForwardedHandler) => void;
  /** As `setHandler`, for the questions of operators. */
  readonly setOperatorHandler: (handler: ForwardedHandler) => void;
}

/** Joins the other processes of a gateway: opens the port for them, and says that it can own sessions. @throws {StartError} */
export async function joinProcesses(parts: JoinParts): Promise<JoinedProcess> {
  const { kind, listen, addressOf, keys, table, counterTable, metrics, log, callers, onLimit, cleanups } = parts;
  let handle: ForwardedHandler = (exchange) => exchange.refuse(NOT_SERVING);
  let handleOperator: ForwardedHandler = (exchange) => exchange.refuse(STARTING);
  let isSelf = (_member: string) => false;
  const server = await InternalServer.open(
    listen,
    { keys, metrics, isSelf: (member) => isSelf(member), onLimit },
    (exchange, head) => (head.kind === 'admin' ? handleOperator : handle)(exchange, head),
  );
  cleanups.defer(() => server.close());
  const address = addressOf(server.port);
  const addresses = new SharedAddresses(table.leaseMs, (shared) =>
    log.error(
      { address: shared },
      'several replicas have this address, so requests and questions for one reach another; give each its own redis.advertise',
    ),
  );
  const owners = await ReplicaOwners.open({
    table,
    process: randomUUID(),
    address,
    version: VERSION,
    keys,
    metrics,
    tokenOf: (principal) => callers.tokenOf(principal),
    isEnded: parts.isEnded,
    onMembers: (members) => addresses.onMembers(members, performance.now()),
    onUnreadable: (other) =>
      log.error(
        { process: other, advice: KEYS_ADVICE },
        'another replica encrypts with a wrapping key that this one lacks; requests for its sessions get 503 here',
      ),
    onTrouble: (trouble, cause) => {
      metrics.countLeaseTrouble(trouble);
      if (trouble === 'lapsed') log.warn(`the lease of this ${kind} has lapsed; it joins again`);
      else log.debug({ err: cause }, `the lease of this ${kind} could not be renewed`);
    },
  });
  cleanups.defer(() => owners.close());
  isSelf = (member) => owners.isSelf(member);
  const processes = () => owners.others.length + 1;
  const counters = new SharedCounters({ table: counterTable, process: owners.name, processes });
  cleanups.defer(() => counters.close());
  return {
    server,
    owners,
    counters,
    address,
    processes,
    setHandler: (handler) => {
      handle = handler;
    },
    setOperatorHandler: (handler) => {
      handleOperator = handler;
    },
  };
}
