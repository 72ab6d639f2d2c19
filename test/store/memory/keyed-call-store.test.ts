import { MemoryKeyedCallStore } from '../../../src/store/memory/keyed-call-store.ts';
import { keyedCallStoreContract } from '../keyed-call-store.contract.ts';

keyedCallStoreContract('memory', async (onLimit, bounds) => new MemoryKeyedCallStore(onLimit, bounds));
