import assert from 'node:assert/strict';
import { test } from 'node:test';
import * as fc from '../support/fast-check.ts';
import type { AuditEvent } from '../../src/audit/audit-event.ts';
import { recordText } from '../../src/audit/record-text.ts';

const TIME = '2026-11-23T06:00:00.000Z';
const LIMIT = 4_096;

const parse = (text: string): Record<string, unknown> => JSON.parse(`{${text}}`);

test('a record has its members in order, without those that are undefined', () => {
  const event: AuditEvent = { kind: 'request', name: 'a', upstream: undefined, ms: 1.5, rule: { name: 'r', line: 3 } };
  assert.equal(
    recordText(event, TIME, LIMIT),
    `"time":"${TIME}","kind":"request","name":"a","ms":1.5,"rule":{"name":"r","line":3}`,
  );
});

test('characters that can hide text or change a terminal are escaped', () => {
  const text = recordText(
    { kind: 'request', name: 'a\u202Eb\u0085\u2028', argumentsText: '{"b":"\u2066"}' },
    TIME,
    LIMIT,
  );
  assert.match(text, /^[\u0020-\u007E]*$/);
  assert.equal(parse(text)['name'], 'a\u202Eb\u0085\u2028');
});

// N-70
test('long names of a client cut neither its principal nor the digest of its arguments', () => {
  const long = '名'.repeat(4_000);
  const known = { principal: `https://issuer.example.com|${'p'.repeat(200)}`, argumentsDigest: 'd'.repeat(64) };
  const names = { client: long, clientVersion: long, method: long, name: long, upstreamName: long, requestId: long };
  const text = recordText({ kind: 'request', ...known, ...names }, TIME, LIMIT);
  assert.ok(Buffer.byteLength(text) <= LIMIT);
  const { principal, argumentsDigest, name } = parse(text);
  assert.deepEqual({ principal, argumentsDigest }, known);
  assert.equal(name, `${'名'.repeat(24)}…`);
});

test('any texts make one line of JSON that is not too long', () => {
  const texts = fc.string({ unit: 'binary', maxLength: 3_000 });
  fc.assert(
    fc.property(fc.array(texts, { minLength: 10, maxLength: 10 }), (all) => {
      const [a, b, c, d, e, f, g, h, i, j = ''] = all;
      const names = { principal: a, label: b, client: c, clientVersion: d, endpoint: e, name: f, upstreamName: g };
      const event: AuditEvent = {
        kind: 'request',
        ...names,
        requestId: h,
        reason: i,
        argumentsText: JSON.stringify(j),
      };
      const text = recordText(event, TIME, LIMIT);
      assert.ok(!text.includes('\n'));
      assert.ok(Buffer.byteLength(text) <= LIMIT, `${Buffer.byteLength(text)} bytes`);
      assert.equal(parse(text)['kind'], 'request');
    }),
  );
});
