import assert from 'node:assert/strict';
import { test } from 'node:test';
import { SingleRuns } from '../../src/upstream/single-runs.ts';

test('work of one key runs once at a time, and again after its end', async () => {
  const runs = new SingleRuns<void>();
  const ends = [Promise.withResolvers<void>(), Promise.withResolvers<void>()];
  let begun = 0;
  const work = () => ends[begun++]?.promise ?? Promise.resolve();
  const [first, same] = [runs.run('a', work), runs.run('a', work)];
  const other = runs.run('b', () => Promise.reject(new Error('b failed')));
  await assert.rejects(other, /b failed/);
  assert.equal(begun, 1);
  ends[0]?.resolve();
  await Promise.all([first, same]);
  const again = runs.run('a', work);
  assert.equal(begun, 2);
  ends[1]?.reject(new Error('a failed'));
  await runs.settled('a');
  await assert.rejects(again, /a failed/);
  await runs.settled('never');
});
