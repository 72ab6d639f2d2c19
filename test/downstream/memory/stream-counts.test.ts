import assert from 'node:assert/strict';
import { test } from 'node:test';
import { StreamCounts } from '../../../src/downstream/memory/stream-counts.ts';

// N-33
test('each principal has its own number of streams, and a removed one makes room', () => {
  let refused = 0;
  const counts = new StreamCounts(
    'streams',
    () => 2,
    () => refused++,
  );
  const add = (principal: string) => counts.add(principal) === undefined;
  assert.deepEqual([add('alice'), add('alice'), add('alice')], [true, true, false]);
  assert.equal(add('bob'), true);
  counts.remove('alice');
  assert.deepEqual([add('alice'), add('alice')], [true, false]);
  for (let n = 0; n < 2; n++) counts.remove('alice');
  assert.deepEqual([add('alice'), add('alice'), add('alice')], [true, true, false]);
  assert.equal(refused, 3);
});
