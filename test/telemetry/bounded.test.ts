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

test('a forgotten value leaves its place to another', () => {
  const bounded = new Bounded(1);
  bounded.label('a');
  assert.equal(bounded.label('b'), OTHER);
  assert.equal(bounded.forget('b'), undefined);
  assert.equal(bounded.forget('a'), 'a');
  assert.equal(bounded.label('b'), 'b');
});
