import assert from 'node:assert/strict';
import { test } from 'node:test';
import { changedNumber, infiniteNumber } from '../../src/json/changed-number.ts';
import { quote } from '../support/test-name.ts';

const CASES: readonly (readonly [text: string, changed: string | undefined])[] = [
  ['{"id": 12345678901234567890, "b": 1}', '12345678901234567890'],
  ['[1, -9007199254740993]', '-9007199254740993'],
  ['9007199254740992', undefined],
  ['12345678901234567168', '12345678901234567168'],
  ['12000000000000000000000000000001', '12000000000000000000000000000001'],
  ['100000000000000000000000', undefined],
  ['1e400', '1e400'],
  ['[0.1, 3.14159265358979323846, 1e21, -0, 1E-7]', undefined],
  ['{"12345678901234567890": "12345678901234567890 \\" 12345678901234567890"}', undefined],
  ['null', undefined],
];

for (const [text, changed] of CASES) {
  test(`the changed number of ${quote(text)} is ${changed ?? 'none'}`, () =>
    assert.equal(changedNumber(text), changed));
}

test('the first number that becomes infinite is found, and no other one', () => {
  assert.equal(infiniteNumber('{"a":["1e400",12345678901234567890,{"b":-1e999}]}'), '-1e999');
  assert.equal(infiniteNumber('[1e308,null]'), undefined);
});

test('a long run of zeros inside of a number is read once', () => {
  const number = `1${'0'.repeat(200)}1`;
  assert.equal(changedNumber(number), number);
  // A search from each zero on would take longer than this test may.
  assert.equal(changedNumber(`[1${'0'.repeat(1_000_000)}1]`)?.length, 1_000_002);
});
