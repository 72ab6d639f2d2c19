import assert from 'node:assert/strict';
import { test } from 'node:test';
import { getOrMake, setLatest } from '../src/map-entries.ts';

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

test('an entry is made once, and only if it is missing', () => {
  const map = new Map([['known', 1]]);
  let made = 0;
  const values = ['known', 'new', 'new'].map((key) => getOrMake(map, key, () => 10 + ++made));
  assert.deepEqual(values, [1, 11, 11]);
});
