import assert from 'node:assert/strict';
import { test } from 'node:test';
import { FairPool, ONE_PRINCIPAL, type PoolWaiter, type Shares } from '../../../src/upstream/quota/fair-pool.ts';
import { random } from '../../support/random.ts';
import { sharesOf } from './shares.ts';
import { SEED } from '../../support/seed.ts';

/** Returns a pool for requests of which a test knows only the principal. */
function poolOf(shares: Shares, capacity: number): FairPool<PoolWaiter> {
  return new FairPool(shares, capacity);
}

/** Takes units for a principal until it gets no more. Returns how many it has got. */
function takeAll(pool: FairPool<PoolWaiter>, principal: string): number {
  let taken = 0;
  while (pool.hasRoomFor(principal)) {
    pool.take(principal);
    taken++;
  }
  return taken;
}

/** Returns the next principals that get a unit when each gives it back at once. */
function turns(pool: FairPool<PoolWaiter>, count: number): string {
  const served: string[] = [];
  for (let i = 0; i < count; i++) {
    const next = pool.takeNext();
    assert.ok(next !== undefined);
    served.push(next.principal);
    pool.release(next.principal);
  }
  return served.join('');
}

test('a principal alone gets a pool but its last eighth, which newcomers get', () => {
  const pool = poolOf(sharesOf(), 64);
  assert.equal(takeAll(pool, 'greedy'), 56);
  assert.deepEqual(
    ['a', 'b'].map((principal) => [pool.hasRoomFor(principal), takeAll(pool, principal)]),
    [
      [true, 8],
      [false, 0],
    ],
  );
});

test('a principal gets of the last eighth no more than its share', () => {
  const pool = poolOf(sharesOf({ a: 2 }), 16);
  const taken = ['a', 'b', 'c', 'd', 'e', 'f', 'g'].map((principal) => {
    let count = 0;
    for (; count < 2 && pool.hasRoomFor(principal); count++) pool.take(principal);
    return count;
  });
  assert.deepEqual(taken, [2, 2, 2, 2, 2, 2, 2]);
  // The shares of 16 are now 16 / 9, and 32 / 9 for the principal of weight 2.
  assert.equal(pool.hasRoomFor('b'), false);
  assert.equal(takeAll(pool, 'a'), 1);
  assert.equal(takeAll(pool, 'h'), 1);
});

test('one principal gets a whole pool where there is no other one', () => {
  assert.equal(takeAll(poolOf(ONE_PRINCIPAL, 64), 'local'), 64);
});

test('a pool of less than eight units keeps none', () => {
  assert.equal(takeAll(poolOf(sharesOf(), 7), 'a'), 7);
  assert.equal(takeAll(poolOf(sharesOf(), 8), 'a'), 7);
});

test('a freed unit goes to the principal below its share, however many wait before it', () => {
  const pool = poolOf(sharesOf(), 8);
  takeAll(pool, 'a');
  pool.take('a');
  for (let i = 0; i < 100; i++) pool.wait({ principal: 'a' });
  for (let i = 0; i < 10; i++) pool.wait({ principal: 'b' });
  const served: string[] = [];
  for (let i = 0; i < 4; i++) {
    pool.release('a');
    served.push(pool.takeNext()?.principal ?? '');
  }
  assert.deepEqual(served, ['b', 'b', '', 'b'], 'one unit stays free for a newcomer');
  assert.deepEqual([pool.usedBy('a'), pool.usedBy('b')], [4, 3]);
});

test('waiting principals take turns by their weights', () => {
  const pool = poolOf(sharesOf({ a: 3 }), 1);
  for (let i = 0; i < 100; i++) for (const principal of ['a', 'b', 'c']) pool.wait({ principal });
  const served = turns(pool, 100);
  assert.deepEqual(
    ['a', 'b', 'c'].map((principal) => served.split(principal).length - 1),
    [60, 20, 20],
  );
});

test('a principal that did not wait has saved no turns', () => {
  const pool = poolOf(sharesOf(), 1);
  pool.take('b');
  pool.release('b');
  for (let i = 0; i < 50; i++) pool.wait({ principal: 'a' });
  turns(pool, 20);
  for (let i = 0; i < 10; i++) pool.wait({ principal: 'b' });
  const saved = turns(pool, 10).split('b').length - 1;
  assert.ok(saved === 5 || saved === 6, `${saved}`);
});

test('weights divide what two principals want whole', () => {
  const pool = poolOf(sharesOf({ a: 3 }), 80);
  const held: string[] = [];
  for (let i = 0; i < 200; i++) for (const principal of ['b', 'a']) pool.wait({ principal });
  const fill = () => {
    for (let next = pool.takeNext(); next !== undefined; next = pool.takeNext()) held.push(next.principal);
  };
  fill();
  const pick = random(7);
  for (let i = 0; i < 60; i++) {
    const [ended] = held.splice(pick(held.length), 1);
    assert.ok(ended !== undefined);
    pool.release(ended);
    pool.wait({ principal: ended });
    fill();
  }
  const share = pool.usedBy('a') / pool.used;
  assert.ok(share > 0.68 && share < 0.82, `${share}`);
});

test(`units and weights add up after any sequence of steps (SEED=${SEED})`, () => {
  const pick = random(SEED);
  const names = Array.from({ length: 100 }, (_, index) => `p${index}`);
  const shares = sharesOf(Object.fromEntries(names.map((name, index) => [name, 1 + (index % 4)])));
  const pool = poolOf(shares, 40);
  const held: string[] = [];
  const waiting: PoolWaiter[] = [];
  const drop = <T>(list: T[]): T | undefined => list.splice(pick(list.length), 1)[0];
  for (let step = 0; step < 20_000; step++) {
    const name = names[pick(names.length)] ?? '';
    const kind = pick(4);
    if (kind === 0) {
      if (pool.hasRoomFor(name)) {
        pool.take(name);
        held.push(name);
      } else {
        const waiter = { principal: name };
        pool.wait(waiter);
        waiting.push(waiter);
      }
    } else if (kind === 1) {
      const left = drop(waiting);
      if (left !== undefined) assert.equal(pool.stopWaiting(left), true);
    } else {
      const ended = drop(held);
      if (ended !== undefined) pool.release(ended);
    }
    for (let next = pool.takeNext(); next !== undefined; next = pool.takeNext()) {
      const at = waiting.indexOf(next);
      assert.ok(at >= 0, `SEED=${SEED} step ${step}: ${next.principal} did not wait`);
      waiting.splice(at, 1);
      held.push(next.principal);
    }
    assert.equal(pool.used, held.length);
    assert.ok(pool.used <= 40);
    const hungry = waiting.find(({ principal }) => !held.includes(principal));
    assert.ok(hungry === undefined || !pool.hasFree, `SEED=${SEED} step ${step}: ${hungry?.principal} waits in vain`);
  }
  for (const one of held) pool.release(one);
  for (const one of waiting) pool.stopWaiting(one);
  for (const one of waiting) assert.equal(pool.stopWaiting(one), false);
  while (pool.takeNext() !== undefined);
  assert.equal(pool.isUnused, true);
  // With all weights gone, the shares are those of an unused pool.
  assert.deepEqual([takeAll(pool, 'p0'), takeAll(pool, 'p1')], [35, 5]);
});
