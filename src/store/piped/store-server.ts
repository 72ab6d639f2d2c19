import type { CounterTable } from '../counter-table.ts';
import type { MemoryPlacementTable } from '../memory/placement-table.ts';
import type { State } from '../open-state.ts';
import type { OutcomeStore } from '../outcome-store.ts';
import type { RateTable } from '../rate-table.ts';
import { sessionKey } from '../placement-table.ts';
import { STATE_FAILURE, STORE_NOTICES, STORES } from './methods.ts';
import type { PipeCalls } from './pipe-calls.ts';
import { serveStore } from './remote-store.ts';

export interface ParentStores {
  readonly state: Pick<State, 'keys' | 'sessions' | 'offers' | 'tasks' | 'keyedCalls'>;
  readonly outcomes: OutcomeStore;
  readonly placements: MemoryPlacementTable;
  readonly counters: CounterTable;
  readonly rates: RateTable;
}

/** Answers the calls of workers from the stores of the parent, and tells each worker what the others have changed. */
export class StoreServer {
  readonly #stores: ParentStores;
  readonly #workers = new Set<PipeCalls>();

  constructor(stores: ParentStores) {
    this.#stores = stores;
  }

  /** Serves a worker. Call the function that it returns when the worker has gone: its lease lapses then, and others may have what it had. */
  add(calls: PipeCalls): () => void {
    this.#workers.add(calls);
    const { state, outcomes, counters, rates } = this.#stores;
    serveStore(calls, STORES.keys, state.keys);
    serveStore(calls, STORES.tasks, state.tasks);
    serveStore(calls, STORES.keyedCalls, state.keyedCalls);
    serveStore(calls, STORES.outcomes, outcomes);
    serveStore(calls, STORES.counters, counters);
    serveStore(calls, STORES.rates, rates);
    this.#serveSessions(calls);
    this.#serveOffers(calls);
    const leaveAll = this.#servePlacements(calls);
    return () => {
      this.#workers.delete(calls);
      leaveAll();
    };
  }

  /** Tells all workers that the state cannot be written, or can be written again. */
  notifyStateFailure(): void {
    const { failure } = this.#stores.state.sessions;
    for (const worker of this.#workers) void worker.call(STORE_NOTICES.stateFailure, failure).catch(ignore);
  }

  #serveSessions(calls: PipeCalls): void {
    const { state, placements } = this.#stores;
    const { sessions } = state;
    serveStore(calls, STORES.sessions, sessions);
    calls.serve(STATE_FAILURE, async () => sessions.failure);
    calls.serve(STORES.sessions.change, async ([session, change, placement]) => {
      // Nothing happens between the check and the change, which is made in memory at once.
      if (placements.isCurrent(sessionKey(session), placement)) return await sessions.change(session, change);
      return (await sessions.isEnded(session)) ? undefined : 'fenced';
    });
    calls.serve(STORES.sessions.end, async ([session]) => {
      const ended = sessions.end(session);
      await placements.revoke(sessionKey(session));
      return await ended;
    });
  }

  #serveOffers(calls: PipeCalls): void {
    const { offers } = this.#stores.state;
    serveStore(calls, STORES.offers, offers);
    calls.serve(STORES.offers.write, async ([key, text]) => {
      await offers.write(key, text);
      for (const worker of this.#workers) {
        if (worker !== calls) void worker.call(STORE_NOTICES.offerWritten, key).catch(ignore);
      }
    });
  }

  /** Returns a function that lets all members of the worker leave. */
  #servePlacements(calls: PipeCalls): () => void {
    const { placements } = this.#stores;
    const { watch, ...others } = STORES.placements;
    /** The members that the worker is or was. */
    const members = new Set<string>();
    serveStore(calls, others, placements);
    calls.serve(others.join, ([member]) => {
      members.add(member.id);
      return placements.join(member);
    });
    calls.serve(watch, ([member]) =>
      placements.watch(member, (key) => void calls.call(STORE_NOTICES.revoked, { member, key }).catch(ignore)),
    );
    return () => {
      for (const id of members) {
        void placements.unwatch(id);
        void placements.leave(id);
      }
    };
  }
}

/** A worker that cannot be told has gone. */
function ignore(): void {}
