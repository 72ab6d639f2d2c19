import assert from 'node:assert/strict';
import { test } from 'node:test';
import { setImmediate } from 'node:timers/promises';
import { JsonTextError } from '../../src/json/json.ts';
import { orderedText } from '../../src/json/ordered.ts';

const cases = [
  {
    name: 'members of objects at all depths are in order',
    raw: '{"b":[{"d":1,"c":2}],"a":{}}',
    text: '{"a":{},"b":[{"c":2,"d":1}]}',
  },
  { name: 'spaces go, and those in texts stay', raw: ' { "a" : [ 1 , "x y" ] } ', text: '{"a":[1,"x y"]}' },
  { name: 'items of lists keep their order', raw: '[2,1]', text: '[2,1]' },
  {
    name: 'numbers keep their digits',
    raw: '{"a":1.0,"b":12345678901234567890}',
    text: '{"a":1.0,"b":12345678901234567890}',
  },
  { name: 'names with quotes stay names', raw: '{"b":1,"a\\"":2}', text: '{"a\\"":2,"b":1}' },
];

for (const { name, raw, text } of cases) test(name, () => assert.equal(orderedText(raw), text));

for (const raw of ['{"a":1,"a":2}', '[{"b":{"a":1,"\\u0061":2}}]', '{"a":[1,]}', '']) {
  test(`a text that is not JSON, or names a member twice, has no order: ${raw}`, () => {
    assert.throws(() => orderedText(raw), JsonTextError);
  });
}

// SEC-24
test('a deep value is put in order by reading it once', { timeout: 60_000 }, async () => {
  const depth = 60;
  const text = `"${String.raw`\"`.repeat(1_000_000)}"`;
  const raw = `${'{"b":0,"a":'.repeat(depth)}${text}${'}'.repeat(depth)}`;
  const ordered = `${'{"a":'.repeat(depth)}${text}${',"b":0}'.repeat(depth)}`;
  // Reading it once for each level would take minutes.
  for (let times = 0; times < 60; times++) {
    assert.equal(orderedText(raw), ordered);
    await setImmediate();
  }
});
