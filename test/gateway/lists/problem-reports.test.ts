import assert from 'node:assert/strict';
import { test } from 'node:test';
import { pino } from 'pino';
import type { ListProblem } from '../../../src/catalog/problems.ts';
import { ProblemReports } from '../../../src/gateway/lists/problem-reports.ts';
import { createMetrics } from '../../../src/telemetry/metrics.ts';

function problem(name: string): ListProblem {
  return { kind: 'tool', name, repair: 'item left out', detail: 'no input schema', limit: undefined };
}

function reports() {
  const lines: string[] = [];
  const log = pino({ level: 'warn' }, { write: (line: string) => lines.push(line) });
  const names = () => lines.splice(0).map((line) => String(JSON.parse(line).name ?? JSON.parse(line).more));
  return { reports: new ProblemReports(log, createMetrics('0')), names };
}

test('a problem is logged once for each era, and again after a removal of its upstream', () => {
  const { reports: subject, names } = reports();
  subject.report('up', 'modern', [problem('a')]);
  subject.report('up', 'modern', [problem('a'), problem('b')]);
  subject.report('up', 'legacy', [problem('a')]);
  assert.deepEqual(names(), ['a', 'b', 'a']);
  subject.remove('up');
  subject.report('up', 'modern', [problem('a')]);
  assert.deepEqual(names(), ['a']);
});

test('the problems after the first 50 of a report are logged as a number', () => {
  const { reports: subject, names } = reports();
  const many = Array.from({ length: 53 }, (_, index) => problem(`t${index}`));
  subject.report('up', 'modern', many);
  assert.deepEqual(names().slice(49), ['t49', '3']);
});

test('problems that stay are not reported again, however many there are', () => {
  const { reports: subject, names } = reports();
  const many = Array.from({ length: 5_000 }, (_, index) => problem(`t${index}`));
  subject.report('up', 'modern', many);
  assert.deepEqual(names().slice(50), ['4950']);
  subject.report('up', 'modern', many);
  assert.deepEqual(names(), []);
});
