import assert from 'node:assert/strict';
import { test } from 'node:test';
import { getOrMake, KeyedSums, removeOver, setLatest } from '../src/map-entries.ts';

test('a map keeps the entries that were set last', () => {
  const map = new Map<string, number>();
  const removed = ['a', 'b', 'a', 'c'].map((key, index) => setLatest(map, key, index, 2));
  assert.deepEqual(removed, [false, false, false, true]);
  assert.deepEqual(
    [...map],
    [
      ['a', 2],
      ['c', 3],
    ],
  );
});

test('the oldest entries are removed up to the first that is not over', () => {
  const map = new Map([1, 2, 9, 3].map((ends) => [`until ${ends}`, ends]));
  removeOver(map, (ends) => ends <= 5);
  assert.deepEqual([...map.values()], [9, 3]);
  removeOver(map, () => true);
  assert.equal(map.size, 0);
});

test('an entry is made once, and only if it is missing', () => {
  const map = new Map([['known', 1]]);
  let made = 0;
  const values = ['known', 'new', 'new'].map((key) => getOrMake(map, key, () => 10 + ++made));
  assert.deepEqual(values, [1, 11, 11]);
});

test('amounts are added by key and together', () => {
  const sums = new KeyedSums();
  assert.equal(sums.add('a', 3), 3);
  assert.equal(sums.add('a', 4), 7);
  assert.equal(sums.add('b', 5), 5);
  assert.deepEqual([sums.of('a'), sums.of('b'), sums.of('c'), sums.total], [7, 5, 0, 12]);
  assert.equal(sums.add('a', -7), 0);
  assert.deepEqual([sums.of('a'), sums.of('b'), sums.total], [0, 5, 5]);
});
