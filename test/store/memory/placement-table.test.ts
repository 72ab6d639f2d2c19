import { MemoryPlacementTable } from '../../../src/store/memory/placement-table.ts';
import { placementTableContract } from '../placement-table.contract.ts';

placementTableContract('memory', async (leaseMs, count) => {
  const table = new MemoryPlacementTable(leaseMs);
  return Array.from({ length: count }, () => table);
});
