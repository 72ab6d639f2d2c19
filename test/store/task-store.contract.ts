import assert from 'node:assert/strict';
import { randomUUID } from 'node:crypto';
import { test } from 'node:test';
import { LIMITS } from '../../src/limits.ts';
import type { KnownTask, OnTaskLimit, TaskStore } from '../../src/store/task-store.ts';

const OPTIONS = { timeout: 120_000 };

/** The contract of every task store. */
export function taskStoreContract(name: string, open: (onLimit: OnTaskLimit) => TaskStore | Promise<TaskStore>): void {
  const taskOf = (own: Partial<KnownTask> = {}): KnownTask => ({
    upstream: 'up',
    task: 't',
    holder: 'h',
    run: '',
    id: randomUUID(),
    ...own,
  });

  test(`${name}: tasks that were added are found and listed, the first one first`, OPTIONS, async () => {
    const store = await open(() => undefined);
    const client = randomUUID();
    assert.deepEqual(await store.list(client), []);
    const tasks = ['b', 'ü\n', '__proto__', 'a'].map((task) => taskOf({ task }));
    for (const task of tasks) await store.add(client, task);
    assert.deepEqual(await store.list(client), tasks);
    for (const task of tasks) assert.deepEqual(store.find(client, task), task);
  });

  test(`${name}: every part of the address and the client tell tasks apart`, OPTIONS, async () => {
    const store = await open(() => undefined);
    const client = randomUUID();
    const one = taskOf();
    const others = [{ upstream: 'up2' }, { task: 't2' }, { holder: 'h2' }, { run: 'r' }, { holder: 'h t', task: '' }];
    await store.add(client, one);
    for (const own of others) assert.equal(store.find(client, { ...one, ...own }), undefined);
    for (const own of others) await store.add(client, taskOf(own));
    assert.equal((await store.list(client)).length, others.length + 1);
    assert.equal(store.find(randomUUID(), one), undefined);
    assert.equal(store.find(client, one)?.id, one.id);
  });

  test(`${name}: a task that is added again has its new id`, OPTIONS, async () => {
    const store = await open(() => undefined);
    const client = randomUUID();
    await store.add(client, taskOf());
    const again = taskOf();
    await store.add(client, again);
    assert.deepEqual(await store.list(client), [again]);
  });

  test(`${name}: a removed task is unknown`, OPTIONS, async () => {
    const store = await open(() => undefined);
    const client = randomUUID();
    const [one, two] = [taskOf(), taskOf({ task: 'two' })];
    for (const task of [one, two]) await store.add(client, task);
    await store.remove(client, one);
    await store.remove(client, one);
    await store.remove(randomUUID(), two);
    assert.equal(store.find(client, one), undefined);
    assert.deepEqual(await store.list(client), [two]);
  });

  test(`limit knownTasksPerClient: with ${name}, a client keeps its latest tasks`, OPTIONS, async () => {
    const reached: string[] = [];
    const store = await open((limit) => reached.push(limit));
    const client = randomUUID();
    const tasks = Array.from({ length: LIMITS.knownTasksPerClient + 1 }, (_, n) => taskOf({ task: `t${n}` }));
    for (const task of tasks) await store.add(client, task);
    assert.deepEqual(await store.list(client), tasks.slice(1));
    assert.deepEqual(reached, ['knownTasksPerClient']);
  });
}
