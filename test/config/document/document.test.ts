import assert from 'node:assert/strict';
import { test } from 'node:test';

import * as fc from '../../support/fast-check.ts';

import { parseText } from '../../../src/config/document/document.ts';
import { ConfigError } from '../../../src/config/document/problem.ts';
import { parseFile } from '../../../src/config/parse-file.ts';

function refusal(file: string, text: string): string {
  try {
    parseFile(file, text);
  } catch (thrown) {
    if (thrown instanceof ConfigError) return thrown.message;
    throw thrown;
  }
  return 'nothing is wrong';
}

test('JSON may have comments and trailing commas, and positions are those of the file', () => {
  const text = '// head\n{\n\t/* two\n\tlines */ "a": "http://x", // tail\n\t"b": [1, 2,],\n}';
  const document = parseText('x.jsonc', text);
  assert.deepEqual(document.data, { a: 'http://x', b: [1, 2] });
  assert.deepEqual(document.problem(['b', 1], 'm'), {
    file: 'x.jsonc',
    line: 5,
    column: 11,
    key: 'b[1]',
    message: 'm',
  });
});

test('JSON strings keep their escapes', () => {
  const value = { 'a"/*': '\\ \u00e9 \u{1f600} // \t', 'b\\': '*/' };
  assert.deepEqual(parseText('x.json', JSON.stringify(value)).data, value);
});

test('a byte order mark is ignored', () => {
  assert.deepEqual(parseText('x.json', '\uFEFF{"a": 1}').data, { a: 1 });
});

test('two slashes are a comment only in JSON', () => {
  assert.deepEqual(parseText('x.yaml', '{a: http://x}').data, { a: 'http://x' });
  assert.deepEqual(parseText('noname', '// c\n{"a": 1}').data, { a: 1 });
});

test('a number keeps its spelling beside its value', () => {
  const document = parseText('x.yaml', 'port: 08080\n');
  assert.deepEqual(document.data, { port: 8080 });
  assert.equal(document.source(['port']), '08080');
});

test('anchors and merge keys work, and own members override merged ones', () => {
  const { data } = parseText('x.yaml', 'x: &d {k: 1, l: 2}\na: {<<: *d, l: 3}\nb: *d\nc: {<<: [*d, {m: 4}]}\n');
  assert.deepEqual(data, { x: { k: 1, l: 2 }, a: { k: 1, l: 3 }, b: { k: 1, l: 2 }, c: { k: 1, l: 2, m: 4 } });
});

test('an own member overrides one that a merged map merges', () => {
  const { data } = parseText('x.yaml', 'x: &d {k: 1}\ny: &e {<<: *d}\nz: {<<: *e, k: 2}\n');
  assert.deepEqual(data, { x: { k: 1 }, y: { k: 1 }, z: { k: 2 } });
});

test('an own member with a number as its name overrides a merged one', () => {
  const { data } = parseText('x.yaml', 'x: &d {1: a, 2: b}\ny: {1: c, <<: *d}\n');
  assert.deepEqual(data, { x: { 1: 'a', 2: 'b' }, y: { 1: 'c', 2: 'b' } });
});

const bomb = `a0: &a0 [x, x]\n${Array.from({ length: 30 }, (_, i) => `a${i + 1}: &a${i + 1} [*a${i}, *a${i}]`).join('\n')}`;

const refusals = [
  { name: 'a key twice', text: 'a: 1\nb: 2\na: 3\n', message: 'x.yaml:3:1 a: this key is here twice; keep one' },
  {
    name: 'a key twice further down',
    text: 'm:\n  k: {a: 1, a: 2}\n',
    message: 'x.yaml:2:13 m.k.a: this key is here twice; keep one',
  },
  { name: '__proto__', text: '__proto__: {a: 1}\n', message: 'x.yaml:1:1: "__proto__" cannot be a key' },
  { name: 'a list as a key', text: '? [a]\n: 1\n', message: 'x.yaml:1:3: expected a name as the key' },
  {
    name: 'an unknown alias',
    text: 'a: *b\n',
    message: 'x.yaml:1:4 a: no anchor of this name stands before this; a text that begins with "*" needs quotes',
  },
  { name: 'an unknown tag', text: 'a: !secret x\n', message: 'x.yaml:1:4: a text that begins with "!" needs quotes' },
  {
    name: 'a block scalar with text in its header',
    text: 'a: |secret\n',
    message: 'x.yaml:1:5: a text that begins with "|" or ">" needs quotes',
  },
  {
    name: 'an anchor without a value',
    text: 'a: &secret\n',
    message: 'x.yaml:1:11 a: an anchor without a value; a text that begins with "&" needs quotes',
  },
  {
    name: 'a reserved character',
    text: 'a: @secret\n',
    message: 'x.yaml:1:4: a text that begins with this character needs quotes',
  },
  {
    name: 'an unknown escape',
    text: 'a: "\\q"\n',
    message: 'x.yaml:1:5: this escape is not YAML; in double quotes, a backslash is written "\\\\"',
  },
  {
    name: 'a second document',
    text: 'a: 1\n---\nb: 2\n',
    message: 'x.yaml:2:1: expected one document; this line begins another',
  },
  { name: 'a tab', text: 'a:\n\tb: 1\n', message: 'x.yaml:2:1: a tab indents this line; YAML accepts spaces alone' },
  { name: 'a colon in a text', text: 'a: b: c\n', message: 'x.yaml:1:4: a text with ": " in it needs quotes' },
  {
    name: 'a line that is indented too far',
    text: 'a: b\n  c: d\n',
    message: 'x.yaml:1:4: a ":" is missing at the end of this line, or the next line is indented too far',
  },
  {
    name: 'a line that is indented less than those beside it',
    text: 'm:\n  a: b\n c: d\n',
    message: 'x.yaml:3:1: this line is indented less or more than the lines beside it',
  },
  {
    name: 'a list whose items are not aligned',
    text: 'a:\n  b:\n    - c\n   - d\n',
    message: 'x.yaml:4:1: this line is indented less or more than the lines beside it',
  },
  {
    name: 'a quote without an end',
    text: 'a:\n  b: "c\n  d: e\n',
    message: 'x.yaml:2:6: the text in quotes that begins here has no end',
  },
  {
    name: 'a text after one in quotes',
    text: `a: 'it's'\n`,
    message: "x.yaml:1:8: the value has ended before this; write all of it in quotes, and a quote inside as '' or \\\"",
  },
  {
    name: 'a bracket without an end',
    text: 'a: [b, c\nd: e\n',
    message: 'x.yaml:2:1: expected "]" before this; a bracket is not closed, or this line needs to be indented',
  },
  {
    name: 'a variable without quotes in a map',
    text: 'a: {b: ${X}}\nc: d\ne: f\n',
    message:
      "x.yaml:1:9: the value has ended before this; write all of it in quotes, and a quote inside as '' or \\\"" +
      ' (inside {…} and […], text with ${…} needs quotes)',
  },
  {
    name: 'a bracket too many',
    text: 'a: [b]]\nc: d\ne: f\n',
    message: 'x.yaml:1:7: this "]" closes no bracket; remove it',
  },
  {
    name: 'a brace too many',
    text: 'a: {b: c}}\nd: e\n',
    message: 'x.yaml:1:10: this "}" closes no brace; remove it',
  },
  {
    name: 'a brace before the map',
    text: '}\na: b\n',
    message: 'x.yaml:1:1: this "}" closes no brace; remove it',
  },
  {
    name: 'a comma that is missing in a list',
    text: 'a: ["b" c]\n',
    message: 'x.yaml:1:9: expected "," or a new line before this, or all of the text in quotes',
  },
  {
    name: 'a comma that is missing in a map',
    text: 'a: {b: "c" d: e}\n',
    message: 'x.yaml:1:12: expected "," or a new line before this, or all of the text in quotes',
  },
  {
    name: 'a mistake after another one',
    text: "a: 'b' c\n  d: e\nf: 'g' h\n",
    message: [
      'x.yaml:1:4: a text with ": " in it needs quotes',
      "x.yaml:3:8: the value has ended before this; write all of it in quotes, and a quote inside as '' or \\\"",
    ].join('\n'),
  },
  {
    name: 'a key without a colon',
    text: 'a: b\nc d\n',
    message: 'x.yaml:2:1: expected a name, a ":" and a space at the beginning of this line',
  },
  { name: 'a merge of no map', text: 'a: {<<: 3}\n', message: 'x.yaml:1:9 a: expected a map to merge' },
];

for (const { name, text, message } of refusals) {
  test(`${name} is refused where it stands`, () => assert.equal(refusal('x.yaml', text), message));
}

const tomlRefusals = [
  { name: 'a text without quotes', text: 'a = b\n', message: 'a text needs quotes' },
  { name: 'a quote without an end', text: 'a = "b\n', message: 'a text in quotes is not closed in this line' },
  { name: 'a key twice', text: 'a = 1\na = 2\n', message: 'this key is here twice; keep one' },
  { name: 'a colon', text: 'a: "b"\n', message: 'expected a line such as name = "value" or [mcp_servers.name]' },
];

for (const { name, text, message } of tomlRefusals) {
  test(`${name} in TOML is refused in plain words`, () => {
    assert.throws(
      () => parseFile('x.toml', text),
      (thrown) => thrown instanceof ConfigError && thrown.problems[0]?.message === message,
    );
  });
}

test('aliases that multiply are refused quickly', { timeout: 120_000 }, () => {
  assert.match(refusal('x.yaml', bomb), /more than 20000 values/);
});

test('an alias to itself is refused', () => {
  assert.match(refusal('x.yaml', 'a: &a [*a]\n'), /nested deeper than 64 levels/);
});

test('endless brackets are refused', { timeout: 120_000 }, () => {
  const brackets = '['.repeat(20_000);
  for (const file of ['x.json', 'x.yaml', '.claude.json']) assert.match(refusal(file, brackets), /nested too deeply$/);
  assert.match(refusal('x.toml', `a = ${brackets}`), /excessively nested/);
});

test('settings of ~/.claude.json may be nested as deeply as those of other files', () => {
  for (const file of ['.claude.json', 'x.json']) {
    const nested = (depth: number) => `{"gateway": ${'['.repeat(depth)}1${']'.repeat(depth)}}`;
    assert.equal(refusal(file, nested(60)), 'nothing is wrong');
    assert.match(refusal(file, nested(70)), /nested deeper than 64 levels$/);
  }
});

test('a variable that YAML reads as a map is refused with advice to quote it', () => {
  assert.match(refusal('x.yaml', 'a: {b: ${X}}\n'), /needs quotes/);
  assert.doesNotMatch(refusal('x.yaml', 'a: {b: ]}\n'), /needs quotes/);
});

test('a syntax error that the parser reports more than once is one problem', () => {
  const text = 'mcpServers: {{{\n';
  assert.throws(
    () => parseText('config.yaml', text),
    (thrown) => {
      assert.ok(thrown instanceof ConfigError);
      const lines = thrown.problems.map(({ line, column, message }) => `${line}:${column} ${message}`);
      assert.deepEqual(lines, [...new Set(lines)]);
      return true;
    },
  );
});

const PUNCTUATION = '|>!*&@%`"\'?:-,[]{}#~=\\ \n'.split('');

test('no syntax error quotes the file, which may hold secrets', () => {
  const marks = fc.string({ unit: fc.constantFrom(...PUNCTUATION), maxLength: 4 });
  const places = fc.constantFrom(
    (text: string) => `a:\n  b: ${text}\n`,
    (text: string) => `a:\n  - ${text}\n  - c\n`,
    (text: string) => `a: {b: ${text}, c: 1}\n`,
    (text: string) => `"a"\nb: ${text}\n`,
  );
  fc.assert(
    fc.property(places, marks, marks, fc.constantFrom('yaml', 'json', 'toml'), (place, before, after, ending) => {
      const file = `x.${ending}`;
      const text = ending === 'toml' ? `a = ${before}hunter2${after}\n` : place(`${before}hunter2${after}`);
      try {
        parseFile(file, text);
      } catch (thrown) {
        assert.ok(thrown instanceof ConfigError);
        for (const { message } of thrown.problems) assert.ok(!message.includes('hunter'), message);
      }
    }),
    { numRuns: 2_000 },
  );
});
