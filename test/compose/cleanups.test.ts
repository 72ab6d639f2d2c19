import assert from 'node:assert/strict';
import { test } from 'node:test';
import { Cleanups } from '../../src/compose/cleanups.ts';

test('cleanups run once, the latest first, each after the end of the one before', async () => {
  const ran: string[] = [];
  const cleanups = new Cleanups();
  cleanups.defer(() => ran.push('first'));
  const resource = {
    [Symbol.asyncDispose]: async () => {
      await new Promise((resolve) => setImmediate(resolve));
      ran.push('resource');
    },
  };
  assert.equal(cleanups.use(resource), resource);
  await cleanups[Symbol.asyncDispose]();
  await cleanups[Symbol.asyncDispose]();
  assert.deepEqual(ran, ['resource', 'first']);
});

test('a cleanup that fails keeps no other one from running', async () => {
  const ran: string[] = [];
  const cleanups = new Cleanups();
  cleanups.defer(() => ran.push('first'));
  cleanups.defer(() => Promise.reject(new Error('second')));
  cleanups.defer(() => {
    throw new Error('third');
  });
  await assert.rejects(cleanups[Symbol.asyncDispose](), /third/);
  assert.deepEqual(ran, ['first']);
});

test('cleanups that were moved are run by their new owner alone', async () => {
  const ran: string[] = [];
  let moved: Cleanups;
  {
    await using cleanups = new Cleanups();
    cleanups.defer(() => ran.push('one'));
    moved = cleanups.move();
  }
  assert.equal(ran.length, 0);
  moved.defer(() => ran.push('two'));
  await moved[Symbol.asyncDispose]();
  assert.deepEqual(ran, ['two', 'one']);
});
