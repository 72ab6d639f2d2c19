import assert from 'node:assert/strict';
import { test } from 'node:test';
import { StepUp } from '../../src/credentials/step-up.ts';
import { LIMITS } from '../../src/limits.ts';

//
test('limit refusedScopeSets: no further scopes are asked for until a refusal lapses', () => {
  const reached: string[] = [];
  const stepUp = Array.from({ length: LIMITS.refusedScopeSets + 1 }, (_, n) => `s${n}`);
  const steps = new StepUp({ base: [], stepUp }, (limit) => reached.push(limit));
  for (const scope of stepUp.slice(1)) {
    assert.deepEqual(steps.plan([scope], 0), [scope]);
    steps.refused([scope], scope === 's1' ? 10 : 20);
  }
  assert.equal(steps.plan(['s0'], 0), undefined);
  assert.deepEqual(reached, ['refusedScopeSets']);
  assert.deepEqual(steps.plan(['s0'], 10), ['s0']);
});
