import assert from 'node:assert/strict';
import { test } from 'node:test';
import { Bounded, OTHER } from '../../src/telemetry/bounded.ts';

test('the first values are labels, and all later ones share one', () => {
  const bounded = new Bounded(2);
  assert.deepEqual(
    ['a', 'b', 'c', 'a', 'd', 'b'].map((value) => bounded.label(value)),
    ['a', 'b', OTHER, 'a', OTHER, 'b'],
  );
});
