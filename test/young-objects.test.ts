import assert from 'node:assert/strict';
import { test } from 'node:test';
import { runSingleThreaded } from './support/single-threaded.ts';

test('V8 allocates objects old whose predecessors lived long, unless told otherwise', () => {
  assert.deepEqual(runSingleThreaded('old-objects.ts'), {
    before: [true, true, true, true],
    after: [false, false, false, false],
  });
});
