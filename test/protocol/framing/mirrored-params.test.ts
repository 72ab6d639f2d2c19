import assert from 'node:assert/strict';
import { test } from 'node:test';

import { RawObject } from '../../../src/json/json.ts';
import { publishedSchema, readMirrored } from '../../../src/protocol/framing/mirrored-params.ts';

function schema(properties: unknown, more: object = {}): RawObject {
  return RawObject.of({ type: 'object', properties, ...more });
}

const REGION = { type: 'string', 'x-mcp-header': 'Region' };

test('annotated arguments are found at any depth, in order', () => {
  const found = readMirrored(
    schema({
      region: REGION,
      plain: { type: 'string' },
      'x-mcp-header': { type: 'object', properties: { count: { type: 'integer', 'x-mcp-header': 'Count' } } },
      deep: {
        type: 'object',
        properties: { er: { type: 'object', properties: { flag: { type: 'boolean', 'x-mcp-header': 'Flag' } } } },
      },
    }),
  );
  assert.deepEqual(found, {
    kind: 'mirrored',
    params: [
      { header: 'Region', path: ['region'] },
      { header: 'Count', path: ['x-mcp-header', 'count'] },
      { header: 'Flag', path: ['deep', 'er', 'flag'] },
    ],
  });
});

const none = [
  { name: 'nothing', root: schema({ a: { type: 'string' } }) },
  { name: 'a property of that name', root: schema({ 'x-mcp-header': { type: 'string' } }) },
  { name: 'a default that talks of it', root: schema({ a: { type: 'object', default: { 'x-mcp-header': '' } } }) },
  { name: 'an example that talks of it', root: schema({}, { examples: [{ 'x-mcp-header': 7 }] }) },
  { name: 'a keyword nobody knows', root: schema({}, { 'x-notes': { 'x-mcp-header': 'Bad Name' } }) },
];

for (const { name, root } of none) {
  test(`a schema with ${name} sends no argument in a header`, () => {
    assert.deepEqual(readMirrored(root), { kind: 'mirrored', params: [] });
    assert.equal(publishedSchema(root), root);
  });
}

const invalid: { name: string; root: RawObject; why: RegExp }[] = [
  { name: 'an empty name', root: schema({ a: { type: 'string', 'x-mcp-header': '' } }), why: /no name of a header/ },
  { name: 'a name that is no text', root: schema({ a: { type: 'string', 'x-mcp-header': true } }), why: /no name/ },
  { name: 'an annotation at the root', root: schema({}, { 'x-mcp-header': 'A' }), why: /not a fixed argument path/ },
  { name: 'no type', root: schema({ a: { 'x-mcp-header': 'A' } }), why: /no string, integer or boolean/ },
  {
    name: 'the same name twice',
    root: schema({ a: REGION, b: { type: 'object', properties: { c: { type: 'string', 'x-mcp-header': 'REGION' } } } }),
    why: /"REGION" twice/,
  },
  {
    name: 'a hidden annotation',
    root: RawObject.parse('{"\\u0078-mcp-header":"A"}'),
    why: /not a fixed argument path/,
  },
  {
    name: 'a member named twice inside',
    root: RawObject.parse('{"properties":{"a":{"type":"string","type":"integer","x-mcp-header":"A"}}}'),
    why: /cannot be searched/,
  },
];

for (const header of ['My Region', 'Region:Primary', 'Région', 'Region\t1', 'a\r\nSet-Cookie: b']) {
  invalid.push({
    name: `the name ${JSON.stringify(header)}`,
    root: schema({ a: { type: 'string', 'x-mcp-header': header } }),
    why: /no name of a header/,
  });
}
for (const type of ['array', 'object', 'null', ['string', 'null']]) {
  const root = schema({ a: { type, 'x-mcp-header': 'A' } });
  invalid.push({ name: `the type ${JSON.stringify(type)}`, root, why: /no string, integer or boolean/ });
}
const INNER = { properties: { a: REGION } };
for (const keyword of ['items', 'additionalProperties', 'not', 'if', 'then', 'else', 'contains', 'propertyNames']) {
  invalid.push({
    name: `one below ${keyword}`,
    root: schema({}, { [keyword]: INNER }),
    why: /not a fixed argument path/,
  });
}
for (const keyword of ['allOf', 'anyOf', 'oneOf', 'prefixItems', 'items']) {
  const root = schema({}, { [keyword]: [true, INNER] });
  invalid.push({ name: `one in a list below ${keyword}`, root, why: /not a fixed argument path/ });
}
for (const keyword of ['$defs', 'definitions', 'patternProperties', 'dependentSchemas', 'dependencies']) {
  const root = schema({ b: { type: 'object', [keyword]: { c: INNER, d: ['e'] } } });
  invalid.push({ name: `one by name below ${keyword}`, root, why: /not a fixed argument path/ });
}

for (const { name, root, why } of invalid) {
  // SEC-28 M-024
  test(`a schema with ${name} is invalid, with the reason`, () => {
    const found = readMirrored(root);
    assert.ok(found.kind === 'invalid');
    assert.match(found.why, why);
    assert.doesNotMatch(found.why, /[\r\n]/);
  });
}

test('an invalid annotation removes all annotations, and nothing else', () => {
  const root = RawObject.parse(
    '{ "type":"object", "properties":{"a":{"type":"string","x-mcp-header":"A B","maxLength":1.0},"b":{"type":"string","x-mcp-header":"B"},"x-mcp-header":{"type":"array","items":[{"x-mcp-header":"C"}]},"d":{"default":{"x-mcp-header":1}}},"z":1e400}',
  );
  const shown = publishedSchema(root);
  assert.equal(
    shown.toString(),
    '{ "type":"object", "properties":{"a":{"type":"string","maxLength":1.0},"b":{"type":"string"},"x-mcp-header":{"type":"array","items":[{}]},"d":{"default":{"x-mcp-header":1}}},"z":1e400}',
  );
  assert.deepEqual(readMirrored(shown), { kind: 'mirrored', params: [] });
});

// M-024
test('an annotation of type number is invalid and removed', () => {
  const root = schema({ a: { type: 'number', 'x-mcp-header': 'A' } });
  assert.equal(readMirrored(root).kind, 'invalid');
  assert.equal(publishedSchema(root).toString(), '{"type":"object","properties":{"a":{"type":"number"}}}');
});

test('a schema with valid annotations stays unchanged', () => {
  const root = RawObject.parse('{ "properties" : {"a": {"type":"string", "x-mcp-header":"Method"}} }');
  assert.equal(publishedSchema(root), root);
});

// SEC-28
test('a schema with very many properties is searched in linear time', { timeout: 120_000 }, () => {
  const properties = Object.fromEntries(
    Array.from({ length: 20_000 }, (_, i) => [`p${i}`, { type: 'string', 'x-mcp-header': `H${i}` }]),
  );
  const found = readMirrored(schema(properties));
  assert.ok(found.kind === 'mirrored' && found.params.length === 20_000);
  assert.equal(
    publishedSchema(schema(properties, { 'x-mcp-header': 1 }))
      .toString()
      .includes('x-mcp-header'),
    false,
  );
});

// N-27
test('a schema that is large at each of many levels is not searched', () => {
  const wide = JSON.stringify(Object.fromEntries(Array.from({ length: 9_000 }, (_, at) => [`p${at}`, {}])));
  const inner = `{"properties":${wide},"x-mcp-header":"A"}`;
  const root = RawObject.parse(`${'{"not":'.repeat(50)}${inner}${'}'.repeat(50)}`);
  const reading = readMirrored(root);
  assert.match(reading.kind === 'invalid' ? reading.why : '', /too large and deep/);
  assert.equal(publishedSchema(root), root);
});
