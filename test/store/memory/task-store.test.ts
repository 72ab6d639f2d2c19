import { MemoryTaskStore } from '../../../src/store/memory/task-store.ts';
import { taskStoreContract } from '../task-store.contract.ts';

taskStoreContract('memory', () => new MemoryTaskStore());
