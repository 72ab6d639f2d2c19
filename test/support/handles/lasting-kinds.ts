import assert from 'node:assert/strict';
import { META } from '../../../src/protocol/meta.ts';
import type { Events } from '../../downstream/client.ts';
import { type Actor, type Seen, seenOf } from './actors.ts';
import { cancelModern, changed, type HandleKind, resultIn, textAt } from './handle-kind.ts';
import { acceptedBy } from './held-call.ts';

export const TASK: HandleKind = {
  name: 'task id of 2025-11-25',
  sealed: 'task',
  make: async (owner) => {
    const params = { name: 'leg__job', arguments: { nonce: owner.nonce() }, task: { ttl: 600_000 } };
    const id = textAt(resultIn(await owner.ask('tools/call', params)), 'task', 'taskId');
    return {
      text: id,
      unknown: changed(id),
      use: async (actor, taskId) => {
        const answers: Seen[] = [];
        for (const method of ['tasks/get', 'tasks/result', 'tasks/cancel']) {
          answers.push(seenOf(await actor.ask(method, { taskId }), taskId));
        }
        const { text } = await actor.ask('tasks/list', {});
        assert.ok(!text.includes(id), `${actor.name} lists a task of ${owner.name}`);
        return answers;
      },
      assertWorks: async () => {
        assert.equal(textAt(resultIn(await owner.ask('tasks/get', { taskId: id })), 'status'), 'working');
        assert.ok((await owner.ask('tasks/list', {})).text.includes(id));
      },
    };
  },
};

export const MODERN_TASK: HandleKind = {
  name: 'task id of 2026-07-28',
  sealed: 'task',
  make: async (owner) => {
    const created = await owner.modern('tools/call', { name: 'mod__job', arguments: { nonce: owner.nonce() } });
    const id = textAt(resultIn(created), 'taskId');
    return {
      text: id,
      unknown: changed(id),
      use: async (actor, taskId) => {
        const answers: Seen[] = [];
        for (const method of ['tasks/get', 'tasks/cancel']) {
          answers.push(seenOf(await actor.modern(method, { taskId }), taskId));
        }
        answers.push(
          seenOf(await actor.modern('tasks/update', { taskId, inputResponses: { q: acceptedBy('thief') } }), taskId),
        );
        const stream = await actor.modernStream('subscriptions/listen', { notifications: { taskIds: [taskId] } });
        if (stream.status === 200) {
          await stream.until(({ messages }) => messages.length > 0);
          answers.push({ status: 200, challenge: undefined, text: acknowledged(stream, taskId) });
        }
        stream.close();
        return answers;
      },
      assertWorks: async () => {
        assert.equal(textAt(resultIn(await owner.modern('tasks/get', { taskId: id })), 'status'), 'working');
      },
    };
  },
};

/** Returns the first message of a subscription stream, without its id. */
function acknowledged({ messages }: Events, text: string): string {
  return JSON.stringify(messages[0])
    .replaceAll(text, '…')
    .replaceAll(/"[^"]*subscriptionId":\d+/g, '…');
}

export const CURSOR: HandleKind = {
  name: 'cursor of a list',
  sealed: 'cursor',
  make: async (owner) => {
    const cursor = textAt(resultIn(await owner.ask('tools/list', {})), 'nextCursor');
    return {
      text: cursor,
      unknown: changed(cursor),
      use: async (actor, of) => [
        seenOf(await actor.ask('tools/list', { cursor: of }), of),
        seenOf(await actor.modern('tools/list', { cursor: of }), of),
      ],
      assertWorks: async () => void resultIn(await owner.ask('tools/list', { cursor })),
    };
  },
};

export const SUBSCRIPTION: HandleKind = {
  name: 'resource subscription',
  make: async (owner, { leg }) => {
    const uri = `test://watched/${owner.nonce()}`;
    resultIn(await owner.ask('resources/subscribe', { uri }));
    return {
      text: uri,
      unknown: 'test://watched/nobody',
      use: async (actor, of) => [seenOf(await actor.ask('resources/unsubscribe', { uri: of }), of)],
      assertWorks: async () => {
        leg.update(uri);
        await owner.inbox.until(({ seen }) => seen.some(({ data }) => data.includes(uri)));
      },
    };
  },
};

export const LISTEN: HandleKind = {
  name: 'id of a subscription stream',
  make: async (owner, { mod }) => {
    const [name, id] = [owner.nonce(), owner.id()];
    const stream = await owner.modernStream(
      'subscriptions/listen',
      { notifications: { resourceSubscriptions: [`mod+mod://${name}`] } },
      {},
      id,
    );
    await stream.until(({ messages }) => messages.length > 0);
    return {
      text: String(id),
      unknown: '999999',
      use: cancelModern,
      assertWorks: async () => {
        mod.notify('notifications/resources/updated', { uri: `mod://${name}` });
        await stream.until(({ messages }) => messages.some((one) => one.method === 'notifications/resources/updated'));
        stream.close();
      },
    };
  },
};

export const IDEMPOTENCY_KEY: HandleKind = {
  name: 'idempotency key',
  calls: true,
  make: async (owner) => {
    const nonce = owner.nonce();
    const key = `key ${nonce}`;
    const params = { name: 'leg__echo', arguments: { nonce } };
    const call = async (actor: Actor, of: string) => actor.modern('tools/call', params, { [META.idempotencyKey]: of });
    const first = JSON.stringify(resultIn(await call(owner, key)));
    return {
      text: key,
      unknown: `key ${owner.nonce()}`,
      use: async (actor, of) => {
        const got = await call(actor, of);
        assert.ok(
          got.status !== 200 || JSON.stringify(resultIn(got)) !== first,
          `${actor.name} got the answer of ${owner.name}`,
        );
        return [seenOf(got, of)];
      },
      assertWorks: async () => assert.equal(JSON.stringify(resultIn(await call(owner, key))), first),
    };
  },
};
