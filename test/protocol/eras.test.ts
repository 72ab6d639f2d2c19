/**
 * Upgrades messages of a legacy server to the modern era and downgrades them for a legacy client. Members known to both
 * must survive unchanged.
 */

import assert from 'node:assert/strict';
import { test } from 'node:test';

import * as fc from '../support/fast-check.ts';

import { downgradeInputResponse, upgradeInputResponse } from '../../src/protocol/translation/input-response.ts';
import { readResult } from '../../src/protocol/input-required.ts';
import { RawObject } from '../../src/json/json.ts';
import {
  hasWrappedOutput,
  downgradeInputRequest,
  downgradeModernError,
  downgradeModernResult,
  downgradeModernTool,
} from '../../src/protocol/translation/downgrade-modern.ts';
import { readMirrored } from '../../src/protocol/framing/mirrored-params.ts';
import {
  upgradeServerRequest,
  upgradeError,
  upgradeResult,
  upgradeTool,
  type Stamp,
} from '../../src/protocol/translation/upgrade.ts';
import { LATEST_LEGACY } from '../../src/protocol/revisions.ts';

const readResultText = (text: string) => readResult(RawObject.parse(text));

const STAMP: Stamp = { serverInfo: '{"name":"linkspan","version":"1"}', ttlMs: 0, cacheScope: 'private' };

/** Members that differ between the eras. All other members are known to both eras or to neither. */
const ERA_MEMBERS = new Set([
  'resultType',
  'ttlMs',
  'cacheScope',
  'execution',
  'task',
  'elicitationId',
  '_meta',
  'x-mcp-header',
]);

const unknownName = fc.string().filter((name) => !ERA_MEMBERS.has(name));
const unknownMembers = fc.dictionary(unknownName, fc.jsonValue({ maxDepth: 2 }), { maxKeys: 3 });
const meta = fc.option(fc.dictionary(fc.string(), fc.jsonValue({ maxDepth: 1 }), { minKeys: 1, maxKeys: 3 }), {
  nil: undefined,
});

/** Adds unknown members before, between and after the members of a shape, and some `_meta`. */
function withStrangers(shape: fc.Arbitrary<object>): fc.Arbitrary<object> {
  return fc.tuple(unknownMembers, shape, unknownMembers, meta).map(([before, known, behind, _meta]) => {
    const names = new Set(Object.keys(known));
    const strange = (members: object): object =>
      Object.fromEntries(Object.entries(members).filter(([name]) => !names.has(name)));
    const whole = { ...strange(before), ...known, ...strange(behind) };
    return _meta === undefined ? whole : { ...whole, _meta };
  });
}

const text = fc.string({ unit: 'binary' });
const annotations = fc.option(withStrangers(fc.record({ priority: fc.double({ min: 0, max: 1 }) })), {
  nil: undefined,
});
const resource = withStrangers(
  fc.oneof(fc.record({ uri: text, text }), fc.record({ uri: text, blob: fc.base64String(), mimeType: text })),
);
const block = withStrangers(
  fc.oneof(
    fc.record({ type: fc.constant('text'), text, annotations }),
    fc.record({ type: fc.constant('image'), data: fc.base64String(), mimeType: text }),
    fc.record({ type: fc.constant('audio'), data: fc.base64String(), mimeType: text }),
    fc.record({ type: fc.constant('resource_link'), uri: text, name: text, size: fc.nat() }),
    fc.record({ type: fc.constant('resource'), resource, annotations }),
    fc.record({ type: fc.string(), x: fc.jsonValue() }),
  ),
);

const results = {
  'tools/call': withStrangers(
    fc.record(
      {
        content: fc.array(block),
        structuredContent: fc.dictionary(fc.string(), fc.jsonValue()),
        isError: fc.boolean(),
      },
      { requiredKeys: ['content'] },
    ),
  ),
  'prompts/get': withStrangers(
    fc.record({
      description: text,
      messages: fc.array(withStrangers(fc.record({ role: fc.constantFrom('user', 'assistant'), content: block }))),
    }),
  ),
  'resources/read': withStrangers(fc.record({ contents: fc.array(resource) })),
  'completion/complete': withStrangers(fc.record({ completion: withStrangers(fc.record({ values: fc.array(text) })) })),
};

/** Writes JSON as servers do: compact or indented, with unnecessary escapes. */
const writing = fc.record({ indent: fc.constantFrom(undefined, 2, '\t'), isEscaped: fc.boolean() });

function written(
  value: unknown,
  { indent, isEscaped }: { indent: string | number | undefined; isEscaped: boolean },
): string {
  const plain = JSON.stringify(value, undefined, indent);
  if (!isEscaped) return plain;
  return plain.replaceAll(/[\u0080-\uffff]/g, (char) => `\\u${char.charCodeAt(0).toString(16).padStart(4, '0')}`);
}

/** Returns the raw text of each member in order. Equal results mean that no byte of a value has changed. */
function members(raw: string): [string, string | undefined][] {
  const object = RawObject.parse(raw);
  return [...object.keys()].map((key) => [key, object.raw(key)]);
}

/** Compares `_meta` by its members, because our members were added and removed again. */
function assertSame(actual: string, expected: string): void {
  const bare = (raw: string): string => RawObject.parse(raw).with('_meta', undefined).toString();
  assert.deepEqual(members(bare(actual)), members(bare(expected)));
  assert.deepEqual(
    members(RawObject.parse(actual).raw('_meta') ?? '{}'),
    members(RawObject.parse(expected).raw('_meta') ?? '{}'),
  );
}

for (const [method, anyResult] of Object.entries(results)) {
  // X-001 X-002
  test(`a result of ${method} survives upgrade and downgrade`, () => {
    fc.assert(
      fc.property(anyResult, writing, (value, style) => {
        const legacy = written(value, style);
        const reading = readResultText(upgradeResult(method, legacy, STAMP));
        assert.ok(reading.kind === 'complete');
        assert.equal(reading.result.object('_meta')?.raw('io.modelcontextprotocol/serverInfo'), STAMP.serverInfo);
        for (const [key, raw] of members(legacy)) if (key !== '_meta') assert.equal(reading.result.raw(key), raw);
        assertSame(downgradeModernResult(method, reading.result, false).toString(), legacy);
      }),
    );
  });
}

const property = withStrangers(
  fc.oneof(
    fc.record({ type: fc.constantFrom('string', 'integer', 'boolean'), description: text }),
    fc.record({ type: fc.constant('array'), items: fc.record({ type: fc.constant('number') }) }),
    fc.record({ $ref: fc.constantFrom('#', '#/$defs/a') }),
  ),
);
const schema = withStrangers(
  fc.record(
    {
      $schema: fc.constant('https://json-schema.org/draft/2020-12/schema'),
      type: fc.constant('object'),
      properties: fc.dictionary(unknownName, property),
      required: fc.array(fc.string()),
      anyOf: fc.array(property),
    },
    { requiredKeys: ['type'] },
  ),
);
const tool = withStrangers(
  fc.record(
    {
      name: text,
      title: text,
      description: text,
      inputSchema: schema,
      outputSchema: schema,
      annotations: fc.record({ readOnlyHint: fc.boolean() }),
    },
    { requiredKeys: ['name', 'inputSchema'] },
  ),
);

// X-001 X-002
test('a list of tools survives upgrade and downgrade', () => {
  fc.assert(
    fc.property(fc.array(tool, { maxLength: 3 }), writing, (list, style) => {
      for (const value of list) {
        const legacy = written(value, style);
        const modern = upgradeTool(legacy);
        assert.equal(modern, legacy);
        assert.equal(hasWrappedOutput(RawObject.parse(modern)), false);
        assert.equal(downgradeModernTool(modern), legacy);
      }
    }),
  );
});

test('a tool loses only task support and header annotations on the way', () => {
  const named = fc.record({ tool, headers: fc.array(fc.string(), { maxLength: 3 }), x: fc.jsonValue() });
  fc.assert(
    fc.property(named, writing, ({ tool, headers, x }, style) => {
      const properties = Object.fromEntries(
        headers.map((header, i) => [`p${i}`, { type: 'string', 'x-mcp-header': header }]),
      );
      const bare = { ...tool, inputSchema: { type: 'object', properties: {}, x } };
      const full = { ...tool, execution: { taskSupport: 'optional' }, inputSchema: { type: 'object', properties, x } };
      const raised = RawObject.parse(upgradeTool(written(full, style)));
      const input = raised.object('inputSchema') ?? RawObject.EMPTY;
      assert.equal(readMirrored(input).kind, 'mirrored');
      assert.deepEqual([...(input.object('properties')?.keys() ?? [])], Object.keys(properties));
      const rest = raised.with('inputSchema', input.with('properties', '{}').toString());
      assert.deepEqual(rest.value('inputSchema'), JSON.parse(JSON.stringify(bare.inputSchema)));
      assert.deepEqual(
        members(rest.with('inputSchema', '0').toString()),
        members(RawObject.parse(written(bare, style)).with('inputSchema', '0').toString()),
      );
    }),
  );
});

const asks = {
  'elicitation/create': withStrangers(
    fc.oneof(
      fc.record({ message: text, requestedSchema: schema }),
      fc.record({ mode: fc.constant('form'), message: text, requestedSchema: schema }),
    ),
  ),
  'sampling/createMessage': withStrangers(
    fc.record({
      messages: fc.array(
        withStrangers(fc.record({ role: fc.constant('user'), content: fc.oneof(block, fc.array(block)) })),
      ),
      maxTokens: fc.nat(),
    }),
  ),
  'roots/list': withStrangers(fc.record({})),
};

for (const [method, anyAsk] of Object.entries(asks)) {
  // X-003 X-010
  test(`a ${method} request survives upgrade and downgrade`, () => {
    fc.assert(
      fc.property(anyAsk, writing, fc.uuid(), (value, style, elicitationId) => {
        const legacy = RawObject.parse(written(value, style));
        const modern = upgradeServerRequest(legacy);
        const lowered = downgradeInputRequest(method, LATEST_LEGACY, modern, elicitationId);
        assert.deepEqual(members(lowered?.toString() ?? ''), members(legacy.toString()));
      }),
    );
  });
}

const answers = {
  'elicitation/create': withStrangers(
    fc.record({
      action: fc.constantFrom('accept', 'decline', 'cancel'),
      content: fc.dictionary(fc.string(), fc.oneof(text, fc.boolean(), fc.double())),
    }),
  ),
  'sampling/createMessage': withStrangers(
    fc.record({
      role: fc.constant('assistant'),
      content: fc.oneof(block, fc.array(block)),
      model: text,
      stopReason: text,
    }),
  ),
  'roots/list': withStrangers(fc.record({ roots: fc.array(withStrangers(fc.record({ uri: text, name: text }))) })),
};

for (const [method, anyAnswer] of Object.entries(answers)) {
  // X-003 X-010
  test(`a response to ${method} survives upgrade and downgrade`, () => {
    fc.assert(
      fc.property(anyAnswer, writing, (value, style) => {
        const legacy = written(value, style);
        assertSame(downgradeInputResponse(method, upgradeInputResponse(legacy)) ?? '{}', legacy);
      }),
    );
  });
}

// M-007 X-025
test('an error survives upgrade and downgrade', () => {
  const anyError = fc.record({
    code: fc.constantFrom(-32002, -32602, -32603, 7),
    message: text,
    data: fc.option(fc.record({ uri: text }), { nil: undefined }),
  });
  fc.assert(
    fc.property(anyError, (made) => {
      const error = { ...made };
      const modern = upgradeError(error);
      assert.notEqual(modern.code, -32002);
      const isLostBefore = error.code === -32002 && error.data === undefined;
      const isFoundLater = error.code === -32602 && error.data !== undefined;
      const code = isLostBefore ? -32602 : isFoundLater ? -32002 : error.code;
      assert.deepEqual(downgradeModernError('resources/read', modern), { ...error, code });
    }),
  );
});
