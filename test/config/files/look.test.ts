import assert from 'node:assert/strict';
import { test } from 'node:test';
import * as fc from '../../support/fast-check.ts';

import { CONFIG_TIMES } from '../../../src/config/files/file-watch.ts';
import { judgeLook, nextLookMs, type PendingChange } from '../../../src/config/files/look.ts';

const TIMES = { pollMs: 500, settleMs: 200, longestMs: 1_000 };
const FILE = 'config.yaml';

/** Returns the times of all reports about a file that is written at these times. @param hasEvents true if a write brings a look at once. */
function reportsOf(writesMs: readonly number[], hasEvents: boolean): number[] {
  const reports: number[] = [];
  let reported = new Map([[FILE, '0']]);
  let pending: PendingChange | undefined;
  let lookMs = TIMES.pollMs;
  const endMs = (writesMs.at(-1) ?? 0) + 5_000;
  while (lookMs < endMs) {
    const eventMs = pending === undefined && hasEvents ? writesMs.find((ms) => ms > (reports.at(-1) ?? -1)) : undefined;
    const nowMs = eventMs === undefined ? lookMs : Math.min(lookMs, eventMs);
    const states = new Map([[FILE, `${writesMs.filter((ms) => ms <= nowMs).length}`]]);
    const look = judgeLook(reported, pending, states, nowMs, TIMES);
    pending = look.kind === 'pending' ? look.change : undefined;
    if (look.kind === 'changed') {
      reported = new Map(look.states);
      reports.push(nowMs);
    }
    lookMs = nowMs + nextLookMs(pending, nowMs, TIMES);
  }
  return reports;
}

// N-71
test('a change of the config is reported within two seconds, whatever else happens', () => {
  assert.ok(CONFIG_TIMES.pollMs + CONFIG_TIMES.longestMs < 2_000);
});

const cases = [
  { name: 'one write with an event is reported when the file is still', writes: [100], events: [300], polled: [700] },
  { name: 'a swap every 250 ms is reported each second or sooner', every: 250, events: 1_000, polled: 1_500 },
  { name: 'a file that is written all the time is reported each second', every: 50, events: 1_050, polled: 1_500 },
];

for (const { name, writes, every, events, polled } of cases) {
  // N-71
  test(name, () => {
    for (const [hasEvents, wanted] of [
      [true, events],
      [false, polled],
    ] as const) {
      const written = writes ?? Array.from({ length: 200 }, (_, index) => (index + 1) * (every ?? 0));
      const reports = reportsOf(written, hasEvents);
      if (typeof wanted !== 'number') assert.deepEqual(reports, wanted);
      else for (const [index, ms] of reports.entries()) assert.ok(ms - (reports[index - 1] ?? 0) <= wanted, `${ms}`);
    }
  });
}

// N-71
test('every write is reported by the end of the interval and the longest wait', () => {
  const gaps = fc.array(fc.integer({ min: 1, max: 700 }), { minLength: 1, maxLength: 60, size: 'max' });
  fc.assert(
    fc.property(gaps, fc.boolean(), (gapsMs, hasEvents) => {
      const writesMs: number[] = [];
      for (const gapMs of gapsMs) writesMs.push((writesMs.at(-1) ?? 0) + gapMs);
      const reports = reportsOf(writesMs, hasEvents);
      for (const ms of writesMs) {
        const report = reports.find((reportMs) => reportMs >= ms);
        assert.ok(report !== undefined && report - ms <= TIMES.pollMs + TIMES.longestMs, `${ms}: ${report}`);
      }
    }),
  );
});

// N-71
test('a change that is taken back before it is reported is no change', () => {
  const before = new Map([[FILE, 'a']]);
  const first = judgeLook(before, undefined, new Map([[FILE, 'b']]), 0, TIMES);
  assert.equal(first.kind, 'pending');
  const pending = first.kind === 'pending' ? first.change : undefined;
  assert.deepEqual(judgeLook(before, pending, before, 200, TIMES), { kind: 'unchanged' });
});
