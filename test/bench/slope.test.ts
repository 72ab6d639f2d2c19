import assert from 'node:assert/strict';
import { test } from 'node:test';
import { type Reading, slopeOf } from '../../bench/slope.ts';
import { random } from '../support/random.ts';

const MINUTE_MS = 60_000;

/** Returns one reading a minute of a value at that minute. */
function minutes(count: number, valueAt: (minute: number) => number): readonly Reading[] {
  return Array.from({ length: count }, (_, minute) => ({ atMs: minute * MINUTE_MS, value: valueAt(minute) }));
}

/** Returns numbers around 0. */
function noise(seed: number): () => number {
  const below = random(seed);
  return () => (below(2_001) - 1_000) / 1_000;
}

test('a line without scatter has its slope, and an interval without width', () => {
  const slope = slopeOf(minutes(30, (minute) => 100 + 2 * minute));
  assert.ok(Math.abs((slope?.perHour ?? 0) - 120) < 1e-6);
  assert.ok(Math.abs((slope?.high ?? 0) - (slope?.low ?? 0)) < 1e-6);
  assert.equal(slope?.isDistinct, true);
  assert.equal(slope?.mean, 129);
});

test('the interval is that of the textbook for values that do not depend on each other', () => {
  // Alternating residuals are not correlated positively. 2.0484 is the quantile for 28 degrees of freedom.
  const readings = minutes(30, (minute) => minute + (minute % 2 === 0 ? 1 : -1));
  const meanMinute = 14.5;
  const spread = readings.reduce((sum, _, minute) => sum + (minute - meanMinute) ** 2, 0);
  const slope = readings.reduce((sum, { value }, minute) => sum + (minute - meanMinute) * value, 0) / spread;
  const mean = readings.reduce((sum, { value }) => sum + value, 0) / 30;
  const squares = readings.reduce(
    (sum, { value }, minute) => sum + (value - mean - slope * (minute - meanMinute)) ** 2,
    0,
  );
  const half = 2.048407 * Math.sqrt(squares / 28 / spread);
  const fitted = slopeOf(readings);
  assert.ok(Math.abs((fitted?.low ?? 0) - (slope - half) * 60) < 0.001);
  assert.ok(Math.abs((fitted?.high ?? 0) - (slope + half) * 60) < 0.001);
});

test('scatter without growth is told from 0 in about one of twenty runs', () => {
  let distinct = 0;
  for (let seed = 1; seed <= 400; seed++) {
    const next = noise(seed);
    if (slopeOf(minutes(50, () => 100 + next()))?.isDistinct === true) distinct++;
  }
  assert.ok(distinct <= 400 * 0.08, `${distinct} of 400`);
});

test('readings that resemble the one before get a wider interval', () => {
  const widths = [0, 0.8].map((memory) => {
    const next = noise(7);
    let value = 0;
    const slope = slopeOf(minutes(60, () => (value = memory * value + Math.sqrt(1 - memory ** 2) * next())));
    return (slope?.high ?? 0) - (slope?.low ?? 0);
  });
  assert.ok((widths[1] ?? 0) > 1.5 * (widths[0] ?? 0), widths.join(' and '));
});

test('fewer than five readings have no slope', () => {
  assert.equal(slopeOf(minutes(4, (minute) => minute)), undefined);
});

test('a figure that never changes has the slope 0', () => {
  const slope = slopeOf(minutes(10, () => 7));
  assert.equal(slope?.perHour, 0);
  assert.equal(slope?.isDistinct, false);
});
