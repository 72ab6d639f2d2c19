import assert from 'node:assert/strict';
import { test } from 'node:test';
import { LIMITS } from '../../../src/limits.ts';
import { MemoryTaskStore } from '../../../src/store/memory/task-store.ts';
import { taskStoreContract } from '../task-store.contract.ts';

taskStoreContract('memory', (onLimit) => new MemoryTaskStore(onLimit));

test('limit knownTasksBytes: the longest inactive client loses its oldest tasks', async () => {
  const reached: string[] = [];
  const store = new MemoryTaskStore((limit) => reached.push(limit));
  const id = 'x'.repeat(LIMITS.knownTasksBytes / 10);
  const taskOf = (task: string) => ({ upstream: 'up', task, holder: 'h', run: '', id });
  for (const [client, task] of [
    ['bert', 'one'],
    ['anna', 'one'],
    ['anna', 'two'],
    ['bert', 'two'],
    ['bert', 'two'],
  ] as const) {
    await store.add(client, taskOf(task));
  }
  assert.deepEqual(reached, []);
  await store.add('carl', taskOf('one'));
  const kept = await Promise.all(
    ['anna', 'bert', 'carl'].map(async (client) => (await store.list(client)).map(({ task }) => task)),
  );
  assert.deepEqual(kept, [['two'], ['one', 'two'], ['one']]);
  assert.deepEqual(reached, ['knownTasksBytes']);
});
