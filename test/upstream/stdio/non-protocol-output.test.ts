import assert from 'node:assert/strict';
import { test } from 'node:test';
import { NonProtocolOutput } from '../../../src/upstream/stdio/non-protocol-output.ts';

// REL-13
test('a hundred lines within ten seconds are accepted, and one more is too many', () => {
  const output = new NonProtocolOutput();
  for (let n = 0; n < 100; n++) assert.equal(output.add(10, n), undefined);
  assert.equal(output.add(10, 9_999), 'nonProtocolLines');
  assert.deepEqual([output.lines, output.windowLines], [101, 101]);
});

// REL-13
test('a mebibyte within ten seconds is accepted, and one more byte is too many', () => {
  const output = new NonProtocolOutput();
  assert.equal(output.add(1_048_576, 0), undefined);
  assert.equal(output.add(1, 1), 'nonProtocolBytes');
});

// REL-13
test('a new window starts after ten seconds', () => {
  const output = new NonProtocolOutput();
  for (let n = 0; n < 100; n++) output.add(10_000, 0);
  assert.equal(output.add(10_000, 10_000), undefined);
  assert.deepEqual([output.lines, output.windowLines], [101, 1]);
});
