import type { CounterTable } from '../counter-table.ts';
import type { MemoryPlacementTable } from '../memory/placement-table.ts';
import type { State } from '../open-state.ts';
import type { OutcomeStore } from '../outcome-store.ts';
import type { StoredOfferKey } from '../offer-store.ts';
import type { RateTable } from '../rate-table.ts';
import { sessionName } from '../placement-table.ts';
import type { SessionRef } from '../session-store.ts';
import { STORE_NOTICES, STORES } from './methods.ts';
import type { PipeCalls } from './pipe-calls.ts';

/** The stores of the parent. */
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
    const { outcomes, counters, rates } = this.#stores;
    this.#serveSessions(calls);
    this.#serveKeys(calls);
    this.#serveOffers(calls);
    this.#serveCalls(calls);
    calls.serve(STORES.outcomes.settle, ({ id, outcome, ttlMs }) => outcomes.settle(id, outcome, ttlMs));
    calls.serve(STORES.outcomes.find, (id) => outcomes.find(id));
    calls.serve(STORES.counters.lease, (each) => counters.lease(each.counter, each.process, each.wanted, each.limit));
    calls.serve(STORES.rates.take, (each) => rates.take(each.counter, each.units, each.limit, each.windowMs));
    const leaveAll = this.#servePlacements(calls);
    return () => {
      this.#workers.delete(calls);
      leaveAll();
    };
  }

  /** Tells all workers the reason why the state cannot be written; undefined when it can be written again. */
  notifyStateFailure(failure: string | undefined): void {
    for (const worker of this.#workers) void worker.call(STORE_NOTICES.stateFailure, failure).catch(ignore);
  }

  #serveSessions(calls: PipeCalls): void {
    const { state, placements } = this.#stores;
    const { sessions } = state;
    calls.serve(STORES.sessions.nextSerial, (principal) => sessions.nextSerial(principal));
    calls.serve(STORES.sessions.load, (session) => sessions.load(session));
    calls.serve(STORES.sessions.isEnded, (session) => sessions.isEnded(session));
    calls.serve(STORES.sessions.change, async ({ session, change, placement }) => {
      // Nothing happens between the check and the change, which is made in memory at once.
      if (placements.isCurrent(keyOf(session), placement)) return await sessions.change(session, change);
      return (await sessions.isEnded(session)) ? undefined : 'fenced';
    });
    calls.serve(STORES.sessions.end, async (session) => {
      const ended = sessions.end(session);
      await placements.revoke(keyOf(session));
      return await ended;
    });
  }

  #serveKeys(calls: PipeCalls): void {
    const { keys } = this.#stores.state;
    calls.serve(STORES.keys.read, () => keys.read());
    calls.serve(STORES.keys.add, async ({ nowMs, graceMs }) => {
      await keys.add(nowMs, graceMs);
      for (const worker of this.#workers) void worker.call(STORE_NOTICES.ringChanged, undefined).catch(ignore);
    });
  }

  #serveOffers(calls: PipeCalls): void {
    const { offers } = this.#stores.state;
    const notifyOthers = (key: StoredOfferKey): void => {
      for (const worker of this.#workers) {
        if (worker !== calls) void worker.call(STORE_NOTICES.offerWritten, key).catch(ignore);
      }
    };
    calls.serve(STORES.offers.read, (key) => offers.read(key));
    calls.serve(STORES.offers.write, async ({ key, text }) => {
      await offers.write(key, text);
      notifyOthers(key);
    });
    calls.serve(STORES.offers.remove, (key) => offers.remove(key));
    calls.serve(STORES.offers.hasFailed, (key) => offers.hasFailed(key));
    calls.serve(STORES.offers.setFailed, ({ key, hasFailed }) => offers.setFailed(key, hasFailed));
    calls.serve(STORES.offers.listedAtMs, (key) => offers.listedAtMs(key));
    calls.serve(STORES.offers.setListed, (key) => offers.setListed(key));
  }

  #serveCalls(calls: PipeCalls): void {
    const { tasks, keyedCalls } = this.#stores.state;
    calls.serve(STORES.tasks.list, (client) => tasks.list(client));
    calls.serve(STORES.tasks.add, ({ client, task }) => tasks.add(client, task));
    calls.serve(STORES.tasks.remove, ({ client, address }) => tasks.remove(client, address));
    calls.serve(STORES.keyedCalls.claim, ({ call, claim, keepMs }) => keyedCalls.claim(call, claim, keepMs));
    calls.serve(STORES.keyedCalls.end, ({ call, claim, outcome, keepMs }) =>
      keyedCalls.end(call, claim, outcome, keepMs),
    );
    calls.serve(STORES.keyedCalls.release, ({ call, claim }) => keyedCalls.release(call, claim));
  }

  /** Returns a function that lets all members of the worker leave. */
  #servePlacements(calls: PipeCalls): () => void {
    const { placements } = this.#stores;
    const methods = STORES.placements;
    /** The members that the worker is or was. */
    const members = new Set<string>();
    calls.serve(methods.join, (member) => {
      members.add(member.id);
      return placements.join(member);
    });
    calls.serve(methods.renew, (id) => placements.renew(id));
    calls.serve(methods.leave, (id) => placements.leave(id));
    calls.serve(methods.members, () => placements.members());
    calls.serve(methods.claim, ({ key, member, from }) => placements.claim(key, member, from));
    calls.serve(methods.confirm, ({ key, placement }) => placements.confirm(key, placement));
    calls.serve(methods.release, ({ key, placement, formerMs }) => placements.release(key, placement, formerMs));
    calls.serve(methods.former, (key) => placements.former(key));
    calls.serve(methods.revoke, (key) => placements.revoke(key));
    calls.serve(methods.watch, (member) =>
      placements.watch(member, (key) => void calls.call(STORE_NOTICES.revoked, { member, key }).catch(ignore)),
    );
    calls.serve(methods.unwatch, (member) => placements.unwatch(member));
    return () => {
      for (const id of members) {
        void placements.unwatch(id);
        void placements.leave(id);
      }
    };
  }
}

function keyOf({ principal, serial }: SessionRef): { readonly principal: string; readonly name: string } {
  return { principal, name: sessionName(serial) };
}

/** A worker that cannot be told has gone. */
function ignore(): void {}
