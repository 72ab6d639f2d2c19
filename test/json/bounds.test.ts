import assert from 'node:assert/strict';
import { test } from 'node:test';
import * as fc from '../support/fast-check.ts';
import { CLIENT_BOUNDS, type JsonBounds, JsonTextError, RawObject, UPSTREAM_BOUNDS } from '../../src/json/json.ts';
import { LIMITS } from '../../src/limits.ts';
import { MessageError, parseClientBatch, parseClientMessage, parseMessage } from '../../src/protocol/jsonrpc.ts';

function refusedAs(text: string, bounds: JsonBounds): JsonTextError | undefined {
  try {
    RawObject.parseStrictly(text, bounds, 'params');
    return undefined;
  } catch (thrown) {
    assert.ok(thrown instanceof JsonTextError, String(thrown));
    return thrown;
  }
}

const members = (count: number): string => `{${Array.from({ length: count }, (_, at) => `"k${at}":0`).join(',')}}`;
const nested = (depth: number): string => '['.repeat(depth) + ']'.repeat(depth);

for (const [name, bounds] of [
  // N-27
  ['limit clientObjectMembers', CLIENT_BOUNDS],
  // N-27
  ['limit upstreamObjectMembers', UPSTREAM_BOUNDS],
] as const) {
  test(`${name}: one member more is refused at any depth`, () => {
    const { max, limit } = bounds.members;
    assert.ok(name.endsWith(limit));
    for (const wrap of [
      (object: string) => object,
      (object: string) => `{"params":${object}}`,
      (object: string) => `{"params":{"arguments":${object}}}`,
      (object: string) => `{"params":{"arguments":{"a":[${object}]}}}`,
    ]) {
      assert.equal(refusedAs(wrap(members(max)), bounds), undefined);
      assert.equal(refusedAs(wrap(members(max + 1)), bounds)?.refused, limit);
    }
  });
}

for (const [name, bounds] of [
  // N-27
  ['limit clientMessageValues', CLIENT_BOUNDS],
  // N-27
  ['limit upstreamMessageValues', UPSTREAM_BOUNDS],
] as const) {
  test(`${name}: a message with one value more is refused`, () => {
    const { max, limit } = bounds.values;
    assert.ok(name.endsWith(limit));
    const text = (values: number) => `{"params":{"arguments":[${'0,'.repeat(values - 2)}0]}}`;
    assert.equal(refusedAs(text(max), bounds), undefined);
    assert.equal(refusedAs(text(max + 1), bounds)?.refused, limit);
  });
}

// SEC-24 N-27
test('limit jsonDepth: deeper nesting is an invalid request, not invalid JSON', () => {
  assert.equal(refusedAs(`{"a":${nested(LIMITS.jsonDepth)}}`, CLIENT_BOUNDS), undefined);
  assert.equal(refusedAs(`{"a":${nested(LIMITS.jsonDepth + 1)}}`, CLIENT_BOUNDS)?.refused, 'jsonDepth');
});

// SEC-24 N-27
test('a batch is bounded as a whole, before its items are parsed', () => {
  const half = `[${'0,'.repeat(LIMITS.clientMessageValues / 2)}0]`;
  const item = `{"jsonrpc":"2.0","method":"x","params":{"a":${half}}}`;
  assert.equal(parseClientBatch(`[${item}]`, 20).length, 1);
  for (const text of [`[${item},${item}]`, `[${nested(100)}]`, `[${'{},'.repeat(20)}{}]`, '[]']) {
    assert.throws(() => parseClientBatch(text, 20), { code: -32600 });
  }
});

for (const [where, text] of [
  ['arguments', '{"jsonrpc":"2.0","id":1,"method":"x","params":{"arguments":{"a":1,"a":2}}}'],
  [
    'an object within them',
    '{"jsonrpc":"2.0","id":1,"method":"x","params":{"arguments":{"b":[{"a":1,"c":{},"a":2}]}}}',
  ],
  ['another spelling', '{"jsonrpc":"2.0","id":1,"method":"x","params":{"arguments":{"a":1,"\\u0061":2}}}'],
  ['many members', `{"jsonrpc":"2.0","id":1,"method":"x","params":{"arguments":${members(50).replace('k49', 'k7')}}}`],
  ['_meta', '{"jsonrpc":"2.0","id":1,"method":"x","params":{"_meta":{"a":{"b":1,"b":1}}}}'],
  ['the result of a client', '{"jsonrpc":"2.0","id":1,"result":{"content":{"a":1,"a":1}}}'],
  ['params', '{"jsonrpc":"2.0","id":1,"method":"x","params":{"name":"a","name":"b"}}'],
] as const) {
  // N-33
  test(`a name that appears twice in ${where} is refused with -32600`, () => {
    assert.throws(() => parseClientMessage(text), { code: -32600, refused: 'duplicate' });
  });
}

// N-33
test('a name may repeat in another object, and after a refused message', () => {
  const text = '{"jsonrpc":"2.0","id":1,"method":"x","params":{"arguments":{"a":{"a":1},"b":[{"a":1},{"a":2}]}}}';
  assert.throws(() =>
    parseClientMessage('{"jsonrpc":"2.0","id":1,"method":"x","params":{"arguments":{"b":1,"a":{"a":1,'),
  );
  assert.equal(parseClientMessage(text).kind, 'request');
});

// N-33
test('a _meta accepted from an upstream is checked again for a client', () => {
  const twice = '{"a":{"b":1,"b":2}}';
  const upstream = `{"jsonrpc":"2.0","method":"x","params":{"_meta":${twice}}}`;
  for (let n = 0; n < 3; n++) assert.equal(parseMessage(upstream).kind, 'notification');
  assert.throws(() => parseClientMessage(upstream), { code: -32600 });
});

/** Contents of strings, valid and invalid. */
const PIECES = [
  'a',
  '\\',
  '\\n',
  '\\u12',
  '34',
  '\\u00e9',
  '\\x',
  '"',
  '\n',
  '\t',
  '\u0001',
  '\u010a',
  '€',
  '😀',
  '\u007f',
  ' ',
];

// N-32
test('strict mode accepts exactly what JSON.parse accepts, strings included', () => {
  const piece = fc.constantFrom(...PIECES, 'long '.repeat(20));
  const string = fc.array(piece, { maxLength: 8 }).map((pieces) => `"${pieces.join('')}"`);
  // With dense escapes, strings are checked by another function.
  const start = fc.constantFrom('', `"dense":"${'\\n'.repeat(20)}",`);
  const cut = fc.constantFrom(undefined, -2, -12);
  const text = fc
    .tuple(string, string, fc.constantFrom('', '\n', ' \t'), start, cut)
    .map(([a, b, space, dense, end]) => {
      return `{${dense}"params":{"x":${a}${space},"y":{${b}:[1,${a}]}},"z":${b}}`.slice(0, end);
    });
  fc.assert(
    fc.property(text, (each) => {
      let isJson = true;
      try {
        JSON.parse(each);
      } catch {
        isJson = false;
      }
      const refused = refusedAs(each, UPSTREAM_BOUNDS);
      if (refused?.refused !== 'duplicate') assert.equal(refused === undefined, isJson, JSON.stringify(each));
    }),
    { numRuns: 5_000 },
  );
});

// N-32
test('broken strings are found in every block of the scan', () => {
  for (const filler of ['x'.repeat(65_530), '€'.repeat(65_530), '\\n'.repeat(40_000), '\\u0041 ok'.repeat(9_000)]) {
    for (let pad = 0; pad < 12; pad++) {
      const sound = `{"a":"${filler}${' '.repeat(pad)}"}`;
      assert.equal(refusedAs(sound, UPSTREAM_BOUNDS), undefined);
      for (const bad of ['\n', '\u0000', '\\q']) {
        const text = sound.replace('"}', `${bad}"}`);
        const refused = refusedAs(text, UPSTREAM_BOUNDS);
        assert.ok(refused !== undefined && refused.refused === undefined);
      }
    }
  }
});

// N-32
test('a response that is broken inside a string is refused under its own id', () => {
  for (const bad of ['\\q', '\n', '\u0001', '\\u12g4']) {
    const text = `{"jsonrpc":"2.0","id":77,"result":{"content":[{"type":"text","text":"${bad}"}]}}`;
    assert.throws(
      () => parseMessage(text, 'result'),
      (thrown) => {
        return thrown instanceof MessageError && thrown.code === -32700 && thrown.id === '77';
      },
    );
  }
});

// N-27
test('a batch of too many messages is read no further than the first too many', () => {
  const ping = '{"jsonrpc":"2.0","id":1,"method":"ping"}';
  // The rest is not even JSON.
  assert.throws(() => parseClientBatch(`[${`${ping},`.repeat(4)}oops`, 3), /1 to 3 messages/);
  assert.equal(parseClientBatch(`[${ping},${ping},${ping}]`, 3).length, 3);
});

// N-27
test('a response that is nested too deeply names its request, a deep request does not', () => {
  const deep = nested(LIMITS.jsonDepth + 1);
  const cases = [
    [`{"jsonrpc":"2.0","id":7,"result":{"a":${deep}}}`, '7'],
    [`{"jsonrpc":"2.0","result":{"a":${deep}},"id":7}`, '7'],
    [`{"jsonrpc":"2.0","id":7,"method":"x","params":{"a":${deep}}}`, 'null'],
    [`{"jsonrpc":"2.0","id":7,"id":8,"result":{"a":${deep}}}`, 'null'],
    [`{"jsonrpc":"2.0","id":"7","result":{"a":${deep}}}`, '7'],
    [`{"jsonrpc":"2.0","id":"x","result":{"a":${deep}}}`, 'null'],
    [`{"a":"\\"id\\":8","jsonrpc":"2.0","id" : 7 ,"result":{"id":9,"a":${deep}}}`, '7'],
  ] as const;
  for (const [text, id] of cases) {
    assert.throws(
      () => parseMessage(text),
      (thrown) => thrown instanceof MessageError && thrown.id === id,
    );
  }
});
