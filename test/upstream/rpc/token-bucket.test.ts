import assert from 'node:assert/strict';
import { test } from 'node:test';
import { TokenBucket } from '../../../src/upstream/rpc/token-bucket.ts';

test('a burst of one second is free, and then the wait grows with each token', () => {
  const bucket = new TokenBucket(100);
  for (let n = 0; n < 100; n++) assert.equal(bucket.take(1_000), 0);
  assert.equal(bucket.take(1_000), 10);
  assert.equal(bucket.take(1_000), 20);
  assert.equal(bucket.take(1_020), 10);
  assert.equal(bucket.take(1_040), 0);
});

test('a burst of many seconds is a wait of one second', () => {
  const bucket = new TokenBucket(100);
  for (let n = 0; n < 10_000; n++) bucket.take(1_000);
  assert.equal(bucket.take(1_000), 1_000);
  assert.equal(bucket.take(2_010), 0);
});
