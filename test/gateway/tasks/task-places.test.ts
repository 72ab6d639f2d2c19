import assert from 'node:assert/strict';
import { cp, mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { test } from 'node:test';
import { Session } from '../../../src/gateway/clients/session.ts';
import { RawObject } from '../../../src/json/json.ts';
import { recordedAfter } from '../../support/audit.ts';
import { TestClient, testCore, toolCall } from '../../support/core.ts';
import { JoinedProcesses } from '../../support/joined-processes.ts';
import { ModernClient } from '../../support/modern-client.ts';
import { coreTaskUpstream, extensionUpstream } from '../../support/task-upstreams.ts';

const TIMEOUT = { timeout: 120_000 };

async function createTask(client: TestClient): Promise<string> {
  const { task } = await client.result('tools/call', { ...toolCall('up__job'), task: { ttl: 60_000 } });
  return String(Object(task).taskId);
}

// R10
test('the tasks of a session move with it, though the former process lives', TIMEOUT, async () => {
  const { memory } = coreTaskUpstream();
  const processes = new JoinedProcesses();
  await using first = await testCore({ up: { memory } }, {}, processes);
  // The processes have the same keys, and each a state directory of its own.
  const stateDir = await mkdtemp(join(tmpdir(), 'linkspan-replica-'));
  await cp(join(first.config.stateDir, 'keys.json'), join(stateDir, 'keys.json'));
  {
    await using second = await testCore({ up: { memory } }, { stateDir }, processes);
    await (await second.connect()).result('tools/list');
    const client = await first.connect();
    const taskId = await createTask(client);
    first.core.handOver();
    const { id, caller } = client.session;
    const { gateway } = second.core;
    assert.equal((await gateway.ownerOfSession(id, caller.principal, caller.view)).kind, 'here');
    const session = await gateway.findSession(id, caller.principal, caller.view);
    assert.ok(session !== undefined);
    const moved = new TestClient(() => second.core, Session.from(session), RawObject.EMPTY, false);
    assert.equal((await moved.result('tasks/get', { taskId }))['status'], 'working');
  }
  await rm(stateDir, { recursive: true });
});

test('an error of tasks/result before the end of a task does not give up its process', TIMEOUT, async () => {
  const { memory } = coreTaskUpstream(undefined, (_peer, { method }) =>
    method === 'tasks/result' ? { code: -32603, message: 'try again' } : undefined,
  );
  await using gateway = await testCore({ up: { memory } });
  const client = await gateway.connect();
  const taskId = await createTask(client);
  const held = () => [...(gateway.core.upstreams.get('up')?.links() ?? [])].map(({ tasks }) => tasks.size);
  assert.deepEqual(held(), [1]);
  assert.equal((await client.request('tasks/result', { taskId })).answer.kind, 'error');
  assert.deepEqual(held(), [1]);
  await client.result('tasks/cancel', { taskId });
  assert.deepEqual(held(), [0]);
});

// REL-30
test('a request about a task goes to an upstream that is replaced meanwhile', TIMEOUT, async () => {
  const { memory, tasks } = extensionUpstream();
  let onGet = () => Promise.resolve();
  const audit = recordedAfter(async ({ method }) => {
    if (method === 'tasks/get') await onGet();
  });
  await using gateway = await testCore({ up: { memory, era: 'modern' } }, {}, undefined, audit);
  const client = new ModernClient(gateway, { extensions: { 'io.modelcontextprotocol/tasks': {} } });
  const { taskId } = await client.result('tools/call', toolCall('up__job'));
  Object.assign(tasks[0] ?? {}, { status: 'completed', result: { content: [] } });
  await client.result('tasks/get', { taskId });
  onGet = async () => void (await gateway.core.upstreamChanges.restart('up', 60_000));
  assert.equal((await client.result('tasks/get', { taskId }))['status'], 'completed');
});
