import assert from 'node:assert/strict';
import { test } from 'node:test';
import { Breaker } from '../../../src/store/redis/breaker.ts';

test('after five failures in a row one command a second is let through', () => {
  const breaker = new Breaker();
  for (let n = 1; n <= 5; n++) {
    assert.equal(breaker.mayTry(0), true);
    assert.equal(breaker.failure, undefined);
    breaker.onFailure(`failure ${n}`, 0);
  }
  assert.equal(breaker.failure, 'failure 5');
  assert.equal(breaker.mayTry(999), false);
  assert.equal(breaker.mayTry(1_000), true);
  assert.equal(breaker.mayTry(1_000), false);
  breaker.onFailure('failure 6', 1_250);
  assert.equal(breaker.mayTry(1_999), false);
  assert.equal(breaker.mayTry(2_000), true);
});

test('one success lets all commands through again', () => {
  const breaker = new Breaker();
  for (let n = 1; n <= 6; n++) breaker.onFailure('down', 0);
  breaker.onSuccess();
  assert.equal(breaker.failure, undefined);
  for (let n = 1; n <= 4; n++) breaker.onFailure('down', 0);
  assert.equal(breaker.mayTry(0), true);
});
