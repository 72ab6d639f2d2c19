import assert from 'node:assert/strict';
import { test } from 'node:test';
import { boundResults, boundTable, type Bound, type Sheet, sheetTable } from '../../bench/sheet.ts';

function sheet(bounds: readonly Bound[]): Sheet {
  return {
    id: 'sessions',
    title: 'sessions',
    rows: [
      { point: '16', subject: 'gateway', figures: { cpu: 50, refusals: 0 } },
      { point: '1000', subject: 'gateway', figures: { cpu: 100, refusals: 0 } },
      { point: '1000', subject: 'nginx', figures: { cpu: 20 } },
      { point: '1000', subject: 'gateway-before', figures: {}, failure: 'has died' },
    ],
    bounds,
  };
}

const CASES: readonly {
  readonly bound: Bound;
  readonly value: number | undefined;
  readonly isMet: boolean | undefined;
}[] = [
  { bound: { point: '1000', column: 'cpu', atMost: 100 }, value: 100, isMet: true },
  { bound: { point: '1000', column: 'cpu', atMost: 99 }, value: 100, isMet: false },
  { bound: { point: '1000', column: 'cpu', atMost: 1.3, of: { point: '16' } }, value: 2, isMet: false },
  { bound: { point: '1000', column: 'cpu', atMost: 5, of: { subject: 'nginx' } }, value: 5, isMet: true },
  { bound: { point: '1000', column: 'refusals', atMost: 0 }, value: 0, isMet: true },
  { bound: { point: '64', column: 'cpu', atMost: 1 }, value: undefined, isMet: undefined },
  { bound: { point: '1000', column: 'cpu', atMost: 1, of: { point: '64' } }, value: undefined, isMet: undefined },
];

for (const { bound, value, isMet } of CASES) {
  const of = bound.of === undefined ? '' : ` times that of ${Object.values(bound.of).join()}`;
  test(`${bound.column} at ${bound.point} of ${bound.atMost} at most${of} comes to ${value}`, () => {
    const [result] = boundResults([sheet([bound])], 'gateway');
    assert.equal(result?.value, value);
    assert.equal(result?.isMet, isMet);
  });
}

test('a subject that failed has no figures and meets no bound', () => {
  const bound = { point: '1000', column: 'cpu', atMost: 1 };
  assert.equal(boundResults([sheet([bound])], 'gateway-before')[0]?.isMet, undefined);
  assert.match(boundTable(boundResults([sheet([bound])], 'gateway-before')), /not measured/);
});

test('a table has a line for each row with figures, and below them the failures', () => {
  const lines = sheetTable(sheet([])).trimEnd().split('\n');
  assert.equal(lines.length, 6);
  assert.match(lines[1] ?? '', /cpu +refusals$/);
  assert.match(lines[3] ?? '', /1000, gateway +100 +0$/);
  assert.match(lines[4] ?? '', /1000, nginx +20 +–$/);
  assert.match(lines[5] ?? '', /gateway-before: has died$/);
});
