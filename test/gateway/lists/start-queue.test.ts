import assert from 'node:assert/strict';
import { setImmediate as nextTurn } from 'node:timers/promises';
import { test } from 'node:test';
import { StartQueue } from '../../../src/gateway/lists/start-queue.ts';

test('starts beyond the limit wait, and begin in the order of arrival', async () => {
  const queue = new StartQueue(2);
  const begun: string[] = [];
  const ends = new Map<string, () => void>();
  const run = (name: string) =>
    queue.run(() => {
      begun.push(name);
      const { promise, resolve } = Promise.withResolvers<void>();
      ends.set(name, resolve);
      return promise;
    });
  const all = ['a', 'b', 'c', 'd'].map(run);
  assert.deepEqual(begun, ['a', 'b']);
  for (const name of ['b', 'a', 'c', 'd']) {
    ends.get(name)?.();
    await nextTurn();
  }
  await Promise.all(all);
  assert.deepEqual(begun, ['a', 'b', 'c', 'd']);
});

test('a start that fails rejects, and the next one begins', async () => {
  const queue = new StartQueue(1);
  const failing = queue.run(() => Promise.reject(new Error('no program')));
  const next = queue.run(() => Promise.resolve());
  await assert.rejects(failing, /no program/);
  await next;
});
