import assert from 'node:assert/strict';
import { test } from 'node:test';
import { score, type Check } from './score.ts';

const check = (status: string, id = 'a-check'): Check => ({ id, status, errorMessage: 'because' });

const cases: readonly { name: string; checks: Check[] | undefined; failure?: string; passed: boolean }[] = [
  { name: 'one success', checks: [check('SUCCESS'), check('INFO')], passed: true },
  { name: 'a failure beside a success', checks: [check('SUCCESS'), check('FAILURE')], passed: false },
  { name: 'a warning beside a success', checks: [check('SUCCESS'), check('WARNING')], passed: false },
  { name: 'information only', checks: [check('INFO'), check('SKIPPED')], passed: false },
  { name: 'a valid wire and nothing else', checks: [check('SUCCESS', 'wire-schema-valid')], passed: false },
  { name: 'no checks', checks: [], passed: false },
  { name: 'no result', checks: undefined, failure: 'timed out', passed: false },
  { name: 'a success with a bad exit', checks: [check('SUCCESS')], failure: 'exit 1', passed: false },
];

for (const { name, checks, failure, passed } of cases) {
  test(`a scenario with ${name} ${passed ? 'passes' : 'fails'}`, () => {
    const scored = score('scenario', checks, failure);
    assert.equal(scored.passed, passed);
    assert.equal(scored.reasons.length > 0, !passed);
  });
}
