import assert from 'node:assert/strict';
import { test } from 'node:test';
import { setImmediate } from 'node:timers/promises';
import { hasOddSpelling, readArguments } from '../../src/policy/conditions/arguments.ts';
import { RawObject } from '../../src/json/json.ts';

const MEMBERS = new Set(['path', 'skip']);

const ODD = [
  '{"in":[{"a":1,"\\u0061":2}]}',
  '{"path":"/pub","path":"/etc"}',
  '{"path":"/pub","p\\u0061th":"/etc"}',
  '{"path":"/pub","Path":"/etc"}',
  '{"PATH":"/etc"}',
  '{"\u017Fkip":1}',
  '{"s\u212Aip":1}',
  '{"sk\u0131p":1}',
  '{"in":{"path":"/pub","PATH":"/etc"}}',
  '{"in":[{"a":1,"A":2}]}',
  '[1]',
  '"text"',
  '{"id":1234567890123456789}',
  '{"id":-9007199254740992}',
  '{"in":[{"id": 123456789012345678.0 }]}',
  '{"id":1e30}',
  '{"id":1e400}',
  `{"${'x'.repeat(1_025)}":1}`,
  `{"a${'\u0301'.repeat(31)}":1}`,
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
  const odd = ['{"ref":{"type":"ref/prompt","Type":"ref/resource"}}', '{"uri":"a:b","URI":"a:c"}', '{"Context":{}}'];
  for (const text of [...odd, '{"Argument":{}}', '{"Ref":{}}'])
    assert.equal(hasOddSpelling(RawObject.parse(text)), true);
});

/** A name whose marks are sorted when it is normalized: for hours, if the marks are sorted one by one. */
const MARKS = `a${'\u0301'.repeat(1_000_000)}${'\u0316'.repeat(1_000_000)}`;

// SEC-24
test('a name of a million combining marks is refused at once', () => {
  assert.equal(typeof readArguments(JSON.stringify({ [MARKS]: 1 }), MEMBERS), 'string');
  assert.equal(hasOddSpelling(RawObject.parse(JSON.stringify({ name: 'a', [MARKS]: 1 }))), false);
});

// SEC-24
test('limit memberNameChars: arguments with a longer name are refused', () => {
  assert.equal(typeof readArguments(`{"${'x'.repeat(1_024)}":1}`, MEMBERS), 'object');
  assert.equal(typeof readArguments(`{"${'x'.repeat(1_025)}":1}`, MEMBERS), 'string');
});

// SEC-09
test('a member named in letters of mathematics is odd', () => {
  const letters = 'arguments'
    .split('')
    .map((letter) => String.fromCodePoint(0x1d41a + letter.charCodeAt(0) - 97))
    .join('');
  assert.equal(hasOddSpelling(RawObject.parse(JSON.stringify({ name: 'a', [letters]: {} }))), true);
});

// SEC-24
test('deep arguments are read once', { timeout: 60_000 }, async () => {
  const depth = 60;
  const text = `${'{"a":'.repeat(depth)}"${String.raw`\"`.repeat(1_000_000)}"${'}'.repeat(depth)}`;
  // Reading them once for each level would take minutes.
  for (let times = 0; times < 60; times++) {
    const read = readArguments(text, MEMBERS);
    assert.ok(typeof read === 'object' && read.size.values === depth + 1);
    await setImmediate();
  }
});
