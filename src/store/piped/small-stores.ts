import type { CounterTable } from '../counter-table.ts';
import type { KeyedCallStore } from '../keyed-call-store.ts';
import type { KeyStore } from '../key-store.ts';
import type { OutcomeStore } from '../outcome-store.ts';
import type { RateTable } from '../rate-table.ts';
import { STORES } from './methods.ts';
import type { PipeCalls } from './pipe-calls.ts';

/** Returns the key store of the parent. */
export function pipedKeyStore(calls: PipeCalls): KeyStore {
  return {
    isShared: true,
    read: () => calls.call(STORES.keys.read, undefined),
    add: (nowMs, graceMs) => calls.call(STORES.keys.add, { nowMs, graceMs }),
  };
}

/** Returns the store of the parent for calls with idempotency keys. */
export function pipedKeyedCallStore(calls: PipeCalls): KeyedCallStore {
  return {
    claim: (call, claim, keepMs) => calls.call(STORES.keyedCalls.claim, { call, claim, keepMs }),
    end: (call, claim, outcome, keepMs) => calls.call(STORES.keyedCalls.end, { call, claim, outcome, keepMs }),
    release: (call, claim) => calls.call(STORES.keyedCalls.release, { call, claim }),
  };
}

/** Returns the outcome store of the parent. */
export function pipedOutcomeStore(calls: PipeCalls): OutcomeStore {
  return {
    settle: (id, outcome, ttlMs) => calls.call(STORES.outcomes.settle, { id, outcome, ttlMs }),
    find: (id) => calls.call(STORES.outcomes.find, id),
  };
}

/** Returns the counter table of the parent. @param leaseMs the time that units are leased there, in ms. */
export function pipedCounterTable(calls: PipeCalls, leaseMs: number): CounterTable {
  return {
    leaseMs,
    lease: (counter, process, wanted, limit) => calls.call(STORES.counters.lease, { counter, process, wanted, limit }),
  };
}

/** Returns the rate table of the parent. */
export function pipedRateTable(calls: PipeCalls): RateTable {
  return {
    take: (counter, units, limit, windowMs) => calls.call(STORES.rates.take, { counter, units, limit, windowMs }),
  };
}
