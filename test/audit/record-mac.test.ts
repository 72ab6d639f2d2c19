import assert from 'node:assert/strict';
import { createHmac } from 'node:crypto';
import { test } from 'node:test';
import * as fc from '../support/fast-check.ts';
import { RecordMac } from '../../src/audit/record-mac.ts';

// SEC-44
test('the MAC of a record is the HMAC-SHA-256 that any other program computes', () => {
  const keys = fc.uint8Array({ minLength: 1, maxLength: 64 });
  const texts = fc.oneof(
    fc.string({ unit: 'binary', maxLength: 100 }),
    fc
      .tuple(fc.constantFrom('a', '€', '\u{1F600}', '\uD800'), fc.integer({ min: 4_000, max: 4_200 }))
      .map(([unit, count]) => unit.repeat(count)),
  );
  fc.assert(
    fc.property(keys, fc.array(texts, { minLength: 1, maxLength: 3 }), (bytes, several) => {
      const key = Buffer.from(bytes);
      const mac = new RecordMac(key);
      for (const text of several) {
        assert.equal(mac.of(text), createHmac('sha256', key).update(text).digest('base64url'));
      }
    }),
  );
});

test('a key that is longer than a block is refused', () => {
  assert.throws(() => new RecordMac(Buffer.alloc(65)), /at most 64 bytes/);
});
