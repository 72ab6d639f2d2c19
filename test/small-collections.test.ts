import assert from 'node:assert/strict';
import { test } from 'node:test';

import * as fc from './support/fast-check.ts';

import { ArrayMap, ArraySet } from '../src/small-collections.ts';
import { collect } from './support/used-bytes.ts';

const steps = fc.array(fc.tuple(fc.constantFrom('set', 'delete'), fc.nat({ max: 6 }), fc.nat()));

test('ArrayMap behaves like Map, in insertion order', () => {
  fc.assert(
    fc.property(steps, (taken) => {
      const map = new ArrayMap<number, number>();
      const plain = new Map<number, number>();
      for (const [step, key, value] of taken) {
        if (step === 'delete') assert.equal(map.delete(key), plain.delete(key));
        else {
          map.set(key, value);
          plain.set(key, value);
        }
        assert.equal(map.get(key), plain.get(key));
        assert.equal(map.has(key), plain.has(key));
      }
      assert.equal(map.size, plain.size);
      assert.deepEqual(map.keys(), [...plain.keys()]);
      assert.deepEqual(map.values(), [...plain.values()]);
      map.clear();
      assert.equal(map.size, 0);
    }),
  );
});

test('ArraySet behaves like Set, in insertion order', () => {
  fc.assert(
    fc.property(steps, (taken) => {
      const set = new ArraySet<number>();
      const plain = new Set<number>();
      for (const [step, item] of taken) {
        if (step === 'delete') assert.equal(set.delete(item), plain.delete(item));
        else if (!plain.has(item)) {
          set.add(item);
          plain.add(item);
        }
      }
      assert.equal(set.size, plain.size);
      assert.deepEqual([...set], [...plain]);
      set.clear();
      assert.equal(set.size, 0);
    }),
  );
});

test('removing entries during an iteration does not change the iteration', () => {
  const set = new ArraySet<number>();
  for (const item of [1, 2, 3]) set.add(item);
  const visited: number[] = [];
  for (const item of set) {
    visited.push(item);
    set.delete(item);
  }
  assert.deepEqual(visited, [1, 2, 3]);
  assert.equal(set.size, 0);
});

const ITEM_BYTES = 16_384;
const ITEMS = 1_000;
/** Entries that exist at the same time. */
const THERE = 4;

test('removed entries do not survive a collection of young objects', () => {
  const map = new ArrayMap<number, unknown>();
  const set = new ArraySet<unknown>();
  map.set(-1, map);
  set.add(set);
  // From here on, the collections are in the old generation.
  collect();
  collect();
  const before = process.memoryUsage().heapUsed;
  for (let id = 0; id < ITEMS; id++) {
    const item = Array.from({ length: ITEM_BYTES / 8 }, () => id);
    map.set(id, item);
    set.add(item);
    if (id < THERE) continue;
    set.delete(map.get(id - THERE));
    map.delete(id - THERE);
  }
  collect('minor');
  const leftBytes = process.memoryUsage().heapUsed - before;
  assert.ok(leftBytes < (ITEMS * ITEM_BYTES) / 4, `${leftBytes} bytes are left of ${ITEMS * ITEM_BYTES}`);
});
