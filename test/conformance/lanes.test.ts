import assert from 'node:assert/strict';
import { test } from 'node:test';
import { setImmediate as turn } from 'node:timers/promises';
import { inLanes } from './lanes.ts';

test('as many jobs run at a time as there are lanes, in order', async () => {
  let running = 0;
  let most = 0;
  const begun: number[] = [];
  const jobs = Array.from({ length: 7 }, (_, index) => async () => {
    begun.push(index);
    most = Math.max(most, ++running);
    await turn();
    running--;
  });
  await inLanes(jobs, 2);
  assert.equal(most, 2);
  assert.deepEqual(begun, [0, 1, 2, 3, 4, 5, 6]);
});

test('a job that throws fails the run once the other lane is done', async () => {
  const done: string[] = [];
  const fails = () => Promise.reject(new Error('no'));
  const works = async () => {
    await turn();
    done.push('works');
  };
  await assert.rejects(inLanes([fails, works, works], 2), /no/);
  assert.deepEqual(done, ['works', 'works']);
});
