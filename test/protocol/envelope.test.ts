import assert from 'node:assert/strict';
import { test } from 'node:test';

import * as fc from '../support/fast-check.ts';

import { readEnvelope, withEnvelope, withoutEnvelope } from '../../src/protocol/envelope.ts';
import { RawObject } from '../../src/json/json.ts';
import { LATEST_MODERN } from '../../src/protocol/revisions.ts';
import { usedBytes } from '../support/used-bytes.ts';

const VERSION = 'io.modelcontextprotocol/protocolVersion';
const CAPABILITIES = 'io.modelcontextprotocol/clientCapabilities';
const INFO = 'io.modelcontextprotocol/clientInfo';
const LEVEL = 'io.modelcontextprotocol/logLevel';

function params(meta: unknown): RawObject {
  return RawObject.of({ name: 'a', _meta: meta });
}

// T-002
test('a request without a version is not modern, and its missing keys are listed', () => {
  for (const without of [undefined, RawObject.EMPTY, params({}), params(7), params(null)]) {
    assert.deepEqual(readEnvelope(without), { kind: 'none', missing: [VERSION, CAPABILITIES] });
  }
  assert.deepEqual(readEnvelope(params({ [CAPABILITIES]: {} })), { kind: 'none', missing: [VERSION] });
});

// T-005
test('an unsupported version is reported before any other fault', () => {
  assert.deepEqual(readEnvelope(params({ [VERSION]: '1900-01-01', [CAPABILITIES]: 7 })), {
    kind: 'unsupported',
    version: '1900-01-01',
  });
  assert.deepEqual(readEnvelope(params({ [VERSION]: '2025-11-25' })), { kind: 'unsupported', version: '2025-11-25' });
});

const malformed = [
  { name: 'a version that is no string', meta: { [VERSION]: 7, [CAPABILITIES]: {} }, why: /protocolVersion" must be/ },
  { name: 'no capabilities', meta: { [VERSION]: LATEST_MODERN }, why: /clientCapabilities" is missing/ },
  {
    name: 'capabilities that are a list',
    meta: { [VERSION]: LATEST_MODERN, [CAPABILITIES]: [] },
    why: /must be an object/,
  },
  {
    name: 'a capability that is no object',
    meta: { [VERSION]: LATEST_MODERN, [CAPABILITIES]: { elicitation: true } },
    why: /"elicitation" in ".*clientCapabilities" must be an object/,
  },
  {
    name: 'a client without a version',
    meta: { [VERSION]: LATEST_MODERN, [CAPABILITIES]: {}, [INFO]: { name: 'x' } },
    why: /clientInfo" must be an object with a "name" and a "version"/,
  },
  {
    name: 'a client that is null',
    meta: { [VERSION]: LATEST_MODERN, [CAPABILITIES]: {}, [INFO]: null },
    why: /clientInfo"/,
  },
  {
    name: 'a level nobody knows',
    meta: { [VERSION]: LATEST_MODERN, [CAPABILITIES]: {}, [LEVEL]: 'loud' },
    why: /logLevel" is no log level/,
  },
  {
    name: 'a level that is null',
    meta: { [VERSION]: LATEST_MODERN, [CAPABILITIES]: {}, [LEVEL]: null },
    why: /logLevel"/,
  },
];

for (const { name, meta, why } of malformed) {
  // T-007
  test(`${name} is malformed; the reason names the key`, () => {
    const reading = readEnvelope(params(meta));
    assert.ok(reading.kind === 'malformed');
    assert.match(reading.why, why);
    assert.equal(reading.version, meta[VERSION] === LATEST_MODERN ? LATEST_MODERN : undefined);
  });
}

// T-008
test('clientInfo is optional', () => {
  const reading = readEnvelope(params({ [VERSION]: LATEST_MODERN, [CAPABILITIES]: {}, progressToken: 1 }));
  assert.ok(reading.kind === 'envelope');
  assert.equal(reading.envelope.clientInfo, undefined);
  assert.equal(reading.envelope.logLevel, undefined);
  assert.equal(reading.envelope.clientCapabilities.toString(), '{}');
});

test('an envelope is read, including unknown capabilities', () => {
  const raw = `{"_meta":{"${VERSION}":"${LATEST_MODERN}","${CAPABILITIES}":{"roots":{},"x":1.0},"${INFO}":{"name":"n","version":"1","y":[ ]},"${LEVEL}":"notice"}}`;
  const reading = readEnvelope(RawObject.parse(raw));
  assert.ok(reading.kind === 'envelope');
  assert.equal(reading.version, LATEST_MODERN);
  assert.equal(reading.envelope.clientCapabilities.toString(), '{"roots":{},"x":1.0}');
  assert.equal(reading.envelope.clientInfo?.toString(), '{"name":"n","version":"1","y":[ ]}');
  assert.equal(reading.envelope.logLevel, 'notice');
});

const OURS = { version: LATEST_MODERN, clientCapabilities: RawObject.of({ roots: {} }) } as const;

test('an envelope does not keep its message, also if that is too long to be cached', () => {
  const before = usedBytes();
  const envelopes = Array.from({ length: 20 }, (_, i) => {
    const capabilities = { roots: { client: `one of twenty clients, ${i}` } };
    const meta = { [VERSION]: LATEST_MODERN, [CAPABILITIES]: capabilities, pad: 'x'.repeat(5_000) };
    const message = RawObject.of({ _meta: meta, pad: 'x'.repeat(1_000_000) }).toString();
    return readEnvelope(RawObject.parse(Buffer.from(message).toString()));
  });
  const grownMiB = (usedBytes() - before) / 1_048_576;
  assert.deepEqual(new Set(envelopes.map(({ kind }) => kind)), new Set(['envelope']));
  assert.ok(grownMiB < 10, `20 envelopes of messages of 1 MB keep ${grownMiB} MiB`);
});

test('our envelope replaces the client’s; progress token and unknown members stay', () => {
  const from = params({ progressToken: 12, [VERSION]: 'x', [LEVEL]: 'debug', traceparent: '00-1', [INFO]: {} });
  const clientInfo = RawObject.of({ name: 'linkspan', version: '1' });
  assert.equal(
    withEnvelope(from, { ...OURS, clientInfo, logLevel: 'error' }).toString(),
    `{"name":"a","_meta":{"progressToken":12,"${VERSION}":"${LATEST_MODERN}","${LEVEL}":"error","traceparent":"00-1","${INFO}":{"name":"linkspan","version":"1"},"${CAPABILITIES}":{"roots":{}}}}`,
  );
});

//
test('absent log level and client info stay absent', () => {
  const bare = { ...OURS, clientInfo: undefined, logLevel: undefined };
  const expected = `{"_meta":{"${VERSION}":"${LATEST_MODERN}","${CAPABILITIES}":{"roots":{}}}}`;
  assert.equal(withEnvelope(undefined, bare).toString(), expected);
  assert.equal(withEnvelope(RawObject.of({ _meta: { [LEVEL]: 'info', [INFO]: {} } }), bare).toString(), expected);
});

test('a legacy upstream gets the parameters without the envelope', () => {
  const meta = { progressToken: 'p', [VERSION]: LATEST_MODERN, [CAPABILITIES]: {}, [INFO]: {}, [LEVEL]: 'info', x: 1 };
  assert.equal(withoutEnvelope(params(meta)).toString(), '{"name":"a","_meta":{"progressToken":"p","x":1}}');
  assert.equal(withoutEnvelope(params({ [VERSION]: LATEST_MODERN, [CAPABILITIES]: {} })).toString(), '{"name":"a"}');
  const old = RawObject.parse('{ "name": "a", "_meta": { "x": 1 } }');
  assert.equal(withoutEnvelope(old), old);
});

test('an envelope can be read back, and removed without other changes', () => {
  const anyParams = fc
    .dictionary(fc.string(), fc.jsonValue())
    .map((value) => RawObject.of(value).with('_meta', undefined));
  const anyMeta = fc.option(fc.dictionary(fc.string(), fc.jsonValue(), { minKeys: 1 }), { nil: undefined });
  fc.assert(
    fc.property(anyParams, anyMeta, fc.constantFrom(undefined, 'info' as const), (plain, meta, logLevel) => {
      const before = plain.with('_meta', meta === undefined ? undefined : JSON.stringify(meta));
      const under = withEnvelope(before, { ...OURS, clientInfo: undefined, logLevel });
      const reading = readEnvelope(RawObject.parse(under.toString()));
      assert.ok(reading.kind === 'envelope');
      assert.equal(reading.envelope.logLevel, logLevel);
      assert.equal(withoutEnvelope(under).toString(), before.toString());
    }),
  );
});
