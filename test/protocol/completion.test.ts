import assert from 'node:assert/strict';
import { test } from 'node:test';
import { boundedCompletion } from '../../src/protocol/completion.ts';

const valuesOf = (count: number) => Array.from({ length: count }, (_, i) => `v${i}`);

const few = [
  { name: 'with 100 values', text: JSON.stringify({ completion: { values: valuesOf(100), hasMore: false } }) },
  { name: 'with few values, as it is written', text: '{ "completion": {"values":[ "\\u00e9" ],"total":1.0 }}' },
  { name: 'without values', text: '{"completion":{}}' },
  { name: 'without completion', text: '{"values":[]}' },
];

for (const { name, text } of few) {
  // M-018
  test(`a completion ${name} is unchanged`, () => assert.equal(boundedCompletion(text), text));
}

// M-018
test('a completion with more than 100 values has the first, and tells of the others', () => {
  const more = { completion: { values: valuesOf(150), x: 1 }, y: 2 };
  assert.deepEqual(JSON.parse(boundedCompletion(JSON.stringify(more))), {
    completion: { values: valuesOf(100), x: 1, total: 150, hasMore: true },
    y: 2,
  });
});

// M-018
test('the total that an upstream counts is kept', () => {
  const more = { completion: { values: valuesOf(101), total: 4_000, hasMore: false } };
  const { total, hasMore } = JSON.parse(boundedCompletion(JSON.stringify(more))).completion;
  assert.deepEqual([total, hasMore], [4_000, true]);
});
