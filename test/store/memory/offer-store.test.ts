import { MemoryOfferStore } from './memory-offer-store.ts';
import { offerStoreContract } from '../offer-store.contract.ts';

offerStoreContract('memory', async () =>
  Object.assign(new MemoryOfferStore(), { [Symbol.asyncDispose]: async () => undefined }),
);
