import assert from 'node:assert/strict';
import { test } from 'node:test';
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

test('an object that names a member twice has no order', () => {
  assert.throws(() => orderedText('{"a":1,"a":2}'), JsonTextError);
});
