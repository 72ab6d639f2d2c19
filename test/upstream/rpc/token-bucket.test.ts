import assert from 'node:assert/strict';
import { test } from 'node:test';
import { TokenBucket } from '../../../src/upstream/rpc/token-bucket.ts';

test('a second of the rate is taken at once, and then the wait grows with each', () => {
  const bucket = new TokenBucket(100);
  for (let n = 0; n < 100; n++) assert.equal(bucket.take(1_000), 0);
  assert.equal(bucket.take(1_000), 10);
  assert.equal(bucket.take(1_000), 20);
  assert.equal(bucket.take(1_020), 10);
  assert.equal(bucket.take(1_040), 0);
});
