import assert from 'node:assert/strict';
import { getEventListeners } from 'node:events';
import { test } from 'node:test';
import { FairSlots } from '../src/fair-slots.ts';

const ONE = { slots: 1, slotsPerOwner: 1, waiting: Infinity, waitingPerOwner: Infinity };

test('a caller that has waited for its slot leaves nothing at its signal', async () => {
  const slots = new FairSlots(ONE);
  const { signal } = new AbortController();
  const first = Promise.withResolvers<string>();
  const running = slots.run('', () => first.promise);
  const waiting = slots.run('', async () => 'second', signal);
  assert.equal(getEventListeners(signal, 'abort').length, 1);
  first.resolve('first');
  assert.deepEqual(await Promise.all([running, waiting]), ['first', 'second']);
  assert.equal(getEventListeners(signal, 'abort').length, 0);
});

test('a caller that gives up its wait makes room for the next one', async () => {
  const slots = new FairSlots({ ...ONE, waiting: 1 });
  const first = Promise.withResolvers<string>();
  const running = slots.run('', () => first.promise);
  const leaving = new AbortController();
  const left = slots.run('', async () => 'left', leaving.signal);
  assert.equal(await slots.run('', async () => 'too many'), undefined);
  leaving.abort();
  await assert.rejects(left, /given up/);
  const next = slots.run('', async () => 'next');
  first.resolve('first');
  assert.deepEqual(await Promise.all([running, next]), ['first', 'next']);
});
