import assert from 'node:assert/strict';
import { test } from 'node:test';
import type { Round } from '../../bench/job.ts';
import { medianInterval, ratio, ratios, type ScenarioResult } from '../../bench/results.ts';
import { SCENARIOS } from '../../bench/scenarios.ts';

function round(cpuUs: number): Round {
  const rest = { requests: 1, perSecond: 1, p50Us: 1, p99Us: 1, rssMb: 1, peakMb: 1, pssMb: 1, refusals: 0 };
  return { ...rest, cpuUs, stolenMs: 0, answersAs: 'json' };
}

function result(rows: Readonly<Record<string, readonly number[]>>): ScenarioResult {
  const [scenario] = SCENARIOS;
  assert.ok(scenario !== undefined);
  return {
    scenario,
    rows: Object.entries(rows).map(([subject, cpuUs]) => ({ subject, title: subject, rounds: cpuUs.map(round) })),
  };
}

test('ratios are taken within each round, and their median is the ratio', () => {
  const played = result({ gateway: [10, 20, 40], 'off-a': [11, 24, 44] });
  assert.deepEqual(
    ratios(played, 'off-a', 'gateway').map((one) => one.toFixed(2)),
    ['1.10', '1.20', '1.10'],
  );
  assert.equal(ratio(played, 'off-a', 'gateway')?.toFixed(2), '1.10');
  assert.equal(ratio(played, 'off-b', 'gateway'), undefined);
});

const INTERVALS: readonly { readonly samples: number; readonly interval: readonly [number, number] | undefined }[] = [
  { samples: 0, interval: undefined },
  { samples: 5, interval: undefined },
  { samples: 6, interval: [1, 6] },
  { samples: 8, interval: [1, 8] },
  { samples: 9, interval: [2, 8] },
  { samples: 25, interval: [8, 18] },
];

for (const { samples, interval } of INTERVALS) {
  test(`the interval of the median of ${samples} samples is ${interval?.join(' to ') ?? 'unknown'}`, () => {
    const values = Array.from({ length: samples }, (_, at) => samples - at);
    assert.deepEqual(medianInterval(values), interval);
  });
}
