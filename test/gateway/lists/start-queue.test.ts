import assert from 'node:assert/strict';
import { setImmediate as nextTurn } from 'node:timers/promises';
import { test } from 'node:test';
import { GATEWAY, StartQueue } from '../../../src/gateway/lists/start-queue.ts';
import { LIMITS } from '../../../src/limits.ts';

/** A queue of starts that end when the test says so. */
function queueOf(limit: number) {
  const queue = new StartQueue(limit);
  const begun: string[] = [];
  const ends = new Map<string, () => void>();
  const run = (name: string, owner = 'ann') =>
    queue.run(owner, () => {
      begun.push(name);
      const { promise, resolve } = Promise.withResolvers<void>();
      ends.set(name, resolve);
      return promise;
    });
  const end = async (name: string) => {
    ends.get(name)?.();
    await nextTurn();
  };
  return { queue, begun, run, end };
}

test('starts beyond the limit wait, and begin in the order of arrival', async () => {
  const { begun, run, end } = queueOf(2);
  for (const name of ['a', 'b', 'c', 'd']) run(name);
  assert.deepEqual(begun, ['a', 'b']);
  for (const name of ['b', 'a', 'c', 'd']) await end(name);
  assert.deepEqual(begun, ['a', 'b', 'c', 'd']);
});

test('principals take turns, so that one with many starts delays another by one', async () => {
  const { begun, run, end } = queueOf(1);
  for (const name of ['a1', 'a2', 'a3', 'a4']) run(name);
  run('b1', 'bob');
  run('g1', GATEWAY);
  for (const name of ['a1', 'a2', 'b1', 'g1', 'a3', 'a4']) await end(name);
  assert.deepEqual(begun, ['a1', 'a2', 'b1', 'g1', 'a3', 'a4']);
});

test('a start that fails lets the next one begin', async () => {
  const queue = new StartQueue(1);
  queue.run('ann', () => Promise.reject(new Error('no program')));
  await new Promise<void>((resolve) =>
    queue.run('ann', () => {
      resolve();
      return Promise.resolve();
    }),
  );
});

/** A queue in which this many starts of each of these principals wait. It ends by itself when it is disposed of. */
function filled(principals: number, each: number): StartQueue & Disposable {
  const { promise, resolve } = Promise.withResolvers<void>();
  const queue = new StartQueue(1);
  queue.run(GATEWAY, () => promise);
  for (let p = 0; p < principals; p++) for (let n = 0; n < each; n++) queue.run(`p${p}`, () => promise);
  return Object.assign(queue, { [Symbol.dispose]: resolve });
}

test('limit waitingListingsPerPrincipal: a further start of the same one may not wait', () => {
  using queue = filled(1, LIMITS.waitingListingsPerPrincipal);
  assert.equal(queue.fullFor('p0'), 'waitingListingsPerPrincipal');
  assert.deepEqual([queue.fullFor('p1'), queue.fullFor(GATEWAY)], [undefined, undefined]);
});

test('limit waitingListings: no further start of a client may wait', () => {
  const principals = 2 * Math.ceil(LIMITS.waitingListings / LIMITS.waitingListingsPerPrincipal);
  using queue = filled(principals, LIMITS.waitingListings / principals);
  assert.equal(queue.fullFor('other'), 'waitingListings');
  assert.equal(queue.fullFor(GATEWAY), undefined);
});
