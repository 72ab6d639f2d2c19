import assert from 'node:assert/strict';
import { randomUUID } from 'node:crypto';
import { test } from 'node:test';
import { LIMITS } from '../../src/limits.ts';
import type { OnOutcomeLimit, OutcomeStore } from '../../src/store/outcome-store.ts';
import { waitUntil } from '../support/wait-until.ts';

const OPTIONS = { timeout: 120_000 };
const LONG_MS = 600_000;

/** The contract of every outcome store. */
export function outcomeStoreContract(name: string, open: (onLimit: OnOutcomeLimit) => Promise<OutcomeStore>): void {
  const openQuiet = () => open(() => undefined);

  test(`${name}: the end of a call is found, and of no other`, OPTIONS, async () => {
    const store = await openQuiet();
    const id = randomUUID();
    assert.equal(await store.find(id), undefined);
    assert.equal(await store.settle(id, '{"ü":"\ud800"}', LONG_MS), true);
    assert.equal(await store.find(id), '{"ü":"\ud800"}');
    assert.equal(await store.find(`${id}x`), undefined);
  });

  test(`${name}: of many ends of one call the first wins`, OPTIONS, async () => {
    const store = await openQuiet();
    const id = randomUUID();
    const ends = Array.from({ length: 20 }, (_, n) => `end ${n}`);
    const settled = await Promise.all(ends.map((end) => store.settle(id, end, LONG_MS)));
    assert.equal(settled.filter(Boolean).length, 1);
    assert.equal(await store.find(id), ends[settled.indexOf(true)]);
  });

  test(`${name}: an end is gone when its handle has expired`, OPTIONS, async () => {
    const store = await openQuiet();
    const id = randomUUID();
    await store.settle(id, 'end', 20);
    await waitUntil(async () => (await store.find(id)) === undefined);
    assert.equal(await store.settle(id, 'again', LONG_MS), true);
  });

  test(`${name}: limit outcomeBytes: a larger end is not stored`, OPTIONS, async () => {
    const limits: string[] = [];
    const store = await open((limit) => limits.push(limit));
    const id = randomUUID();
    assert.equal(await store.settle(id, 'x'.repeat(LIMITS.outcomeBytes), LONG_MS), true);
    assert.deepEqual(limits, []);
    assert.equal(await store.settle(randomUUID(), 'x'.repeat(LIMITS.outcomeBytes + 1), LONG_MS), false);
    assert.deepEqual(limits, ['outcomeBytes']);
  });

  test(`${name}: limit outcomesBytes: the end that expires first is removed`, OPTIONS, async () => {
    const limits: string[] = [];
    const store = await open((limit) => limits.push(limit));
    const [brief, long] = [randomUUID(), randomUUID()];
    const large = 'x'.repeat(LIMITS.outcomeBytes);
    await store.settle(long, large, LONG_MS);
    await store.settle(brief, large, LONG_MS / 2);
    for (let n = 0; limits.length === 0; n++) await store.settle(randomUUID(), large, LONG_MS + n);
    assert.deepEqual(limits, ['outcomesBytes']);
    assert.equal(await store.find(brief), undefined);
    assert.equal(await store.find(long), large);
  });
}
