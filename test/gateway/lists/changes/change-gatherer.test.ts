import assert from 'node:assert/strict';
import { test } from 'node:test';
import { ChangeGatherer, type ListChanges } from '../../../../src/gateway/lists/changes/change-gatherer.ts';

const LONGEST_MS = 60_000;

test('changes of several upstreams and eras are reported together', (t) => {
  t.mock.timers.enable({ apis: ['setTimeout'] });
  const reports: ListChanges[] = [];
  const changes = new ChangeGatherer((reported) => reports.push(reported));
  changes.add('a', 'legacy', true);
  changes.add('a', 'modern', true);
  changes.add('b', 'legacy', true);
  assert.equal(reports.length, 0);
  t.mock.timers.tick(LONGEST_MS);
  const expected = new Map([
    ['a', new Set(['legacy', 'modern'])],
    ['b', new Set(['legacy'])],
  ]);
  assert.deepEqual(reports, [expected]);
});

test('a change after a report is in the next report alone', (t) => {
  t.mock.timers.enable({ apis: ['setTimeout'] });
  const reports: ListChanges[] = [];
  const changes = new ChangeGatherer((reported) => reports.push(reported));
  changes.add('a', 'legacy', false);
  t.mock.timers.tick(LONGEST_MS);
  changes.add('b', 'modern', false);
  t.mock.timers.tick(LONGEST_MS);
  assert.deepEqual(
    reports.map((report) => [...report.keys()]),
    [['a'], ['b']],
  );
});

test('a closed gatherer reports neither gathered nor later changes', (t) => {
  t.mock.timers.enable({ apis: ['setTimeout'] });
  const changes = new ChangeGatherer(() => assert.fail('reported'));
  changes.add('a', 'legacy', false);
  changes.close();
  changes.add('b', 'legacy', false);
  t.mock.timers.tick(LONGEST_MS);
});
