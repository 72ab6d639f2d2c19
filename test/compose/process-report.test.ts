import assert from 'node:assert/strict';
import { test } from 'node:test';
import { processReport, processReportTimes } from '../../src/compose/process-report.ts';

// N-07
test('processes are reported at the first one and each time their number has doubled', () => {
  const dueIds = processReportTimes();
  const due = [0, 1, 1, 2, 3, 4, 7, 8, 1, 8, 16].map((count) => dueIds(new Map([['a', count]])).has('a'));
  assert.deepEqual(due, [false, true, false, true, false, true, false, true, false, false, true]);
});

// N-07
test('a report has the upstreams whose processes have doubled, and the sums of all', () => {
  const dueIds = processReportTimes();
  const after = (a: number, b: number) => {
    const counts = { a, b };
    const statuses = Object.entries(counts).map(([id, count]) => ({ id, processes: count, memoryBytes: 10 * count }));
    const due = dueIds(new Map(Object.entries(counts)));
    const { processes, memoryBytes, byUpstream } = processReport(statuses, due);
    return [processes, memoryBytes, ...Object.keys(byUpstream)];
  };
  assert.deepEqual(after(1, 1), [2, 20, 'a', 'b']);
  assert.deepEqual(after(2, 3), [5, 50, 'b', 'a']);
  assert.deepEqual(after(3, 5), [8, 80]);
  assert.deepEqual(after(3, 6), [9, 90, 'b']);
});
