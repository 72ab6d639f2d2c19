import assert from 'node:assert/strict';
import { test } from 'node:test';

import * as fc from '../support/fast-check.ts';

import { type Envelope, readEnvelope, withEnvelope } from '../../src/protocol/envelope.ts';
import { RawObject } from '../../src/json/json.ts';
import { META, progressTokenOf, withToken } from '../../src/protocol/meta.ts';
import { LATEST_MODERN } from '../../src/protocol/revisions.ts';

/** Any members, including ones that resemble a progress token. */
const value = fc.oneof(
  fc.jsonValue(),
  fc.constantFrom(',"progressToken":1}', '{"progressToken":2,', { progressToken: 3 }, { a: { progressToken: 'x' } }),
);
const token = fc.oneof(fc.maxSafeInteger(), fc.string(), fc.constantFrom('a"b', 'a\\', '}', -2));
const meta = fc.tuple(
  fc.dictionary(fc.string(), value),
  fc.option(token, { nil: undefined }),
  fc.dictionary(fc.string(), value),
);

function paramsWith([before, own, after]: readonly [object, unknown, object], indent: number | undefined): RawObject {
  const known = { ...before, ...(own === undefined ? {} : { progressToken: own }), ...after };
  return RawObject.parse(JSON.stringify({ name: 'x', _meta: known }, undefined, indent));
}

function metaOf(params: RawObject): Record<string, unknown> {
  const parsed: unknown = JSON.parse(params.raw('_meta') ?? '{}');
  return { ...Object(parsed) };
}

const cases = fc.tuple(meta, fc.constantFrom(undefined, 1));

// M-019
test('a progress token is found anywhere in _meta, and nothing else is', () => {
  fc.assert(
    fc.property(cases, ([parts, indent]) => {
      const params = paramsWith(parts, indent);
      const raw = progressTokenOf(params);
      const found = metaOf(params)['progressToken'];
      const isToken = typeof found === 'string' || Number.isInteger(found);
      assert.deepEqual(raw === undefined ? undefined : JSON.parse(raw), isToken ? found : undefined);
    }),
  );
});

// M-019
test('a progress token that is no string and no integer is none', () => {
  for (const token of ['null', '{}', '[]', '1.5', '1e2', 'true']) {
    assert.equal(progressTokenOf(RawObject.parse(`{"_meta":{"progressToken":${token}}}`)), undefined, token);
  }
});

// M-019
test('our progress token replaces any other, and nothing else changes', () => {
  fc.assert(
    fc.property(cases, ([parts, indent]) => {
      const params = paramsWith(parts, indent);
      assert.deepEqual(metaOf(withToken(params, 7)), { ...metaOf(params), progressToken: 7 });
      assert.deepEqual(metaOf(withToken(params.with('_meta', undefined), 7)), { progressToken: 7 });
    }),
  );
});

const CAPABILITIES = RawObject.parse('{"roots":{}}');
const ENVELOPE: Envelope = {
  version: LATEST_MODERN,
  clientInfo: RawObject.parse('{"name":"n","version":"1"}'),
  clientCapabilities: CAPABILITIES,
  logLevel: undefined,
};

// M-019 M-027
test('an envelope is added to _meta, with our token if one is given', () => {
  fc.assert(
    fc.property(cases, fc.boolean(), ([parts, indent], isWanted) => {
      const params = paramsWith(parts, indent);
      const expected = {
        ...metaOf(params),
        ...(isWanted ? { progressToken: 7 } : {}),
        [META.protocolVersion]: LATEST_MODERN,
        [META.clientInfo]: { name: 'n', version: '1' },
        [META.clientCapabilities]: { roots: {} },
      };
      // Twice, because the second result comes from the cache.
      for (const _ of [1, 2]) {
        const sent = withEnvelope(params, ENVELOPE, isWanted ? 7 : undefined);
        assert.deepEqual(metaOf(sent), expected);
        assert.equal(readEnvelope(sent).kind, 'envelope');
        assert.equal(sent.raw('name'), '"x"');
      }
    }),
  );
});

// M-019
test('a request is read the same with and without a token', () => {
  const own = `"${META.protocolVersion}":"${LATEST_MODERN}","${META.clientCapabilities}":{"roots":{}}`;
  for (const text of [`{${own}}`, `{${own},"progressToken":1}`, `{"progressToken":"a",${own}}`]) {
    const reading = readEnvelope(RawObject.parse(`{"_meta":${text}}`));
    assert.equal(reading.kind, 'envelope');
    assert.equal(reading.kind === 'envelope' && reading.envelope.clientCapabilities.toString(), '{"roots":{}}');
  }
  assert.throws(() => readEnvelope(RawObject.parse(`{"_meta":{"progressToken":1,${own},"progressToken":2}}`)), /twice/);
});
