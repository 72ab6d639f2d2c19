import assert from 'node:assert/strict';
import { test } from 'node:test';

import * as fc from '../../support/fast-check.ts';

import {
  durationMs,
  durationText,
  sizeBytes,
  sizeText,
  suggestDuration,
  suggestSize,
} from '../../../src/config/schema/units.ts';

const durations = [
  { text: '250ms', ms: 250 },
  { text: '0ms', ms: 0 },
  { text: '30s', ms: 30_000 },
  { text: '5m', ms: 300_000 },
  { text: '2h', ms: 7_200_000 },
  { text: '30d', ms: 2_592_000_000 },
];

for (const { text, ms } of durations) {
  test(`${text} is ${ms} milliseconds`, () => assert.equal(durationMs(text), ms));
}

const sizes = [
  { text: '512B', bytes: 512 },
  { text: '64KiB', bytes: 65_536 },
  { text: '4MiB', bytes: 4_194_304 },
  { text: '1GiB', bytes: 1_073_741_824 },
];

for (const { text, bytes } of sizes) {
  test(`${text} is ${bytes} bytes`, () => assert.equal(sizeBytes(text), bytes));
}

for (const text of ['', '30', 's', '30 s', '1.5s', '-1s', '30S', '1m30s', '4MiB', '1e3s', '٣s']) {
  test(`"${text}" is not a duration`, () => assert.throws(() => durationMs(text), TypeError));
}

for (const text of ['', '4', '4MB', '4 MiB', '4mib', '-1B', '1.5MiB', '30s']) {
  test(`"${text}" is not a size`, () => assert.throws(() => sizeBytes(text), TypeError));
}

test('a printed duration or size parses to the same value', () => {
  fc.assert(
    fc.property(fc.integer({ min: 1, max: 1e12 }), (amount) => {
      assert.equal(durationMs(durationText(amount)), amount);
      assert.equal(sizeBytes(sizeText(amount)), amount);
    }),
  );
});

const meant = [
  { written: 30, meant: '30s' },
  { written: 5_000, meant: '5s' },
  { written: 1_500, meant: '1500ms' },
  { written: '30', meant: '30s' },
  { written: '5 minutes', meant: '5m' },
  { written: '10Sec', meant: '10s' },
  { written: '1m30s', meant: undefined },
  { written: 'soon', meant: undefined },
  { written: 1.5, meant: undefined },
  { written: null, meant: undefined },
];

for (const { written, meant: suggestion } of meant) {
  test(`for the duration ${JSON.stringify(written)}, ${suggestion ?? 'nothing'} is suggested`, () => {
    assert.equal(suggestDuration(written), suggestion);
  });
}

test('for a size in decimal units or bytes, the binary unit is suggested', () => {
  assert.deepEqual(['4MB', '64 kb', 4_194_304, '100', 'big'].map(suggestSize), [
    '4MiB',
    '64KiB',
    '4MiB',
    '100B',
    undefined,
  ]);
});
