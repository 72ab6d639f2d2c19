import assert from 'node:assert/strict';
import { randomUUID } from 'node:crypto';
import { test } from 'node:test';
import type { RateTable } from '../../src/store/rate-table.ts';
import { waitUntil } from '../support/wait-until.ts';

const OPTIONS = { timeout: 120_000 };
const MINUTE_MS = 60_000;
const SECOND_MS = 1_000; // subject

/** The contract of every rate table. */
export function rateTableContract(name: string, open: () => Promise<RateTable>): void {
  test(`${name}: a window grants its limit, and the last taker gets the rest`, OPTIONS, async () => {
    const table = await open();
    const counter = randomUUID();
    const take = async (units: number) => (await table.take(counter, units, 10, MINUTE_MS)).units;
    assert.deepEqual([await take(4), await take(4), await take(4), await take(4)], [4, 4, 2, 0]);
    const { endsInMs } = await table.take(counter, 1, 10, MINUTE_MS);
    assert.ok(endsInMs > 0 && endsInMs <= MINUTE_MS);
    assert.equal((await table.take(randomUUID(), 7, 10, MINUTE_MS)).units, 7, 'another counter');
  });

  test(`${name}: many takers at once get the limit exactly`, OPTIONS, async () => {
    const table = await open();
    const counter = randomUUID();
    const taken = await Promise.all(Array.from({ length: 40 }, () => table.take(counter, 3, 50, MINUTE_MS)));
    assert.equal(
      taken.reduce((sum, { units }) => sum + units, 0),
      50,
    );
  });

  test(`${name}: the next window grants the limit again`, OPTIONS, async () => {
    const table = await open();
    const counter = randomUUID();
    assert.equal((await table.take(counter, 5, 5, SECOND_MS)).units, 5);
    await waitUntil(async () => (await table.take(counter, 5, 5, SECOND_MS)).units === 5);
  });
}
