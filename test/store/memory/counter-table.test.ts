import assert from 'node:assert/strict';
import { test } from 'node:test';
import { MemoryCounterTable } from '../../../src/store/memory/counter-table.ts';
import { counterTableContract } from '../counter-table.contract.ts';

counterTableContract('memory', async (leaseMs) => new MemoryCounterTable(leaseMs));

test('counters are kept no longer than the leases of their units', async (t) => {
  let nowMs = 0;
  t.mock.method(performance, 'now', () => nowMs);
  const table = new MemoryCounterTable(100);
  for (const counter of ['a', 'b', 'c']) await table.lease(counter, 'dead', 1, 10);
  nowMs = 50;
  await table.lease('a', 'alive', 1, 10);
  assert.equal(table.size, 3);
  nowMs = 100;
  assert.equal(await table.lease('d', 'alive', 10, 10), 10);
  assert.equal(table.size, 2, 'those of the living process');
  assert.equal(await table.lease('a', 'other', 10, 10), 9);
});
