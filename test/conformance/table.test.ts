import assert from 'node:assert/strict';
import { test } from 'node:test';
import type { Behind } from './plan.ts';
import type { Score } from './score.ts';
import type { SelectionName } from './suite.ts';
import { failureLines, matrixLines, ownerLines, type Row } from './table.ts';

const scored = (scenario: string, ...reasons: string[]): Score => ({
  scenario,
  passed: reasons.length === 0,
  checks: 1,
  reasons,
});

const row = (behind: Behind, selection: SelectionName, scores: readonly Score[], isRepeat = false): Row => ({
  target: `http merged ${behind}`,
  server: { behind, endpoint: 'merged', selection },
  name: selection,
  isRepeat,
  seconds: 1,
  scores,
});

const rows = [
  row('legacy', '2025-11-25', [scored('ping'), scored('tools-list')]),
  row('legacy', '2026-07-28', [scored('caching', 'no ttlMs'), scored('tools-list')]),
  row('modern', '2026-07-28', [scored('caching')]),
  row('legacy', '2025-11-25', [scored('tools-call-with-progress')], true),
  row('legacy', '0.1.16', [scored('tools-list')]),
  row('tasks', 'tasks', [scored('tasks-lifecycle')]),
];

test('the matrix has a figure per revision and era, and its sums exclude repetitions', () => {
  const fields = matrixLines(rows).map((line) => line.trim().split(/\s{2,}/));
  assert.deepEqual(fields, [
    ['http merged', 'legacy', 'modern', 'both', 'sum'],
    ['2025-06-18'],
    ['2025-11-25', '2/2', '2/2'],
    ['2026-07-28', '1/2', '1/1', '2/3'],
    ['sum', '3/4', '1/1', '4/5'],
  ]);
});

test('scenarios of the gateway itself are counted apart from relayed ones', () => {
  const fields = ownerLines(rows).map((line) => line.trim().split(/\s{2,}/));
  assert.deepEqual(fields, [
    ["the gateway's own", '2/3'],
    ['carried or bridged', '4/4'],
  ]);
});

test('each reason of a failure is a line with its scenario', () => {
  const failed = row('both', '2026-07-28', [scored('caching', 'first', 'second'), scored('tools-list')]);
  assert.deepEqual(failureLines(failed), ['  FAIL caching: first', '  FAIL caching: second']);
});

test('many scenarios that failed for one reason are one line', () => {
  const names = ['ping', 'caching', 'tools-list', 'prompts-list'];
  const failed = row(
    'both',
    '2026-07-28',
    names.map((name) => scored(name, 'did not start')),
  );
  assert.deepEqual(failureLines(failed), ['  FAIL 4 scenarios: did not start']);
});
