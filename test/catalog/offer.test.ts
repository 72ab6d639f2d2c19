import assert from 'node:assert/strict';
import { test } from 'node:test';
import { EMPTY_OFFER, offerText, parseOffer, readItems, isSameOffer, sharedOffer } from '../../src/catalog/offer.ts';
import { LIMITS } from '../../src/limits.ts';
import { rawItems, RawObject } from '../../src/json/json.ts';
import { offer, resource, template, tool } from './fixtures.ts';

const full = offer({
  capabilities: RawObject.parse('{"tools":{"listChanged":true},"odd":1.0}'),
  serverInfo: RawObject.parse('{"name":"x","version":"1"}'),
  instructions: 'Use "it"\nwell.',
  tools: [RawObject.parse('{"name":"a","inputSchema":{"type":"object"},"n":12345678901234567890,\n"z":null}')],
  prompts: [RawObject.parse('{"name":"p"}')],
  resources: [resource('file:///a')],
  templates: [template('file:///{x}')],
  unreadable: [{ kind: 'prompt', position: 2, why: 'is not an object' }],
});

// D4
test('an offer restored from its file is equal byte for byte', () => {
  const read = parseOffer(offerText(full));
  assert.ok(read);
  assert.equal(read.tools[0]?.toString(), full.tools[0]?.toString());
  assert.equal(read.capabilities.toString(), full.capabilities.toString());
  assert.equal(read.instructions, full.instructions);
  assert.equal(read.revision, '2025-11-25');
  assert.deepEqual(read.unreadable, full.unreadable);
  assert.ok(isSameOffer(read, full));
  assert.ok(isSameOffer(parseOffer(offerText(EMPTY_OFFER)) ?? full, EMPTY_OFFER));
});

// N-62
test('an offer without unreadable entries equals the one restored from its file', () => {
  const fresh = offer({ tools: [tool('a')], unreadable: [] });
  const restored = parseOffer(offerText(fresh));
  assert.ok(restored);
  assert.ok(isSameOffer(fresh, restored));
  assert.ok(!isSameOffer(fresh, offer({ tools: [tool('b')], unreadable: [] })));
});

// N-63
test('offers and lists with the same content are the same object', () => {
  const listed = (description: string) =>
    sharedOffer(offer({ tools: [tool('a', { description })], prompts: [tool('p')], resources: [resource('x:1')] }));
  const one = listed('same');
  assert.equal(listed('same'), one);
  assert.equal(parseOffer(offerText(one)), one);
  const other = listed('other');
  assert.notEqual(other, one);
  assert.notEqual(other.tools, one.tools);
  assert.equal(other.prompts, one.prompts);
  assert.equal(other.resources, one.resources);
});

// N-21
test('limit listItemBytes: a larger entry is recorded by name, the others are read', () => {
  const item = (name: string, bytes: number) => {
    const frame = JSON.stringify({ name, description: '' });
    return frame.replace('""', `"${'é'.repeat((bytes - frame.length) / 2)}"`);
  };
  const [fits, large] = [item('fits', LIMITS.listItemBytes), item('huge', LIMITS.listItemBytes + 2)];
  assert.equal(Buffer.byteLength(fits), LIMITS.listItemBytes);
  const { items, unreadable } = readItems('tool', [large, fits]);
  assert.deepEqual(
    items.map((one) => one.string('name')),
    ['fits'],
  );
  assert.deepEqual(unreadable, [
    { kind: 'tool', position: 0, name: 'huge', why: 'has 262146 bytes, and 262144 are read', limit: 'listItemBytes' },
  ]);
});

test('REL a damaged file is ignored, wherever the damage is', () => {
  const text = offerText(full);
  for (let at = 0; at < text.length; at++) {
    assert.equal(parseOffer(text.slice(0, at)), undefined);
    assert.equal(parseOffer(`${text.slice(0, at)}~${text.slice(at + 1)}`), undefined, `damage at ${at}`);
  }
});

for (const text of ['', 'null', '[]', '{}', '{"format":1}', offerText(full).replace('"format":1', '"format":0')]) {
  test(`"${text.slice(0, 14)}" is a file of another format`, () => assert.equal(parseOffer(text), undefined));
}

const before = offer({ tools: [tool('a')], prompts: [tool('p')], resources: [resource('x:1')] });
const changes = [
  { what: 'a description', after: { ...before, tools: [tool('a', { description: 'new' })] } },
  { what: 'the order', after: { ...before, resources: [resource('x:2'), resource('x:1')] } },
  { what: 'a template', after: { ...before, templates: [template('x:{a}')] } },
  { what: 'everything', after: EMPTY_OFFER },
];

test('offers with equal items are the same', () => assert.ok(isSameOffer(before, { ...before, tools: [tool('a')] })));

for (const { what, after } of changes) {
  test(`an offer with ${what} changed is another one`, () => assert.ok(!isSameOffer(before, after)));
}

test('a bad entry is recorded, and the others are read', () => {
  const { items, unreadable } = readItems(
    'tool',
    rawItems('[{"name":"a"}, null, {"name":"b","name":"c"}, "x", {"name":"d"}]'),
  );
  assert.deepEqual(
    items.map((item) => item.string('name')),
    ['a', 'd'],
  );
  assert.deepEqual(
    unreadable.map(({ position, why }) => `${position} ${why}`),
    ['1 is not an object', '2 is not well-formed JSON', '3 is not an object'],
  );
});
