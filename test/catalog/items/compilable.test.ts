import assert from 'node:assert/strict';
import { once } from 'node:events';
import { createServer } from 'node:http';
import { test } from 'node:test';
import { AjvJsonSchemaValidator } from '@modelcontextprotocol/sdk/validation/ajv';
import * as fc from '../../support/fast-check.ts';
import * as z from 'zod';
import { isCompilable } from '../../../src/catalog/items/compilable.ts';
import { catalogOf, member, tool, upstream, view, listOf } from '../fixtures.ts';

type Schema = Parameters<AjvJsonSchemaValidator['getValidator']>[0];

/** Returns whether the validator of SDK v1 compiles the schema. */
function compiles(schema: Schema): boolean {
  try {
    new AjvJsonSchemaValidator().getValidator(schema);
    return true;
  } catch {
    return false;
  }
}

function isRegExp(pattern: string): boolean {
  try {
    return new RegExp(pattern, 'u') instanceof RegExp;
  } catch {
    return false;
  }
}

const keyword = fc.constantFrom(
  'type',
  'properties',
  'patternProperties',
  'items',
  'required',
  'enum',
  'const',
  'default',
  'allOf',
  'anyOf',
  'not',
  'if',
  'then',
  'additionalProperties',
  'dependencies',
  '$defs',
  'definitions',
  '$ref',
  '$id',
  'id',
  '$anchor',
  '$schema',
  '$async',
  'nullable',
  'pattern',
  'format',
  'minLength',
  'multipleOf',
  'uniqueItems',
  'title',
  'contains',
  'propertyNames',
  'x-own',
  '$dynamicRef',
  'dependentRequired',
  'prefixItems',
  'additionalItems',
);
const scalar = fc.constantFrom<unknown>(
  null,
  true,
  false,
  0,
  1.5,
  -1,
  '',
  'x',
  '(',
  '#',
  '#/$defs/a',
  '#/properties/a',
  '#a',
  'object',
  'string',
  [],
  ['object'],
  ['string', 'null'],
  ['a'],
  [1],
  'email',
  'https://x.example/',
);
const { schema: anySchema } = fc.letrec<{ schema: object; value: unknown }>((tie) => ({
  value: fc.oneof(
    { maxDepth: 4 },
    scalar,
    tie('schema'),
    fc.array(tie('schema'), { maxLength: 2 }),
    fc.dictionary(fc.constantFrom('a', 'b', '(', '__proto__', 'constructor', '$id'), tie('schema'), { maxKeys: 2 }),
  ),
  schema: fc.dictionary(keyword, tie('value'), { maxKeys: 4 }),
}));

// N-02
test('SDK v1 compiles every output schema that older clients get', () => {
  fc.assert(
    fc.property(anySchema, (inner) => {
      const schema: Schema = { ...inner, type: 'object' };
      if (isCompilable(JSON.parse(JSON.stringify(schema)))) assert.ok(compiles(schema), JSON.stringify(schema));
    }),
    { numRuns: 5_000 },
  );
});

const HONEST = [
  z.object({ a: z.string().regex(/^x/), b: z.array(z.number().int().min(1)).optional(), c: z.enum(['x', 'y']) }),
  z.object({ at: z.iso.datetime(), mail: z.email(), more: z.record(z.string(), z.union([z.string(), z.null()])) }),
  z.looseObject({ tuple: z.tuple([z.string(), z.number()]), id: z.string(), $id: z.string() }),
];

for (const [i, schema] of HONEST.entries()) {
  for (const target of ['draft-7', 'draft-2020-12'] as const) {
    // N-02
    test(`older clients get honest schema ${i} as ${target}`, () => {
      assert.ok(isCompilable(z.toJSONSchema(schema, { target })));
    });
  }
}

// N-02
test('older clients get a recursive schema', () => {
  const tree = {
    type: 'object',
    properties: { node: { $ref: '#/$defs/Node' }, self: { $ref: '#' } },
    $defs: { Node: { type: 'object', properties: { 'a/b~c': { $ref: '#/$defs/Node/properties/a~1b~0c' } } } },
  };
  assert.ok(isCompilable(tree));
});

for (const [what, schema] of Object.entries({
  'a reference that leads nowhere': { type: 'object', properties: { a: { $ref: '#/$defs/none' } } },
  'a pattern that is none': { type: 'object', properties: { a: { type: 'string', pattern: '(' } } },
  'a type that is none': { type: 'object', properties: { a: { type: 'text' } } },
  'an id inside': { type: 'object', properties: { a: { $id: 'https://x.example/a' } } },
})) {
  // N-02
  test(`older clients do not get an output schema with ${what}`, () => assert.ok(!isCompilable(schema)));
}

const PATTERN_PARTS = [
  '\\p{L}',
  '\\P{Script=Greek}',
  '\\p{x}',
  '\\p{L',
  '\\\\',
  '\\',
  '\\c',
  '(?<',
  '>',
  '[',
  ']',
  '-',
  '{2}',
  'p{L}',
  '(',
  ')',
];

// N-02
test('a pattern is valid exactly if it is a regular expression', () => {
  fc.assert(
    fc.property(fc.array(fc.constantFrom(...PATTERN_PARTS), { maxLength: 5 }), (parts) => {
      const pattern = parts.join('');
      assert.equal(isCompilable({ pattern }), isRegExp(pattern), pattern);
    }),
    { numRuns: 5_000 },
  );
});

test('a class of characters is compiled once, however often patterns have it', (t) => {
  const compiled: string[] = [];
  t.mock.property(
    globalThis,
    'RegExp',
    new Proxy(RegExp, {
      construct: (target, [pattern, flags]) => {
        compiled.push(String(pattern));
        return new target(pattern, flags);
      },
    }),
  );
  const long = '[\\p{Script=Thai}\\P{Nd}]'.repeat(17_000);
  assert.ok(isCompilable({ properties: { a: { pattern: long } }, patternProperties: { [`${long}b`]: {} } }));
  assert.ok(compiled.length > 0);
  assert.equal(compiled.join('').match(/\\p/gi)?.length, 2);
});

// SEC-28
test('hostile schemas are published or left out with a reason, and cause no request', async () => {
  let requests = 0;
  await using server = createServer((_incoming, outgoing) => void outgoing.end(`{"n":${++requests}}`));
  await once(server.listen(0, '127.0.0.1'), 'listening');
  const address = server.address();
  assert.ok(typeof address === 'object' && address !== null);
  const there = `http://127.0.0.1:${address.port}/schema.json`;
  const hostile: readonly object[] = [
    { properties: { a: { type: 'string', pattern: '^(a+)+$', default: `${'a'.repeat(60)}!` } } },
    { properties: { a: { pattern: '(' } } },
    { patternProperties: { '^(a|a)*$': {}, '(?:x+x+)+y': {} }, required: ['a'.repeat(100)] },
    { $ref: there },
    { $schema: there, $id: there, properties: { a: { $ref: `${there}#/a` } } },
    { $dynamicRef: there, allOf: [{ $ref: 'file:///etc/passwd' }] },
    { $ref: '#' },
    { $defs: { a: { $ref: '#/$defs/b' }, b: { $ref: '#/$defs/a' } }, $ref: '#/$defs/a' },
    { $defs: { a: { allOf: Array.from({ length: 50 }, () => ({ $ref: '#/$defs/a' })) } }, $ref: '#/$defs/a' },
  ];
  const tools = hostile.map((schema, i) => tool(`t${i}`, { inputSchema: { type: 'object', ...schema } }));
  const catalog = catalogOf(view([upstream('a')]), { a: { tools } });
  const listed = member(listOf(catalog, 'tools'), 'name').length;
  assert.equal(listed + catalog.quarantined.length, hostile.length);
  for (const { why } of catalog.quarantined) assert.notEqual(why, '');
  assert.equal(requests, 0);
});
