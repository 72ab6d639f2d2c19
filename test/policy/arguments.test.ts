import assert from 'node:assert/strict';
import { test } from 'node:test';
import { hasOddSpelling, readArguments } from '../../src/policy/arguments.ts';
import { RawObject } from '../../src/json/json.ts';

const MEMBERS = new Set(['path', 'skip']);

const ODD = [
  '{"path":"/pub","path":"/etc"}',
  '{"path":"/pub","p\\u0061th":"/etc"}',
  '{"path":"/pub","Path":"/etc"}',
  '{"PATH":"/etc"}',
  '{"\u017Fkip":1}',
  '{"s\u212Aip":1}',
  '{"in":{"path":"/pub","PATH":"/etc"}}',
  '{"in":[{"a":1,"A":2}]}',
  '[1]',
  '"text"',
  '{"id":1234567890123456789}',
  '{"id":-9007199254740992}',
  '{"in":[{"id": 123456789012345678.0 }]}',
  '{"id":1e30}',
  '{"id":1e400}',
];

for (const text of ODD) {
  // SEC-09
  test(`arguments with two readings are refused: ${text}`.slice(0, 78), () => {
    assert.equal(typeof readArguments(text, MEMBERS), 'string');
  });
}

// SEC-09
test('arguments with one reading are counted and read', () => {
  const read = readArguments('{"path":"/pub","list":[1,{"Other":2}]}', MEMBERS);
  assert.deepEqual(read, { args: { path: '/pub', list: [1, { Other: 2 }] }, size: { values: 6, chars: 38 } });
  assert.deepEqual(readArguments(undefined, MEMBERS), { args: {}, size: { values: 0, chars: 0 } });
});

// SEC-09
test('numbers that a double holds as they are written have one reading', () => {
  const text =
    '{"a":9007199254740991,"b":-9007199254740991,"c":0.1,"d":1.5e3,"e":"1234567890123456789","f":[true,null]}';
  assert.equal(typeof readArguments(text, MEMBERS), 'object');
});

// SEC-09
test('params whose members a lenient upstream may read instead are odd', () => {
  assert.equal(hasOddSpelling(RawObject.parse('{"name":"a","arguments":{}}')), false);
  assert.equal(hasOddSpelling(RawObject.parse('{"name":"a","Name":"b"}')), true);
  assert.equal(hasOddSpelling(RawObject.parse('{"name":"a","Arguments":{}}')), true);
  assert.equal(hasOddSpelling(RawObject.parse('{"ref":{"type":"ref/prompt","name":"a","NAME":"b"}}')), true);
});
