import assert from 'node:assert/strict';
import { test } from 'node:test';

import * as fc from '../support/fast-check.ts';

import {
  arrayText,
  isArrayText,
  isObjectText,
  JsonTextError,
  oneLine,
  RawObject,
  rawItems,
  UPSTREAM_BOUNDS,
} from '../../src/json/json.ts';
import { quote } from '../support/test-name.ts';

const object = fc.dictionary(fc.string(), fc.jsonValue());

function members(text: string): [string, unknown][] {
  const parsed = RawObject.parse(text);
  return [...parsed.keys()].map((key) => [key, JSON.parse(parsed.raw(key) ?? '')]);
}

test('any object is read as JSON.parse reads it, and written back as it came', () => {
  fc.assert(
    fc.property(object, fc.constantFrom(undefined, 1, '\t', '\r\n'), (value, indent) => {
      const text = JSON.stringify(value, undefined, indent);
      const parsed = RawObject.parse(text);
      assert.equal(parsed.toString(), text);
      const expected: unknown = JSON.parse(text);
      assert.deepEqual(members(text), Object.entries(Object(expected)));
      for (const key of parsed.keys()) {
        assert.deepEqual(parsed.value(key), JSON.parse(parsed.raw(key) ?? ''));
      }
    }),
  );
});

test('any object stays equal when cut into members and joined again', () => {
  fc.assert(
    fc.property(object, (value) => {
      const text = JSON.stringify(value);
      assert.equal(RawObject.of(value).toString(), text);
      const rebuilt = RawObject.parse(text).with('\u0000new', '1').with('\u0000new', undefined);
      assert.equal(rebuilt.toString(), text);
    }),
  );
});

test('a preparsed member equals one parsed later, and changes stay separate', () => {
  fc.assert(
    fc.property(object, object, fc.constantFrom(undefined, 1), (outer, inner, indent) => {
      const text = JSON.stringify({ ...outer, params: inner, after: 1 }, undefined, indent);
      const whole = RawObject.parse(text, 'params');
      const open = whole.preparsed('params');
      assert.equal(open, whole.object('params'));
      assert.equal(open?.toString(), whole.raw('params'));
      assert.deepEqual(open?.keys(), RawObject.parse(text).object('params')?.keys());
      const changed = open?.with('x', '7').with('y', '8');
      assert.deepEqual(JSON.parse(changed?.toString() ?? ''), { ...JSON.parse(JSON.stringify(inner)), x: 7, y: 8 });
      assert.equal(whole.toString(), text);
    }),
  );
});

/** Few names, so that they repeat in the same order, in another order, and within one object. */
const nameText = fc.constantFrom(
  '"id"',
  '"ids"',
  '"i"',
  '""',
  '"1"',
  '"é"',
  '"\\u0069d"',
  '"__proto__"',
  `"${'x'.repeat(70)}"`,
);
const drawn = fc.array(fc.tuple(nameText, fc.constantFrom('', ' ', '\n'), fc.constantFrom('1', '{}', '"id"')), {
  maxLength: 16,
});

function read(text: string, open?: 'params'): unknown {
  try {
    const whole = RawObject.parse(text, open);
    const inner = whole.object('params');
    const names = [whole.keys(), inner?.keys()];
    const raws = inner?.keys().map((name) => inner.raw(name));
    return { names, raws, changed: inner?.with('id', '7').with('i', undefined).with('new', '8').toString() };
  } catch (thrown) {
    return String(thrown).replace(/ at offset \d+/, '');
  }
}

test('objects with known member names are read like new ones', () => {
  const around = ['{"params":', '{ "params" : ', '{"jsonrpc":"2.0","params":', '{"id":1,"jsonrpc":"2.0","params":'];
  fc.assert(
    fc.property(fc.array(drawn, { minLength: 1, maxLength: 6 }), fc.constantFrom(...around), (objects, before) => {
      for (const object of [...objects, ...objects]) {
        const inner = object.map(([name, blank, value]) => `${blank}${name}${blank}:${blank}${value}`).join(',');
        const text = `${before}{${inner}}}`;
        assert.deepEqual(read(text, 'params'), read(text));
      }
    }),
    { numRuns: 500 },
  );
});

test('a peer that invents member names does not affect other objects', () => {
  const text = '{"jsonrpc":"2.0","id":1,"method":"m","params":{"name":"n","_meta":{}}}';
  for (let made = 0; made < 2_000; made++) {
    const name = `made-up-${made}`;
    const odd = RawObject.parse(`{"jsonrpc":"2.0","${name}":1,"params":{"${name}":2,"name":3}}`, 'params');
    assert.deepEqual(odd.keys(), ['jsonrpc', name, 'params']);
    assert.deepEqual(odd.object('params')?.keys(), [name, 'name']);
    assert.deepEqual(read(text, 'params'), read(text));
  }
});

test('a repeated _meta is recognised, and only an equal one', () => {
  fc.assert(
    fc.property(fc.array(object, { minLength: 1, maxLength: 12 }), (metas) => {
      for (const meta of [...metas, ...metas]) {
        const text = JSON.stringify({ a: 1, _meta: meta, b: 2 });
        assert.equal(RawObject.parse(text).raw('_meta'), JSON.stringify(meta));
        assert.equal(RawObject.parse(text).raw('b'), '2');
      }
    }),
  );
});

test('a cached _meta is checked for depth at each place', () => {
  const deep = `{"a":${'['.repeat(63)}${']'.repeat(63)}}`;
  const inside = `{"params":{"_meta":${deep}}}`;
  assert.equal(RawObject.parse(`{"_meta":${deep}}`).raw('_meta'), deep);
  assert.throws(() => RawObject.parse(inside), /nested too deeply/);
  assert.throws(() => RawObject.parse(inside, 'params'), /nested too deeply/);
});

test('text that ends inside a string is reported as such in every mode', () => {
  for (const end of ['', 'b', 'b'.repeat(11), 'b'.repeat(12), 'b'.repeat(40)]) {
    const text = `{"a":"${end}`;
    assert.throws(() => RawObject.parse(text), /unterminated string at offset 5/);
    assert.throws(() => RawObject.parseStrictly(text, UPSTREAM_BOUNDS), /unterminated string at offset 5/);
  }
});

test('any array is cut into the texts of its items', () => {
  fc.assert(
    fc.property(fc.array(fc.jsonValue()), fc.constantFrom(undefined, 2), (value, indent) => {
      const items = rawItems(JSON.stringify(value, undefined, indent));
      assert.equal(JSON.stringify(items.map((item): unknown => JSON.parse(item))), JSON.stringify(value));
    }),
  );
});

/** Tokens that often form valid or nearly valid objects. There are no backslashes, because escapes are not checked. */
const SOUP = ['{', '}', '[', ']', ',', ':', '"', '"a"', '"b":', '{"c":', ' ', '\n', '\t', '\u00a0', '\v'].concat([
  '0',
  '1',
  '-',
  '.',
  'e',
  '+',
  '01',
  '1.5',
  '-0',
  '1e9',
  'true',
  'false',
  'null',
  'NaN',
  'tru',
  'é',
  '\ufeff',
]);

function complaint(text: string): string | undefined {
  try {
    RawObject.parse(text);
    return undefined;
  } catch (thrown) {
    assert.ok(thrown instanceof JsonTextError, String(thrown));
    return thrown.message;
  }
}

function agrees(text: string): void {
  const ours = complaint(text);
  if (ours?.includes('appears twice') === true) return;
  let theirs: unknown;
  try {
    // Control characters in strings are not checked either.
    theirs = JSON.parse(text.replaceAll(/"[^"]*"/g, (string) => string.replaceAll(/\s/g, '_')));
  } catch {
    theirs = undefined;
  }
  const valid = typeof theirs === 'object' && theirs !== null && !Array.isArray(theirs);
  assert.equal(ours === undefined, valid, `${JSON.stringify(text)}: ${ours}`);
}

test('text is an object exactly if JSON.parse says so', () => {
  const soup = fc.array(fc.constantFrom(...SOUP), { maxLength: 12 }).map((pieces) => `{"x":${pieces.join('')}}`);
  fc.assert(fc.property(soup, agrees), { numRuns: 3_000 });
});

test('damaged text is an object exactly if JSON.parse says so', () => {
  const spot = fc.tuple(object, fc.nat(), fc.nat({ max: 3 }), fc.constantFrom('', ...SOUP));
  const damaged = spot.map(([value, at, length, piece]) => {
    const text = JSON.stringify(value).replaceAll('\\', '/');
    const offset = at % (text.length + 1);
    return text.slice(0, offset) + piece + text.slice(offset + length);
  });
  fc.assert(fc.property(damaged, agrees), { numRuns: 3_000 });
});

test('a number keeps all its digits', () => {
  const text = '{"big":12345678901234567890,"fine":0.1000000000000000055511151231257827,"huge":1e400,"zero":-0.0}';
  const parsed = RawObject.parse(text);
  assert.equal(parsed.raw('big'), '12345678901234567890');
  assert.equal(
    parsed.with('zero', '0').toString(),
    '{"big":12345678901234567890,"fine":0.1000000000000000055511151231257827,"huge":1e400,"zero":0}',
  );
});

test('a changed member keeps its position, and the others stay unchanged', () => {
  const parsed = RawObject.parse('{ "b" : 1 , "a" : { "deep" : [1, 2] } , "c":3}');
  assert.equal(parsed.with('b', '7').toString(), '{ "b" : 7 , "a" : { "deep" : [1, 2] } , "c":3}');
  assert.equal(
    parsed.with('c', '4').with('"d"', '5').toString(),
    '{ "b" : 1 , "a" : { "deep" : [1, 2] } , "c":4,"\\"d\\"":5}',
  );
  assert.equal(RawObject.parse(' { } ').with('a', '1').with('b', '2').toString(), '{ "a":1,"b":2}');
  assert.equal(parsed.with('d', '4').with('a', undefined).toString(), '{"b":1,"c":3,"d":4}');
  assert.equal(parsed.with('b', '1'), parsed);
});

test('map() keeps positions, and keeps the text if no member changes', () => {
  const parsed = RawObject.parse('{ "b" : 1 , "a" : [1, 2] }');
  const changed = parsed.map((raw, key) => (key === 'b' ? '7' : raw));
  assert.equal(changed.toString(), '{ "b" : 7 , "a" : [1, 2] }');
  assert.equal(
    parsed.map((raw) => raw),
    parsed,
  );
});

test('objects and arrays are recognised by their first character', () => {
  assert.deepEqual(
    ['{}', '[]', '"{"', '1', undefined].map((raw) => [isObjectText(raw), isArrayText(raw)]),
    [
      [true, false],
      [false, true],
      [false, false],
      [false, false],
      [false, false],
    ],
  );
});

test('an array is joined from the unchanged texts of its items', () => {
  assert.equal(arrayText([]), '[]');
  assert.equal(arrayText(rawItems('[ 1.0 , {"a": 1} ]')), '[1.0,{"a": 1}]');
});

test('a member named __proto__ or constructor is a member like any other', () => {
  const parsed = RawObject.parse('{"__proto__":{"polluted":true},"constructor":1,"hasOwnProperty":2}');
  assert.deepEqual([...parsed.keys()], ['__proto__', 'constructor', 'hasOwnProperty']);
  assert.equal(parsed.object('__proto__')?.raw('polluted'), 'true');
  assert.equal(RawObject.EMPTY.raw('__proto__'), undefined);
  assert.equal(Reflect.get({}, 'polluted'), undefined);
});

test('accessors return only values of their type', () => {
  const parsed = RawObject.parse('{"text":"a\\u0062c","number":1,"object":{"x":1},"array":[1],"null":null}');
  assert.equal(parsed.size, 5);
  assert.equal(parsed.string('text'), 'abc');
  assert.equal(parsed.string('number'), undefined);
  assert.equal(parsed.string('missing'), undefined);
  assert.equal(parsed.object('object')?.value('x'), 1);
  assert.equal(parsed.object('array'), undefined);
  assert.equal(parsed.value('null'), null);
  assert.equal(parsed.value('missing'), undefined);
});

test('undefined members of a value are left out', () => {
  assert.equal(RawObject.of({ a: undefined, b: 1 }).toString(), '{"b":1}');
});

const refused = [
  { text: '', what: /expected an object at offset 0/ },
  { text: '[]', what: /expected an object/ },
  { text: '{', what: /expected a member name/ },
  { text: '{"a":1', what: /expected "," or "}"/ },
  { text: '{"a":1,}', what: /expected a member name/ },
  { text: '{"a":[1,]}', what: /unexpected text at offset 8/ },
  { text: '{"a":[1}}', what: /expected "," or "\]"/ },
  { text: '{"a"}', what: /expected ":"/ },
  { text: '{"a":NaN}', what: /unexpected text at offset 5/ },
  { text: '{"a":Infinity}', what: /unexpected text/ },
  { text: "{'a':1}", what: /expected a member name/ },
  { text: '{"a":01}', what: /unexpected text/ },
  { text: '{"a":1}{', what: /text after the object at offset 7/ },
  { text: '{"a":"x}', what: /unterminated string/ },
  { text: '{"a":"x\\"}', what: /unterminated string/ },
  { text: '\ufeff{}', what: /expected an object/ },
  { text: '{"a":1,"a":2}', what: /member "a" appears twice/ },
  { text: '{"a":1,"\\u0061":2}', what: /member "a" appears twice/ },
  { text: '{"\\q":1}', what: /bad escape/ },
  {
    text: `{"${'x'.repeat(1_000)}":1,"${'x'.repeat(1_000)}":2}`,
    what: /^member "x{40}" appears twice at offset 1006$/,
  },
];

for (const { text, what } of refused) {
  test(`${quote(text)} is refused with its reason and place`, () => {
    assert.throws(
      () => RawObject.parse(text),
      (thrown) => thrown instanceof JsonTextError && what.test(thrown.message),
    );
  });
}

test('a string with a bad escape is kept, and refused when it is read', () => {
  const parsed = RawObject.parse('{"a":"\\q","b":1}');
  assert.equal(parsed.with('b', '2').toString(), '{"a":"\\q","b":2}');
  assert.throws(() => parsed.string('a'), JsonTextError);
});

test('64 levels below a member are accepted, and more are refused', () => {
  const nested = (depth: number): string => `{"a":${'['.repeat(depth)}${']'.repeat(depth)}}`;
  assert.equal(RawObject.parse(nested(64)).toString(), nested(64));
  assert.throws(() => RawObject.parse(nested(65)), /nested too deeply/);
});

const N = 1_000_000;
const hostile = [
  { name: 'brackets', text: `{"a":${'['.repeat(N)}` },
  { name: 'backslashes', text: `{"a":"${'\\'.repeat(N)}` },
  { name: 'escaped quotes', text: `{"a":"${'\\"'.repeat(N)}` },
  { name: 'quotes', text: `{"a":${'"'.repeat(N)}` },
  { name: 'backslashes before quotes', text: `{"a":[${'"\\\\\\\\",'.repeat(N / 8)}` },
  { name: 'digits', text: `{"a":${'1'.repeat(N)}x` },
  { name: 'digits after points', text: `{"a":[${'1.'.repeat(N)}` },
  { name: 'spaces', text: `{${' '.repeat(N)}x` },
  { name: 'spaces around colons', text: `{"a"${' '.repeat(N)}:${' '.repeat(N)}` },
  { name: 'members', text: `{${Array.from({ length: N / 10 }, (_, i) => `"${i}":1`).join(',')}` },
  { name: 'empty objects', text: `{"a":[${'{},'.repeat(N)}` },
];

for (const { name, text } of hostile) {
  // A parser that takes quadratic time would need hours for these.
  test(`a megabyte of ${name} is refused in linear time`, { timeout: 120_000 }, () => {
    assert.throws(() => RawObject.parse(text), JsonTextError);
    assert.throws(() => rawItems(`[${text.slice(5)}`), JsonTextError);
  });
}

test('text that is no array is refused', () => {
  for (const text of ['', '{}', '[1', '[1,]', '[,1]', '[1] 2', '[1 2]']) {
    assert.throws(() => rawItems(text), JsonTextError, text);
  }
});

test('oneLine removes line breaks between tokens, not escapes in strings', () => {
  assert.equal(oneLine('{\r\n"a":\n"x\\ny"}'), '{ "a": "x\\ny"}');
  assert.equal(oneLine('{"a":1}'), '{"a":1}');
});

// N-64
test('a compacted object reads, changes and is written as before', () => {
  const text = '{ "name": "a", "é\\n": [1, 2],"x":{"y":1.0} }';
  const object = RawObject.parse(text);
  const compact = object.compacted();
  assert.equal(compact.toString(), text);
  assert.deepEqual(compact.keys(), object.keys());
  assert.equal(compact.raw('x'), '{"y":1.0}');
  assert.equal(compact.with('name', '"b"').toString(), object.with('name', '"b"').toString());
  assert.equal(compact.with('z', '1').toString(), object.with('z', '1').toString());
  // Many objects with the same members share their names.
  assert.equal(compact.keys(), RawObject.parse(text).compacted().keys());
});
