import assert from 'node:assert/strict';
import { test } from 'node:test';
import { LIMITS, type LimitName } from '../../../src/limits.ts';
import { MemoryRateTable } from '../../../src/store/memory/rate-table.ts';
import { rateTableContract } from '../rate-table.contract.ts';

rateTableContract('memory', async () => new MemoryRateTable(() => undefined));

test('limit rateCounters: the oldest counter begins again', { timeout: 120_000 }, async () => {
  const reached: LimitName[] = [];
  const table = new MemoryRateTable((limit) => reached.push(limit));
  const take = async (counter: string) => (await table.take(counter, 1, 1, 60_000)).units;
  for (let n = 0; n < LIMITS.rateCounters; n++) await take(`c${n}`);
  assert.deepEqual([reached.length, await take('c1')], [0, 0]);
  await take('one more');
  assert.deepEqual(reached, ['rateCounters']);
  assert.deepEqual([await take('c0'), await take('c5')], [1, 0]);
});
