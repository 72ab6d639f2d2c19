/** Subscriptions to resources of servers of other projects. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { getEvents, initialize, post, rpc } from '../downstream/client.ts';
import { answerOf, modernEvents, modernPost } from '../support/modern-wire.ts';
import { startSetting } from './setting.ts';

const UPDATED = 'notifications/resources/updated';
const TOUCH = { name: 'touch', arguments: {} };
const TIMEOUT = { timeout: 120_000 };

// The Python SDK 1.x serves `resources/subscribe` and declares `subscribe: false`.
for (const id of ['python1-stdio', 'python1-http', 'typescript1-http']) {
  test(`a session that subscribes to a resource of ${id} gets its updates`, TIMEOUT, async () => {
    await using setting = await startSetting(id);
    const endpoint = setting.gateway.endpoint(id);
    const session = await initialize(endpoint);
    await post(endpoint, JSON.stringify({ jsonrpc: '2.0', method: 'notifications/initialized' }), session);
    const stream = await getEvents(endpoint, session);
    const subscribed = await post(endpoint, rpc(1, 'resources/subscribe', { uri: setting.uri('watched') }), session);
    assert.ok(subscribed.text.includes('"result"'), subscribed.text);
    await post(endpoint, rpc(2, 'tools/call', TOUCH), session);
    await stream.until(({ messages }) => messages.some(({ method }) => method === UPDATED));
    stream.close();
  });

  // N-47
  test(`a listener at ${id} gets changes by a call with other capabilities`, TIMEOUT, async () => {
    await using setting = await startSetting(id);
    const endpoint = setting.gateway.endpoint(id);
    const notifications = { resourceSubscriptions: [setting.uri('watched')] };
    const listening = await modernEvents(endpoint, 'subscriptions/listen', { notifications });
    await listening.until(({ messages }) => messages.length > 0);
    assert.deepEqual(JSON.parse(JSON.stringify(listening.messages[0]?.params)).notifications, notifications);
    const { result } = answerOf(await modernPost(endpoint, 'tools/call', TOUCH, { capabilities: { elicitation: {} } }));
    assert.ok(result !== undefined);
    await listening.until(({ messages }) => messages.some(({ method }) => method === UPDATED));
    listening.close();
  });
}
