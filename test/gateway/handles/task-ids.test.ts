import assert from 'node:assert/strict';
import { test } from 'node:test';
import type { Caller } from '../../../src/gateway/front/caller.ts';
import { Sealer } from '../../../src/gateway/handles/sealer.ts';
import { TaskIds } from '../../../src/gateway/handles/task-ids.ts';
import { RawObject } from '../../../src/json/json.ts';
import { LOCAL } from '../../../src/policy/principal.ts';
import { MemoryKeyStore } from '../../../src/store/memory/key-store.ts';
import { MemoryTaskStore } from '../../../src/store/memory/task-store.ts';

const CALLER: Caller = { principal: LOCAL, view: '', revision: '2026-07-28', capabilities: RawObject.EMPTY };
const TASK = { upstream: 'up', task: 't', holder: 'h', run: 'r' };

// SEC-08 S-004
test('a task id is known to its principal at its endpoint alone', async () => {
  const sealer = await Sealer.open(new MemoryKeyStore());
  const ids = new TaskIds(sealer, new MemoryTaskStore(() => undefined), 'p');
  const id = await ids.seal(CALLER, TASK, 'job');
  assert.deepEqual(await ids.open(CALLER, id), { ...TASK, process: 'p', tool: 'job' });
  const others: readonly Caller[] = [
    { ...CALLER, view: 'up' },
    { ...CALLER, principal: { ...LOCAL, key: 'bob' } },
  ];
  for (const other of others) {
    await assert.rejects(ids.open(other, id), { code: 'unknown-task' });
    assert.equal(ids.find(other, TASK), undefined);
    assert.deepEqual(await ids.list(other), []);
  }
});

test('a client has one id of a task, also after a restart', async () => {
  const sealer = await Sealer.open(new MemoryKeyStore());
  const open = () => new TaskIds(sealer, new MemoryTaskStore(() => undefined), 'p');
  const id = await open().seal(CALLER, TASK, 'job');
  const later = open();
  await later.open(CALLER, id);
  assert.equal(await later.seal(CALLER, TASK, 'job'), id);
  assert.deepEqual(
    (await later.list(CALLER)).map((known) => known.id),
    [id],
  );
});

test('the unknown ids of one client are added to the store in parts', { timeout: 120_000 }, async () => {
  const sealer = await Sealer.open(new MemoryKeyStore());
  const sealing = new TaskIds(sealer, new MemoryTaskStore(() => undefined), 'before');
  const address = (task: number) => ({ upstream: 'up', task: `task-${task}`, holder: 'h', run: '' });
  const ids = await Promise.all(Array.from({ length: 200 }, (_, task) => sealing.seal(CALLER, address(task), 'tool')));
  const store = new MemoryTaskStore(() => undefined);
  const add = store.add.bind(store);
  let most = 0;
  let running = 0;
  store.add = async (client, task) => {
    most = Math.max(most, ++running);
    await new Promise(setImmediate);
    await add(client, task);
    running--;
  };
  const opening = new TaskIds(sealer, store, 'now');
  const opened = await Promise.all(ids.map((id) => opening.open(CALLER, id)));
  assert.deepEqual(opened.map(({ task }) => task).slice(-2), ['task-198', 'task-199']);
  assert.ok(most < 50, `${most} at once`);
});
