import assert from 'node:assert/strict';
import { test } from 'node:test';
import { setLatest } from '../src/bounded-map.ts';

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
