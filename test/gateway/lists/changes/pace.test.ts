import assert from 'node:assert/strict';
import { test } from 'node:test';
import { dueMs, nextPace, type Pace } from '../../../../src/gateway/lists/changes/pace.ts';

/** Returns the times at which changes that come each 100 ms for so long are handed on. */
function handOvers(spanMs: number, isStart: boolean): readonly number[] {
  const times: number[] = [];
  let pace: Pace | undefined;
  let due = Number.POSITIVE_INFINITY;
  for (let nowMs = 0; nowMs <= spanMs || due < Number.POSITIVE_INFINITY; nowMs++) {
    if (nowMs >= due) {
      times.push(nowMs);
      pace = nextPace(pace, nowMs);
      due = Number.POSITIVE_INFINITY;
    }
    if (nowMs <= spanMs && nowMs % 100 === 0) due = Math.min(due, dueMs(pace, isStart, nowMs));
  }
  return times;
}

// N-05
test('changes of starting upstreams are reported at growing intervals', () => {
  const times = handOvers(19_000, true);
  assert.deepEqual(times, [25, 1_025, 4_025, 13_025, 23_025]);
});

// N-05
test('a change of a running upstream is reported at most once a second', () => {
  const times = handOvers(3_000, false);
  assert.deepEqual(times, [25, 1_025, 2_025, 3_025]);
});

// N-05
test('after a quiet time the intervals are short again', () => {
  const busy = { lastMs: 0, gapMs: 10_000 };
  assert.equal(nextPace(busy, 15_000).gapMs, 10_000);
  assert.equal(nextPace(busy, 21_000).gapMs, 1_000);
  assert.equal(dueMs(busy, true, 21_000), 21_025);
});
