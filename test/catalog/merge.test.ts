import assert from 'node:assert/strict';
import { test } from 'node:test';
import * as fc from '../support/fast-check.ts';
import { mergeCapabilities, mergeInstructions } from '../../src/catalog/merge.ts';
import type { Offer } from '../../src/catalog/offer.ts';
import type { ViewUpstream } from '../../src/catalog/view.ts';
import { RawObject } from '../../src/json/json.ts';
import { bare, offer, upstream, view } from './fixtures.ts';

const pair = view([upstream('a'), upstream('b')]);

function capabilities(shown: typeof pair, declared: Readonly<Record<string, string>>): unknown {
  const offers = Object.entries(declared).map(([id, text]): [string, Offer] => [
    id,
    offer({ capabilities: RawObject.parse(text) }),
  ]);
  return JSON.parse(mergeCapabilities(shown, new Map(offers)).toString());
}

const LISTS = { completions: {}, prompts: { listChanged: true }, tools: { listChanged: true } };
const PLAIN = { ...LISTS, resources: { listChanged: true } };
const FULL = { ...LISTS, logging: {}, resources: { subscribe: true, listChanged: true } };

// M-005
test('lists are declared regardless of the upstreams', () => {
  assert.deepEqual(capabilities(pair, { a: '{}', b: '{}' }), PLAIN);
  assert.deepEqual(capabilities(view([]), {}), PLAIN);
});

test('a capability of one upstream is declared', () => {
  assert.deepEqual(capabilities(pair, { a: '{"logging":{}}', b: '{"resources":{"subscribe":true}}' }), FULL);
});

// N-04
test('for an upstream without an offer, only the lists are declared', () => {
  const { completions: _, ...lists } = PLAIN;
  assert.deepEqual(capabilities(pair, {}), lists);
  assert.deepEqual(capabilities(pair, { a: '{}' }), PLAIN);
});

test('experimental, tasks and unknown extensions are not declared', () => {
  const declared = '{"experimental":{"x":{}},"tasks":{"list":{}},"extensions":{"com.example/x":{}}}';
  assert.deepEqual(capabilities(pair, { a: declared, b: '{}' }), PLAIN);
});

test('the settings of a supported extension are merged', () => {
  const ui = (settings: string): string => `{"extensions":{"io.modelcontextprotocol/ui":${settings}}}`;
  assert.deepEqual(
    capabilities(pair, { a: ui('{"mimeTypes":["x","y"],"v":1}'), b: ui('{"mimeTypes":["y","z"],"v":2}') }),
    {
      ...PLAIN,
      extensions: { 'io.modelcontextprotocol/ui': { mimeTypes: ['x', 'y', 'z'], v: 1 } },
    },
  );
  assert.deepEqual(capabilities(pair, { a: ui('{}'), b: '{}' }), {
    ...PLAIN,
    extensions: { 'io.modelcontextprotocol/ui': {} },
  });
});

test('nothing that outlives a call is declared for upstreams with isolation call', () => {
  const declared = '{"resources":{"subscribe":true},"tasks":{"requests":{"tools":{"call":{}}}}}';
  const at = (own: Partial<ViewUpstream>, revision = '2025-11-25') => {
    const parsed = offer({ capabilities: RawObject.parse(declared), revision });
    return JSON.parse(mergeCapabilities(view([upstream('a', own)]), new Map([['a', parsed]])).toString());
  };
  assert.deepEqual(at({ isPerCall: true }), PLAIN);
  assert.deepEqual(at({ isPerCall: true, isRemote: true }), PLAIN);
  assert.deepEqual(at({ isPerCall: true, isRemote: false }, '2026-07-28'), PLAIN);
  // Over HTTP each request of 2026-07-28 is independent, whatever the isolation is.
  assert.equal(at({ isPerCall: true, isRemote: true }, '2026-07-28').resources.subscribe, true);
});

// M-028
test('a malformed capability is not declared, and others are', () => {
  assert.deepEqual(capabilities(pair, { a: '{"resources":{"subscribe":true,"subscribe":true}}', b: '{}' }), PLAIN);
});

function instructions(
  shown: typeof pair,
  texts: Readonly<Record<string, string>>,
  maxChars: number,
): string | undefined {
  const offers = Object.entries(texts).map(([id, text]): [string, Offer] => [id, offer({ instructions: text })]);
  return mergeInstructions(shown, new Map(offers), maxChars);
}

test('instructions stand under the title of their upstream, in config order', () => {
  const shown = view([upstream('a', { title: 'GitHub' }), upstream('b', { title: 'Notes' }), upstream('c')]);
  assert.equal(
    instructions(shown, { b: 'Write.', a: ' Read. \n', c: '  ' }, 1000),
    '## GitHub\nRead.\n\n## Notes\nWrite.',
  );
});

test('without instructions of upstreams there are no instructions', () =>
  assert.equal(instructions(pair, {}, 1000), undefined));

// N-28
test('instructions have no characters that people cannot see', () => {
  const hidden = 'Read.\u001b[2J\u{e0041}\u202e\u0007\nZWJ \u200d stays.';
  assert.equal(instructions(view([bare('a')]), { a: hidden }, 1000), 'Read.\nZWJ \u200d stays.');
});

test('an endpoint with one unprefixed upstream has its instructions unchanged', () => {
  assert.equal(instructions(view([bare('a')]), { a: 'Read.' }, 1000), 'Read.');
  assert.equal(instructions(view([bare('a')]), { a: 'Read everything.' }, 12), 'Read … (cut)');
});

test('a limit of 0 leaves no instructions, and one below the mark of a cut holds', () => {
  for (const shown of [view([bare('a')]), pair]) {
    assert.equal(instructions(shown, { a: 'Read everything.' }, 0), undefined);
    for (const maxChars of [1, 3, 6]) {
      const merged = instructions(shown, { a: 'Read everything.' }, maxChars) ?? '';
      assert.equal(merged.length, maxChars);
      assert.ok(merged.endsWith('…'), merged);
    }
  }
});

test('a long text is cut before short ones are', () => {
  const merged = instructions(pair, { a: 'x'.repeat(500), b: 'short' }, 100) ?? '';
  assert.match(merged, /^## a\nx+… \(cut\)\n\n## b\nshort$/);
  assert.equal(merged.length, 100);
});

test('instructions neither exceed their limit nor split a character', () => {
  const text = fc.string({ unit: 'grapheme', maxLength: 80 });
  fc.assert(
    fc.property(text, text, fc.integer({ min: 0, max: 200 }), (first, second, maxChars) => {
      const merged = instructions(pair, { a: first, b: second }, maxChars) ?? '';
      assert.ok(merged.length <= maxChars);
      assert.ok(merged.isWellFormed());
    }),
  );
});
