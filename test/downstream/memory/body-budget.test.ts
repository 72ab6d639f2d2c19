import assert from 'node:assert/strict';
import { test } from 'node:test';
import { BodyBudget } from '../../../src/downstream/memory/body-budget.ts';

function budgetOf(totalBytes: number, principalBytes: number) {
  const seen = { refused: 0 };
  const events = { onRefused: () => seen.refused++, onStalled: () => assert.fail('nothing stalls here') };
  return { budget: new BodyBudget({ totalBytes, principalBytes }, events), seen };
}

// N-26
test('bytes up to each bound are reserved, and no byte more', () => {
  const { budget, seen } = budgetOf(100, 60);
  assert.equal(budget.reserve('alice', 60), true);
  assert.equal(budget.reserve('alice', 1), false);
  assert.equal(budget.reserve('bob', 40), true);
  assert.equal(budget.reserve('carol', 1), false);
  assert.deepEqual([budget.bytes, seen.refused], [100, 2]);
});

// N-26
test('a refused reservation takes nothing, and released bytes can be reserved again', () => {
  const { budget } = budgetOf(100, 60);
  assert.equal(budget.reserve('alice', 61), false);
  assert.equal(budget.bytes, 0);
  assert.equal(budget.reserve('alice', 50), true);
  budget.release('alice', 30);
  assert.equal(budget.reserve('alice', 40), true);
  budget.release('alice', 60);
  assert.equal(budget.bytes, 0);
});
