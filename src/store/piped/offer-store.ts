import type { OfferStore } from '../offer-store.ts';
import { STORE_NOTICES, STORES } from './methods.ts';
import type { PipeCalls } from './pipe-calls.ts';
import { remoteStore } from './remote-store.ts';

export function pipedOfferStore(calls: PipeCalls): OfferStore {
  const parent = remoteStore(calls, STORES.offers);
  return {
    ...parent,
    // The caller lists the upstream again.
    read: (key) => parent.read(key).catch(() => undefined),
    watch: async (listener) => calls.serve(STORE_NOTICES.offerWritten, async (key) => listener.onWritten(key)),
  };
}
