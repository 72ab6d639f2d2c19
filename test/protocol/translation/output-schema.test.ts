import assert from 'node:assert/strict';
import { test } from 'node:test';

import { Ajv2020 } from 'ajv/dist/2020.js';
import * as fc from '../../support/fast-check.ts';

import { RawObject } from '../../../src/json/json.ts';
import { isWrapped, wrappedContent, wrappedSchema } from '../../../src/protocol/translation/output-schema.ts';

const roots = [
  { schema: { type: 'object', oneOf: [{}] }, wrapped: false },
  { schema: { type: 'array' }, wrapped: true },
  { schema: { type: ['object', 'null'] }, wrapped: true },
  { schema: { $ref: '#/$defs/A', $defs: { A: { type: 'object' } } }, wrapped: true },
  { schema: {}, wrapped: true },
];

for (const { schema, wrapped } of roots) {
  //
  test(`an output schema ${JSON.stringify(schema)} is ${wrapped ? 'wrapped' : 'unchanged'}`, () => {
    assert.equal(isWrapped(RawObject.of(schema)), wrapped);
  });
}

const texts = [
  {
    name: 'a plain schema keeps its text',
    from: '{ "type":"array", "items":{"type":"number","maximum":1.50} }',
    to: '{"type":"object","properties":{"result":{ "type":"array", "items":{"type":"number","maximum":1.50} }},"required":["result"]}',
  },
  {
    name: 'the dialect stands outside',
    from: '{"type":"array","$schema":"http://json-schema.org/draft-07/schema#"}',
    to: '{"$schema":"http://json-schema.org/draft-07/schema#","type":"object","properties":{"result":{"type":"array"}},"required":["result"]}',
  },
  {
    name: 'references to the root follow it, others do not',
    from: '{"anyOf":[{"$ref":"#"},{"$ref":"#/$defs/a"},{"$ref":"#anchor"},{"$ref":"https://x.example/s#/a"},{"$dynamicRef":"#/$defs/a"},{"$ref":7}],"$defs":{"a":{"not":{"$ref":"#/$defs/a"}}}}',
    to: '{"type":"object","properties":{"result":{"anyOf":[{"$ref":"#/properties/result"},{"$ref":"#/properties/result/$defs/a"},{"$ref":"#anchor"},{"$ref":"https://x.example/s#/a"},{"$dynamicRef":"#/properties/result/$defs/a"},{"$ref":7}],"$defs":{"a":{"not":{"$ref":"#/properties/result/$defs/a"}}}}},"required":["result"]}',
  },
  {
    name: 'what only looks like a reference is data',
    from: '{"enum":[{"$ref":"#"}],"const":{"$ref":"#"},"default":{"$ref":"#"},"properties":{"$ref":{"$ref":"#"}}}',
    to: '{"type":"object","properties":{"result":{"enum":[{"$ref":"#"}],"const":{"$ref":"#"},"default":{"$ref":"#"},"properties":{"$ref":{"$ref":"#/properties/result"}}}},"required":["result"]}',
  },
  {
    name: 'references below an identifier of their own stay',
    from: '{"items":{"$id":"urn:x","$ref":"#/$defs/a"},"not":{"$id":"#old-anchor","$ref":"#"}}',
    to: '{"type":"object","properties":{"result":{"items":{"$id":"urn:x","$ref":"#/$defs/a"},"not":{"$id":"#old-anchor","$ref":"#/properties/result"}}},"required":["result"]}',
  },
  {
    name: 'a root with an identifier stays as it is',
    from: '{"$id":"urn:x","items":{"$ref":"#"}}',
    to: '{"type":"object","properties":{"result":{"$id":"urn:x","items":{"$ref":"#"}}},"required":["result"]}',
  },
  { name: 'one that names a member twice is kept from clients', from: '{"items":{"a":1,"a":2}}', to: undefined },
  {
    name: 'one that refers to the root of whatever holds it is kept from clients',
    from: '{"items":{"$recursiveRef":"#"}}',
    to: undefined,
  },
];

for (const { name, from, to } of texts) {
  //
  test(name, () => {
    assert.equal(wrappedSchema(RawObject.parse(from))?.toString(), to);
  });
}

/** Returns whether a schema allows a value, or undefined if the schema is invalid. */
function allows(schema: unknown, value: unknown): boolean | undefined {
  if (typeof schema !== 'object' || schema === null) return undefined;
  try {
    return new Ajv2020({ strict: false, validateSchema: false }).compile(schema)(value);
  } catch {
    return undefined;
  }
}

//
test('a wrapped schema allows exactly the wrapped content of the schema', () => {
  const { schema } = fc.letrec<{ schema: object; list: object[] }>((tie) => ({
    list: fc.array(tie('schema'), { minLength: 1, maxLength: 2 }),
    schema: fc.oneof(
      { maxDepth: 3, withCrossShrink: true },
      fc.constantFrom({ type: 'number' }, { type: 'string' }, { const: { $ref: '#' } }, { type: 'null' }, {}),
      fc.constantFrom({ $ref: '#/$defs/leaf' }, { $ref: '#/$defs/list' }),
      fc.record({ items: tie('schema'), type: fc.constant('array') }),
      fc.record({ properties: fc.record({ a: tie('schema'), items: tie('schema') }) }),
      fc.record({ anyOf: tie('list') }),
      fc.record({ not: tie('schema') }),
    ),
  }));
  const value = fc.oneof(fc.jsonValue({ maxDepth: 2 }), fc.record({ a: fc.jsonValue(), items: fc.jsonValue() }));
  let judged = 0;
  fc.assert(
    fc.property(schema, value, (branch, content) => {
      const $defs = {
        leaf: { type: 'number' },
        list: { type: 'array', items: { anyOf: [{ $ref: '#/$defs/leaf' }, { $ref: '#' }] } },
      };
      const natural = { allOf: [branch], $defs };
      const text = wrappedSchema(RawObject.of(natural))?.toString() ?? '';
      const expected = allows(natural, content);
      if (expected !== undefined) judged++;
      assert.equal(allows(JSON.parse(text), JSON.parse(wrappedContent(JSON.stringify(content)))), expected);
    }),
    { numRuns: 100 },
  );
  assert.ok(judged > 30);
});

// N-27
test('a schema that is large at each of many levels is not wrapped', () => {
  const wide = JSON.stringify(Object.fromEntries(Array.from({ length: 9_000 }, (_, at) => [`p${at}`, {}])));
  const schema = (depth: number) => `${'{"not":'.repeat(depth)}{"properties":${wide}}${'}'.repeat(depth)}`;
  assert.notEqual(wrappedSchema(RawObject.parse(schema(1))), undefined);
  assert.equal(wrappedSchema(RawObject.parse(schema(50))), undefined);
});
