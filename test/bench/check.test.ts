import assert from 'node:assert/strict';
import { test } from 'node:test';
import { answerTo } from '../../bench/answers.ts';
import { Check } from '../../bench/check.ts';
import { dialectOf } from '../../bench/dialect.ts';
import { TOOLS } from '../../bench/tools.ts';

const CALL = { method: 'tools/call', tool: 'text_10kb' } as const;
const LIST = { method: 'tools/list' } as const;

/** Returns the answer of the fixture. */
function answer(ask: typeof CALL | typeof LIST, id: number): string {
  const fixture = answerTo(dialectOf('2025-11-25').request(id, ask, ''));
  assert.ok(fixture);
  return `${fixture.head}${fixture.tail.toString()}`;
}

test('the fixture offers 23 tools', () => assert.equal(TOOLS.length, 23));

for (const ask of [CALL, LIST]) {
  test(`the fixture's own answers to ${ask.method} are right`, () => {
    const check = new Check(ask, '');
    for (const id of [9, 10, 11, 1_000]) check.answer(Buffer.from(answer(ask, id)), id);
  });

  test(`an answer to ${ask.method} in another notation is right`, () => {
    const check = new Check(ask, '');
    check.answer(Buffer.from(answer(ask, 1)), 1);
    const { jsonrpc, id, result } = JSON.parse(answer(ask, 2));
    check.answer(Buffer.from(JSON.stringify({ result, jsonrpc, id }, undefined, 1)), 2);
  });
}

const right = answer(CALL, 7);
const WRONG = [
  { what: 'the id of another request', body: answer(CALL, 8) },
  { what: 'an id that begins the same', body: answer(CALL, 70) },
  { what: 'the id as text', body: right.replace('"id":7', '"id":"7"') },
  { what: 'a cut text', body: right.replace('quay 3', 'quay') },
  { what: 'a changed text of the same length', body: right.replace('quay 3', 'quay 4') },
  { what: 'half of it', body: right.slice(0, 5_000) },
  { what: 'an error in the result', body: right.replace('"isError":false', '"isError":true') },
  { what: 'an error', body: '{"jsonrpc":"2.0","id":7,"error":{"code":-32603,"message":"no"}}' },
  { what: 'nothing', body: '' },
];

for (const { what, body } of WRONG) {
  test(`an answer with ${what} is wrong, first or later`, () => {
    const check = new Check(CALL, '');
    assert.throws(() => check.answer(Buffer.from(body), 7));
    check.answer(Buffer.from(answer(CALL, 6)), 6);
    assert.throws(() => check.answer(Buffer.from(body), 7));
  });
}

test('a list with a missing tool, a changed schema or a name without prefix is wrong', () => {
  const list = answer(LIST, 1);
  const named = (text: string) => text.replaceAll(/"name":"(\w+)","title"/g, '"name":"bench__$1","title"');
  new Check(LIST, 'bench__').answer(Buffer.from(named(list)), 1);
  const [first] = TOOLS;
  const without = list.replace(`${JSON.stringify(first)},`, '');
  assert.notEqual(without, list);
  for (const wrong of [list, named(without), named(list).replace('"integer"', '"number"')]) {
    assert.throws(() => new Check(LIST, 'bench__').answer(Buffer.from(wrong), 1));
  }
});
