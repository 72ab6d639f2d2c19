import assert from 'node:assert/strict';
import { test } from 'node:test';
import { LIMITS } from '../../src/limits.ts';
import { RecentCalls } from '../../src/replicas/recent-calls.ts';

const never = () => assert.fail('ids were forgotten');

test('an id is accepted once, also after the sets have taken turns', () => {
  const calls = new RecentCalls(never);
  assert.equal(calls.add('a', 100_000), true);
  assert.equal(calls.add('a', 100_001), false);
  assert.equal(calls.add('b', 131_000), true);
  assert.equal(calls.add('a', 131_001), false);
});

test('an id is accepted again after a long time', () => {
  const calls = new RecentCalls(never);
  assert.equal(calls.add('a', 100_000), true);
  assert.equal(calls.add('a', 200_000), true);
});

test('ids that fill both sets are forgotten early, and that is counted', () => {
  let forgotten = 0;
  const calls = new RecentCalls(() => forgotten++);
  for (let n = 0; n <= LIMITS.recentCalls; n++) calls.add(String(n), 100_000);
  assert.equal(forgotten, 1);
  assert.equal(calls.add(String(LIMITS.recentCalls), 100_000), false);
});
