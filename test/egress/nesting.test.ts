import assert from 'node:assert/strict';
import { test } from 'node:test';
import { isNestedDeeper } from '../../src/egress/nesting.ts';

const cases = [
  ['[[1]]', false],
  ['[[[1]]]', true],
  ['[{"a":{}}]', true],
  ['[[],[],[[]]]', true],
  ['["[[[", "\\"[[["]', false],
  ['[[],{}]', false],
  ['', false],
] as const;

for (const [text, isDeep] of cases) {
  test(`${text === '' ? 'no text' : text} is ${isDeep ? '' : 'not '}nested deeper than two levels`, () => {
    assert.equal(isNestedDeeper(text, 2), isDeep);
  });
}
