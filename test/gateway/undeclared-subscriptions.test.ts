import assert from 'node:assert/strict';
import { test } from 'node:test';
import { testCore } from '../support/core.ts';
import { memoryUpstream, type MemoryUpstream, result } from '../support/memory-upstream.ts';
import { modernRequest } from '../support/modern-client.ts';

const TIMEOUT = { timeout: 120_000 };
const UPDATED = 'notifications/resources/updated';
const URI = 'up+test://a';
const METHOD_NOT_FOUND = -32_601;

/** A server that does not declare subscriptions, as those of the Python SDK 1.x, whether or not it has them. */
function silent(hasSubscriptions: boolean, resources: object = { subscribe: false }): MemoryUpstream {
  return memoryUpstream({
    capabilities: { tools: {}, resources },
    lists: { resources: [{ uri: 'test://a', name: 'a' }] },
    request: (peer, request) => {
      const error = { code: METHOD_NOT_FOUND, message: 'Method not found', data: 'no handler' };
      const refusal = JSON.stringify({ jsonrpc: '2.0', id: Number(request.id), error });
      peer.send(hasSubscriptions ? result(request, {}) : refusal);
    },
  });
}

function update(memory: MemoryUpstream): void {
  for (const peer of memory.open) {
    peer.send(JSON.stringify({ jsonrpc: '2.0', method: UPDATED, params: { uri: 'test://a' } }));
  }
}

for (const resources of [{ subscribe: false }, {}]) {
  const declared = JSON.stringify(resources);
  test(`a client subscribes at an upstream that declares resources ${declared}`, TIMEOUT, async () => {
    const memory = silent(true, resources);
    await using gateway = await testCore({ up: { memory } });
    const client = await gateway.connect();
    assert.equal(client.initialized.object('capabilities')?.object('resources')?.raw('subscribe'), undefined);
    await client.result('resources/subscribe', { uri: URI });
    update(memory);
    await client.waitForMessage(UPDATED);
    await client.result('resources/unsubscribe', { uri: URI });
    await memory.until(() => memory.requests('resources/unsubscribe')[0]);
  });
}

test('a listener gets updates of an upstream that does not declare subscriptions', TIMEOUT, async () => {
  const memory = silent(true);
  await using gateway = await testCore({ up: { memory } });
  const notifications = { resourceSubscriptions: [URI] };
  const updated = Promise.withResolvers<void>();
  const acknowledged = Promise.withResolvers<string | undefined>();
  const listen = modernRequest(
    gateway,
    'subscriptions/listen',
    { notifications },
    {
      onMessage: (message) => {
        if (!('method' in message)) return;
        if (message.method === UPDATED) updated.resolve();
        else acknowledged.resolve(message.params?.raw('notifications'));
      },
    },
  );
  assert.deepEqual(JSON.parse((await acknowledged.promise) ?? ''), notifications);
  update(memory);
  await updated.promise;
  listen.call.close();
  await listen.reply;
});

test('the refusal of an upstream without subscriptions reaches the client unchanged', TIMEOUT, async () => {
  const memory = silent(false);
  await using gateway = await testCore({ up: { memory } });
  const client = await gateway.connect();
  const { answer } = await client.request('resources/subscribe', { uri: URI });
  assert.deepEqual(answer.kind === 'error' ? answer.error : undefined, {
    code: METHOD_NOT_FOUND,
    message: 'Method not found',
    data: 'no handler',
  });
});
