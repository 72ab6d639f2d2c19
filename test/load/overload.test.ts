import assert from 'node:assert/strict';
import { test } from 'node:test';
import type { Work } from '../../src/load/load.ts';
import { LEAST_FOR_DELAY, LEAST_FOR_MEMORY, Overload } from '../../src/load/overload.ts';

const BOUND_MS = 500; // subject
const TURN_MS = 100; // subject

/** Records this many turns that are that late. */
function turns(overload: Overload, count: number, lateMs: number, inFlight: number): void {
  for (let n = 0; n < count; n++) overload.onTurn(lateMs, TURN_MS + lateMs, inFlight, BOUND_MS);
}

/** Returns the share of so many pieces of work that are refused. */
function refusedShare(overload: Overload, work: Work = 'call', inFlight = LEAST_FOR_DELAY, count = 1_000): number {
  let refused = 0;
  for (let n = 0; n < count; n++) if (overload.refusalOf(work, inFlight) !== undefined) refused++;
  return refused / count;
}

test('a loop that stays late refuses a growing share of calls and sessions', () => {
  const overload = new Overload();
  turns(overload, 5, 600, 1_000);
  const [first] = [overload.share];
  assert.ok(first > 0 && first < 1, `${first}`);
  assert.deepEqual(overload.reasons, ['loop-delay']);
  assert.ok(Math.abs(refusedShare(overload) - first) < 0.01);
  assert.ok(Math.abs(refusedShare(overload, 'session') - first) < 0.01);
  assert.equal(refusedShare(overload, 'stream'), 0, 'a stream costs the loop nothing');
  turns(overload, 5, 600, 1_000);
  assert.equal(overload.share, 1);
  assert.equal(refusedShare(overload), 1);
});

test('a few late turns among others refuse nothing', () => {
  const overload = new Overload();
  for (let n = 0; n < 20; n++) {
    turns(overload, 2, 5_000, 1_000);
    turns(overload, 3, 10, 1_000);
  }
  assert.equal(overload.share, 0);
});

test('a loop at full load that is not late refuses nothing', () => {
  const overload = new Overload();
  turns(overload, 100, BOUND_MS - 1, 10_000);
  assert.equal(refusedShare(overload), 0);
});

test('a late loop with few requests in flight refuses nothing, and soon forgets', () => {
  const overload = new Overload();
  turns(overload, 100, 5_000, LEAST_FOR_DELAY - 1);
  assert.equal(refusedShare(overload), 0);
  turns(overload, 20, 600, 1_000);
  assert.equal(refusedShare(overload, 'call', LEAST_FOR_DELAY - 1), 0);
  turns(overload, 20, 0, 0);
  assert.equal(overload.share, 0);
});

test('refusals stay while the loop is just below the bound, and fall when it is free', () => {
  const overload = new Overload();
  turns(overload, 20, 600, 1_000);
  turns(overload, 50, BOUND_MS - 1, 1_000);
  assert.equal(overload.share, 1);
  turns(overload, 20, 0, 1_000);
  assert.ok(overload.share > 0 && overload.share < 1, `${overload.share}`);
  // In 10 s at most everything is accepted again.
  turns(overload, 80, 0, 1_000);
  assert.equal(overload.share, 0);
  assert.deepEqual(overload.reasons, []);
});

const levels = [
  { used: 0.79, caches: false, refuses: false, closes: false },
  { used: 0.8, caches: true, refuses: false, closes: false },
  { used: 0.9, caches: true, refuses: true, closes: false },
  { used: 0.95, caches: true, refuses: true, closes: true },
  { used: 1.2, caches: true, refuses: true, closes: true },
];

for (const { used, caches, refuses, closes } of levels) {
  // R20
  test(`the measures at ${used * 100} % of the memory`, () => {
    const overload = new Overload();
    overload.onMemory(used);
    assert.equal(overload.mustDropCaches, false, 'one measurement alone');
    overload.onMemory(used);
    assert.deepEqual([overload.mustDropCaches, overload.mustCloseReaders], [caches, closes]);
    assert.deepEqual(overload.reasons, refuses ? ['memory'] : []);
    for (const work of ['call', 'session', 'stream'] as const) {
      assert.equal(refusedShare(overload, work, LEAST_FOR_MEMORY), refuses ? 1 : 0, work);
      assert.equal(refusedShare(overload, work, LEAST_FOR_MEMORY - 1), 0, 'with little in flight');
    }
  });
}

// R20
test('a measure goes on until the memory is clearly below its beginning', () => {
  const overload = new Overload();
  for (const used of [0.96, 0.96, 0.91, 0.91]) overload.onMemory(used);
  assert.equal(overload.mustCloseReaders, true);
  overload.onMemory(0.89);
  assert.deepEqual([overload.mustCloseReaders, overload.reasons.length], [false, 1]);
  overload.onMemory(0.84);
  assert.deepEqual([overload.mustDropCaches, overload.reasons.length], [true, 0]);
  overload.onMemory(0.7);
  assert.equal(overload.mustDropCaches, false);
});
