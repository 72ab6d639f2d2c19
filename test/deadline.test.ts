import assert from 'node:assert/strict';
import { test } from 'node:test';
import { resultOrLate, resultWithin, settlesWithin } from '../src/deadline.ts';
import { stopTime } from './support/stopped-time.ts';

const forever = new Promise<never>(() => undefined);
const late = () => new Error('late');

test('work in time gives its result, or its error', async () => {
  const failing = () => Promise.reject(new Error('broken'));
  assert.equal(await resultWithin(Promise.resolve(7), 60_000), 7);
  assert.equal(await resultOrLate(Promise.resolve(7), 60_000, late), 7);
  await assert.rejects(resultWithin(failing(), 60_000), /broken/);
  await assert.rejects(resultOrLate(failing(), 60_000, late), /broken/);
  assert.equal(await settlesWithin(failing(), 60_000), true);
});

test('nobody waits longer than the limit', async (t) => {
  const time = stopTime(t);
  const results = [resultWithin(forever, 100), settlesWithin(forever, 100), resultOrLate(forever, 100, late)];
  const settled = Promise.allSettled(results);
  time.pass(100);
  assert.deepEqual(await settled, [
    { status: 'fulfilled', value: undefined },
    { status: 'fulfilled', value: false },
    { status: 'rejected', reason: new Error('late') },
  ]);
});

test('a result that came while this process was busy is read before the error', async (t) => {
  const time = stopTime(t);
  const work = Promise.withResolvers<number>();
  const waiting = resultOrLate(work.promise, 100, late);
  time.pass(100);
  work.resolve(7);
  assert.equal(await waiting, 7);
});
