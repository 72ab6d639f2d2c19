import assert from 'node:assert/strict';
import { test } from 'node:test';
import type { Message } from '../../../src/protocol/jsonrpc.ts';
import { testCore, toolCall } from '../../support/core.ts';
import { JoinedProcesses } from '../../support/joined-processes.ts';
import { memoryUpstream } from '../../support/memory-upstream.ts';
import { ModernClient, modernRequest } from '../../support/modern-client.ts';
import { extensionUpstream } from '../../support/task-upstreams.ts';
import { waitUntil } from '../../support/wait-until.ts';

const TIMEOUT = { timeout: 120_000 };
const TOOL = { name: 'act', inputSchema: { type: 'object' } };

// REL-28
test('a stream asks once for the owner of each upstream, of all at the same time', TIMEOUT, async () => {
  const ids = ['a', 'b', 'c'];
  const asked: string[] = [];
  let isListening = false;
  const processes = new JoinedProcesses();
  const upstreams = () =>
    Object.fromEntries(
      ids.map((id) => {
        const capabilities = { tools: {}, resources: { subscribe: true } };
        return [id, { memory: memoryUpstream({ capabilities, lists: { tools: [TOOL], resources: [] } }) }];
      }),
    );
  await using there = await testCore(upstreams(), {}, processes);
  await there.core.refresh();
  for (const id of ['a', 'b']) await modernRequest(there, 'tools/call', toolCall(`${id}__act`)).reply;
  const join = processes.join.bind(processes);
  processes.join = () => {
    const owners = join();
    const ownerOf = owners.ownerOf.bind(owners);
    owners.ownerOf = async (owned) => {
      if (isListening && owned.kind === 'connection') {
        asked.push(owned.ref.name);
        await waitUntil(() => asked.length >= ids.length);
      }
      return await ownerOf(owned);
    };
    return owners;
  };
  await using here = await testCore(upstreams(), {}, processes);
  await here.core.refresh();
  isListening = true;
  const resourceSubscriptions = ids.flatMap((id) => [`${id}+file:///1`, `${id}+file:///2`]);
  const stream = modernRequest(here, 'subscriptions/listen', {
    notifications: { toolsListChanged: true, resourceSubscriptions },
  });
  await waitUntil(() => stream.messages.length > 0);
  const [acknowledged] = stream.messages;
  assert.ok(acknowledged?.kind === 'notification');
  const { resourceSubscriptions: uris } = Object(acknowledged.params?.value('notifications'));
  assert.deepEqual([uris.toSorted(), asked.length], [resourceSubscriptions, ids.length]);
});

test('a stream asks once for the process that has made several tasks', TIMEOUT, async () => {
  const processes = new JoinedProcesses();
  const join = processes.join.bind(processes);
  let asked = 0;
  processes.join = () => {
    const owners = join();
    const ownerOf = owners.ownerOf.bind(owners);
    owners.ownerOf = (owned) => {
      if (owned.kind === 'task') asked++;
      return ownerOf(owned);
    };
    return owners;
  };
  await using gateway = await testCore({ up: { memory: extensionUpstream().memory, era: 'modern' } }, {}, processes);
  const client = new ModernClient(gateway, { extensions: { 'io.modelcontextprotocol/tasks': {} } });
  const makeTask = async () => (await client.result('tools/call', toolCall('up__job')))['taskId'];
  const taskIds = [await makeTask(), await makeTask(), await makeTask()];
  const { promise: acknowledged, resolve } = Promise.withResolvers<Message>();
  client.request('subscriptions/listen', { notifications: { taskIds } }, { onMessage: resolve });
  const message = await acknowledged;
  assert.ok(message.kind === 'notification');
  assert.deepEqual(message.params?.object('notifications')?.value('taskIds'), taskIds);
  assert.equal(asked, 1);
});
