import { MemoryCounterTable } from '../../../src/store/memory/counter-table.ts';
import { counterTableContract } from '../counter-table.contract.ts';

counterTableContract('memory', async (leaseMs) => new MemoryCounterTable(leaseMs));
