import { MemoryOutcomeStore } from '../../../src/store/memory/outcome-store.ts';
import { outcomeStoreContract } from '../outcome-store.contract.ts';

outcomeStoreContract('memory', async (onLimit) => new MemoryOutcomeStore(onLimit));
