import assert from 'node:assert/strict';
import { test } from 'node:test';
import { retryPauseMs, retryUntilDone } from '../../../src/upstream/lifecycle/retry-until-done.ts';

test('an attempt that always fails is repeated less and less often, at last every 5 s', () => {
  const pauses = [1, 2, 3, 4, 5, 6, 7, 1_000].map((retry) => retryPauseMs(retry, 0));
  assert.deepEqual(pauses, [250, 500, 1_000, 2_000, 4_000, 5_000, 5_000, 5_000]);
});

test('an attempt is repeated until it succeeds, and not after it', { timeout: 120_000 }, async () => {
  const outcomes = [false, false, true];
  const attempt = (): Promise<void> =>
    outcomes.shift() === true ? Promise.resolve() : Promise.reject(new Error('no'));
  await retryUntilDone(attempt, () => 0, new AbortController().signal);
  assert.deepEqual(outcomes, []);
});

test('a retry that is aborted ends without another attempt', { timeout: 120_000 }, async () => {
  const stop = new AbortController();
  const never = (): Promise<void> => Promise.reject(new Error('attempted'));
  const retrying = retryUntilDone(never, () => 3_600_000, stop.signal);
  stop.abort();
  await retrying;
});
