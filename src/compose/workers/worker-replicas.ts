import type { Logger } from 'pino';
import { Cleanups } from '../cleanups.ts';
import type { Callers } from '../../policy/callers.ts';
import { forwardedRequests } from '../../replicas/forwarded-requests.ts';
import { internalAddressText } from '../../replicas/internal-address.ts';
import { InternalKeys } from '../../replicas/internal-keys.ts';
import type { KeyStore } from '../../store/key-store.ts';
import type { State } from '../../store/open-state.ts';
import { STORE_NOTICES, STORES } from '../../store/piped/methods.ts';
import { pipedOfferStore } from '../../store/piped/offer-store.ts';
import type { PipeCalls } from '../../store/piped/pipe-calls.ts';
import { pipedPlacementTable } from '../../store/piped/placement-table.ts';
import { remoteStore } from '../../store/piped/remote-store.ts';
import { pipedSessionStore } from '../../store/piped/session-store.ts';
import { PipedTaskStore } from '../../store/piped/task-store.ts';
import type { SessionStore } from '../../store/session-store.ts';
import type { Metrics } from '../../telemetry/metrics.ts';
import { joinProcesses } from '../replicas/join-processes.ts';
import type { Replicas } from '../replicas/replicas.ts';
import type { WorkerSetup } from './methods.ts';

/** A worker and its parent. */
export interface WorkerSide {
  readonly calls: PipeCalls;
  readonly setup: WorkerSetup;
}

/** Joins the other workers of one machine: as replicas do, with the stores of the parent in place of Redis. */
export async function openWorkerReplicas(
  { calls, setup }: WorkerSide,
  metrics: Metrics,
  log: Logger,
  callers: Callers,
): Promise<Replicas> {
  const ring: KeyStore = { ...remoteStore(calls, STORES.keys), isShared: true };
  const internalKeys = new InternalKeys();
  internalKeys.update(await ring.read());
  const socket = { path: setup.socket };
  await using cleanups = new Cleanups();
  const { owners, counters, address, processes, setHandler } = await joinProcesses({
    kind: 'worker',
    listen: socket,
    addressOf: () => internalAddressText(socket),
    keys: internalKeys,
    table: pipedPlacementTable(calls, setup.leaseMs),
    counterTable: { ...remoteStore(calls, STORES.counters), leaseMs: setup.counterLeaseMs },
    metrics,
    log,
    callers,
    onLimit: (limit) => metrics.countLimit(limit),
    isEnded: (session) => sessions.isEnded(session),
    cleanups,
  });
  const sessions: SessionStore = pipedSessionStore({
    calls,
    fenceOf: (session) => owners.fenceOf(session),
    onFenced: (session) => owners.recheck(session),
  });
  const state: State = {
    keys: ring,
    sessions,
    offers: pipedOfferStore(calls),
    tasks: new PipedTaskStore(calls),
    keyedCalls: remoteStore(calls, STORES.keyedCalls),
    outcomes: remoteStore(calls, STORES.outcomes),
    notice: setup.notice,
    servesWithout: false,
    [Symbol.asyncDispose]: () => sessions[Symbol.asyncDispose](),
  };
  const running = cleanups.move();
  return {
    state,
    owners,
    counters,
    rateTable: remoteStore(calls, STORES.rates),
    processes,
    events: undefined,
    address,
    apiKeys: undefined,
    answerForAll: undefined,
    serve: (front, endpoints, bodyBytes, { onRingChanged }) => {
      setHandler(forwardedRequests({ front, endpoints, log, callers, bodyBytes }));
      calls.serve(STORE_NOTICES.ringChanged, async () => {
        internalKeys.update(await ring.read());
        await onRingChanged();
      });
    },
    close: () => running[Symbol.asyncDispose](),
  };
}
