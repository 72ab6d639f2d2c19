import assert from 'node:assert/strict';
import { test } from 'node:test';

import * as fc from './support/fast-check.ts';

import { ArrayMap, ArraySet } from '../src/small-collections.ts';
import { measureLeftBytes } from './support/single-threaded.ts';

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

test('removed entries do not survive a collection of young objects', () => {
  const { removedBytes, leftBytes } = measureLeftBytes('removed-entries.ts');
  assert.ok(leftBytes < removedBytes / 4, `${leftBytes} bytes are left of ${removedBytes}`);
});
