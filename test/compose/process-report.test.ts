import assert from 'node:assert/strict';
import { test } from 'node:test';
import { processReportTimes } from '../../src/compose/process-report.ts';

// N-07
test('processes are reported at the first one and each time their number has doubled', () => {
  const isDue = processReportTimes();
  const due = [0, 1, 1, 2, 3, 4, 7, 8, 1, 8, 16].map((count) => isDue(new Map([['a', count]])));
  assert.deepEqual(due, [false, true, false, true, false, true, false, true, false, false, true]);
});

// N-07
test('a doubling of one upstream is enough for a report, which counts for all', () => {
  const isDue = processReportTimes();
  const counts = (a: number, b: number) =>
    new Map([
      ['a', a],
      ['b', b],
    ]);
  assert.equal(isDue(counts(1, 1)), true);
  assert.equal(isDue(counts(2, 3)), true);
  assert.equal(isDue(counts(3, 5)), false);
  assert.equal(isDue(counts(3, 6)), true);
});
