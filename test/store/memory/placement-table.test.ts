import assert from 'node:assert/strict';
import { test } from 'node:test';
import { MemoryPlacementTable } from '../../../src/store/memory/placement-table.ts';
import { stopTime } from '../../support/stopped-time.ts';
import { placementTableContract } from '../placement-table.contract.ts';

placementTableContract('memory', async (leaseMs, count) => {
  const table = new MemoryPlacementTable(leaseMs);
  return Array.from({ length: count }, () => table);
});

test('no lease lapses because all processes stood still', async (t) => {
  const time = stopTime(t);
  const table = new MemoryPlacementTable(5_000);
  const ids = ['one', 'two'];
  for (const id of ids) await table.join({ id, process: id, address: '127.0.0.1:1', version: '1' });
  time.pass(3_600_000);
  for (const id of ids) assert.equal((await table.renew(id))?.length, 2);
});
