import assert from 'node:assert/strict';
import { test } from 'node:test';
import { readCaching } from '../../src/catalog/caching.ts';
import { RawObject } from '../../src/json/json.ts';

const cases = [
  { raw: '60000', ttlMs: 60_000 },
  { raw: '1.5', ttlMs: 1 },
  { raw: '-1', ttlMs: 0 },
  { raw: '"60000"', ttlMs: 0 },
  { raw: '1e30', ttlMs: Number.MAX_SAFE_INTEGER },
  { raw: '1e400', ttlMs: Number.MAX_SAFE_INTEGER },
  { raw: '-1e400', ttlMs: 0 },
];

for (const { raw, ttlMs } of cases) {
  test(`a ttlMs of ${raw} is ${ttlMs} ms`, () => {
    const result = RawObject.parse(`{"ttlMs":${raw},"cacheScope":"public"}`);
    assert.deepEqual(readCaching(result), { ttlMs, isPublic: true });
  });
}
