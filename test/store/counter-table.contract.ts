import assert from 'node:assert/strict';
import { randomUUID } from 'node:crypto';
import { test } from 'node:test';
import type { CounterTable } from '../../src/store/counter-table.ts';
import { waitUntil } from '../support/wait-until.ts';

const OPTIONS = { timeout: 120_000 };
const LONG_MS = 60_000;

/** The contract of every counter table. */
export function counterTableContract(name: string, open: (leaseMs: number) => Promise<CounterTable>): void {
  test(`${name}: processes together get no more than the limit`, OPTIONS, async () => {
    const table = await open(LONG_MS);
    const [counter, one, two] = [randomUUID(), randomUUID(), randomUUID()];
    assert.equal(await table.lease(counter, one, 6, 10), 6);
    assert.equal(await table.lease(counter, two, 6, 10), 4);
    assert.equal(await table.lease(counter, one, 7, 10), 6);
    assert.equal(await table.lease(counter, one, 2, 10), 2, 'it returns the others');
    assert.equal(await table.lease(counter, two, 9, 10), 8);
    assert.equal(await table.lease(randomUUID(), two, 9, 10), 9, 'another counter');
    assert.equal(await table.lease(counter, one, 0, 10), 0);
    assert.equal(await table.lease(counter, two, 99, 10), 10);
  });

  test(`${name}: many processes at once get the limit exactly`, OPTIONS, async () => {
    const table = await open(LONG_MS);
    const counter = randomUUID();
    const granted = await Promise.all(Array.from({ length: 20 }, () => table.lease(counter, randomUUID(), 3, 40)));
    assert.equal(
      granted.reduce((sum, units) => sum + units, 0),
      40,
    );
  });

  test(`${name}: a smaller limit grants nothing more until it is kept`, OPTIONS, async () => {
    const table = await open(LONG_MS);
    const [counter, one, two] = [randomUUID(), randomUUID(), randomUUID()];
    await table.lease(counter, one, 8, 10);
    assert.equal(await table.lease(counter, two, 1, 5), 0);
    assert.equal(await table.lease(counter, one, 8, 5), 5);
  });

  test(`${name}: the units of a process that does not renew them return`, OPTIONS, async () => {
    const table = await open(50);
    const [counter, one, two] = [randomUUID(), randomUUID(), randomUUID()];
    await table.lease(counter, one, 10, 10);
    assert.equal(await table.lease(counter, two, 1, 10), 0);
    await waitUntil(async () => (await table.lease(counter, two, 10, 10)) === 10);
  });
}
