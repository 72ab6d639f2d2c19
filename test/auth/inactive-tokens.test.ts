import assert from 'node:assert/strict';
import { test } from 'node:test';
import { InactiveTokens } from '../../src/auth/inactive-tokens.ts';
import { LIMITS } from '../../src/limits.ts';

test('a token counts as inactive for half a minute', () => {
  const inactive = new InactiveTokens();
  inactive.add('a', 5);
  assert.deepEqual([inactive.has('a', 30_004), inactive.has('a', 30_005), inactive.has('b', 5)], [true, false, false]);
});

test('limit inactiveTokens: the oldest one is forgotten', () => {
  const reached: string[] = [];
  const inactive = new InactiveTokens((limit) => reached.push(limit));
  for (let n = 0; n <= LIMITS.inactiveTokens; n++) inactive.add(String(n), 0);
  assert.deepEqual([inactive.has('0', 0), inactive.has('1', 0)], [false, true]);
  assert.deepEqual(reached, ['inactiveTokens']);
});

test('tokens that one may ask about again make room, and do not count as forgotten', () => {
  const reached: string[] = [];
  const inactive = new InactiveTokens((limit) => reached.push(limit));
  for (let n = 0; n < LIMITS.inactiveTokens; n++) inactive.add(String(n), 0);
  inactive.add('a', 30_000);
  assert.equal(inactive.has('a', 30_000), true);
  assert.deepEqual(reached, []);
});
