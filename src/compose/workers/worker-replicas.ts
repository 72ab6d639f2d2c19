import { Cleanups } from '../cleanups.ts';
import { internalAddressText } from '../../replicas/internal-address.ts';
import type { KeyStore } from '../../store/key-store.ts';
import { STORES } from '../../store/piped/methods.ts';
import { pipedOfferStore } from '../../store/piped/offer-store.ts';
import type { PipeCalls } from '../../store/piped/pipe-calls.ts';
import { pipedPlacementTable } from '../../store/piped/placement-table.ts';
import { remoteStore } from '../../store/piped/remote-store.ts';
import { pipedSessionStore } from '../../store/piped/session-store.ts';
import { sharedTaskStore } from '../../store/memory/shared-task-store.ts';
import { joinReplicas, type Replicas, type ReplicaSurroundings, type SharedPlace } from '../replicas/replicas.ts';
import type { WorkerSetup } from './methods.ts';

export interface WorkerSide {
  readonly calls: PipeCalls;
  readonly setup: WorkerSetup;
}

/** Joins the other workers of one machine: as replicas do, with the stores of the parent in place of Redis. */
export async function openWorkerReplicas(
  { calls, setup }: WorkerSide,
  surroundings: ReplicaSurroundings,
): Promise<Replicas> {
  const keys: KeyStore = { ...remoteStore(calls, STORES.keys), isShared: true };
  const socket = { path: setup.socket };
  await using cleanups = new Cleanups();
  const place: SharedPlace = {
    kind: 'worker',
    listen: socket,
    addressOf: () => internalAddressText(socket),
    keys,
    placements: pipedPlacementTable(calls, setup.leaseMs),
    counters: { ...remoteStore(calls, STORES.counters), leaseMs: setup.counterLeaseMs },
    rates: remoteStore(calls, STORES.rates),
    apiKeys: undefined,
    storesOf: (owners) => {
      const sessions = pipedSessionStore({
        calls,
        fenceOf: (session) => owners.fenceOf(session),
        onFenced: (session) => owners.recheck(session),
      });
      const state = {
        keys,
        sessions,
        offers: pipedOfferStore(calls),
        // The parent counts the bounds.
        tasks: sharedTaskStore(remoteStore(calls, STORES.tasks), () => undefined),
        keyedCalls: remoteStore(calls, STORES.keyedCalls),
        outcomes: remoteStore(calls, STORES.outcomes),
        notice: setup.notice,
        servesWithout: false,
        [Symbol.asyncDispose]: () => sessions[Symbol.asyncDispose](),
      };
      return { state, events: undefined };
    },
  };
  return await joinReplicas(place, surroundings, cleanups);
}
