import assert from 'node:assert/strict';
import { test } from 'node:test';
import { StreamCounts } from '../../../src/downstream/memory/stream-counts.ts';

// N-33
test('each principal has its own number of streams, and a removed one makes room', () => {
  const counts = new StreamCounts(2);
  assert.deepEqual([counts.add('alice'), counts.add('alice'), counts.add('alice')], [true, true, false]);
  assert.equal(counts.add('bob'), true);
  counts.remove('alice');
  assert.deepEqual([counts.add('alice'), counts.add('alice')], [true, false]);
  for (let n = 0; n < 2; n++) counts.remove('alice');
  assert.deepEqual([counts.add('alice'), counts.add('alice'), counts.add('alice')], [true, true, false]);
});
