import assert from 'node:assert/strict';
import { test } from 'node:test';
import * as fc from '../../support/fast-check.ts';
import { cleanItemText, visibleLabel, visibleText, replaceLoneSurrogates } from '../../../src/catalog/items/texts.ts';
import { bare, catalogOf, resource, tool, view } from '../fixtures.ts';

const texts = [
  { what: 'a terminal sequence', text: 'a\u001b[31mb\u009b0mc', visible: 'abc' },
  { what: 'control characters', text: 'a\u0000\u0007\u007f\u0085b', visible: 'ab' },
  { what: 'tag characters', text: 'a\u{e0041}\u{e007f}b', visible: 'ab' },
  { what: 'line breaks and tabs', text: 'a\n\tb\r\nc', visible: 'a\n\tb\r\nc' },
  { what: 'an override without an end', text: 'a\u202eb', visible: 'ab' },
  { what: 'an end without an override', text: 'a\u202cb\u2069', visible: 'ab' },
  { what: 'an override that its line ends', text: 'a\u202db\nc\u202c', visible: 'ab\nc' },
  { what: 'an embedding that an isolate ends', text: '\u2067a\u202eb\u2069c\u202c', visible: '\u2067ab\u2069c' },
  { what: 'paired isolates', text: 'a\u2068b\u2067c\u2069\u2069', visible: 'a\u2068b\u2067c\u2069\u2069' },
  {
    what: 'an end of an embedding in an isolate',
    text: '\u202a\u2066\u202cb\u2069\u202c',
    visible: '\u202a\u2066b\u2069\u202c',
  },
  { what: 'paired embeddings', text: '\u202ba\u202c', visible: '\u202ba\u202c' },
  {
    what: 'joiners and marks',
    text: '\u06ad\u200c\u200d👨\u200d👩\u200e\u200f',
    visible: '\u06ad\u200c\u200d👨\u200d👩\u200e\u200f',
  },
  { what: 'emoji, accents and CJK', text: 'größe 天気 😀🏳️‍🌈', visible: 'größe 天気 😀🏳️‍🌈' },
];

for (const { what, text, visible } of texts) {
  // N-28
  test(`a description with ${what} keeps only visible text`, () => assert.equal(visibleText(text), visible));
}

// N-28
test('a title is one line', () => assert.equal(visibleLabel('a\r\n\tb'), 'a b'));

// N-28
test('cleaning a cleaned text changes nothing', () => {
  const char = fc.constantFrom(
    'a',
    '\n',
    '\u202a',
    '\u202c',
    '\u202e',
    '\u2066',
    '\u2069',
    '\u001b',
    '[',
    'm',
    '\u{e0041}',
  );
  fc.assert(
    fc.property(fc.string({ unit: char }), (text) => {
      const visible = visibleText(text);
      if (!text.includes('\u001b')) assert.equal(visibleText(visible), visible);
      assert.ok(!visible.includes('\u001b') && !visible.includes('\u{e0041}'));
    }),
  );
});

// N-28
test('titles and descriptions are cleaned at any depth; data and names are not', () => {
  const hidden = 'a\u001b\u{e0041}';
  const item = {
    name: hidden,
    title: `${hidden}\n`,
    description: hidden,
    annotations: { title: hidden },
    arguments: [{ name: hidden, description: hidden }],
    inputSchema: {
      type: 'object',
      title: hidden,
      properties: {
        description: { type: 'string', description: hidden, default: hidden },
        title: { anyOf: [{ const: { title: hidden } }, { items: { title: hidden } }] },
        default: { description: hidden },
      },
    },
    _meta: { title: hidden },
  };
  const { json, cleaned } = cleanItemText(JSON.stringify(item), new Set());
  assert.equal(cleaned, 8);
  assert.deepEqual(JSON.parse(json), {
    name: hidden,
    title: 'a ',
    description: 'a',
    annotations: { title: 'a' },
    arguments: [{ name: hidden, description: 'a' }],
    inputSchema: {
      type: 'object',
      title: 'a',
      properties: {
        description: { type: 'string', description: 'a', default: hidden },
        title: { anyOf: [{ const: { title: hidden } }, { items: { title: 'a' } }] },
        default: { description: 'a' },
      },
    },
    _meta: { title: hidden },
  });
});

// SEC-24
test('a million embeddings and isolate ends are removed at once', () => {
  assert.equal(visibleText(`a${'\u202a'.repeat(1_000_000)}${'\u2069'.repeat(1_000_000)}b`), 'ab');
});

// N-28
test('a description whose member name has escapes is cleaned too', () => {
  const { json } = cleanItemText('{"t\\u0069tle":"a\\u001b", "n":1.0}', new Set());
  assert.equal(json, '{"t\\u0069tle":"a", "n":1.0}');
});

// N-28
test('the catalog cleans and counts texts, also the name of a resource', () => {
  const bad = resource('x:1').with('name', '"a\\u001bb"').with('title', '"\\udb40\\udc41t"');
  const catalog = catalogOf(view([bare('a')]), {
    a: { resources: [bad], tools: [tool('t', { description: 'fine\n' })] },
  });
  assert.deepEqual(catalog.resources.texts, ['{"uri":"x:1","name":"ab","title":"t"}']);
  assert.deepEqual(catalog.repaired, [{ upstream: 'a', kind: 'resource', name: 'x:1', leftOut: [], cleanedTexts: 2 }]);
});

// N-02
test('a lone surrogate becomes a replacement character', () => {
  const cases = [
    ['"\\ud83d\\ude00"', '"\\ud83d\\ude00"'],
    ['"\\ud83dx"', '"\\ufffdx"'],
    ['"\\uDE00\\uD83D"', '"\\ufffd\\ufffd"'],
    ['"\\\\ud83d"', '"\\\\ud83d"'],
    ['"\\ud83d\\ud83d\\ude00"', '"\\ufffd\\ud83d\\ude00"'],
  ];
  for (const [before = '', after] of cases) assert.equal(replaceLoneSurrogates(before), after);
});
