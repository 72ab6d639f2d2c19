import assert from 'node:assert/strict';
import { test } from 'node:test';
import { GatewayError } from '../../../src/errors.ts';
import { asker } from '../../support/asker.ts';
import { testCore, toolCall } from '../../support/core.ts';
import { memoryUpstream, result } from '../../support/memory-upstream.ts';
import { modernRequest } from '../../support/modern-client.ts';
import { until } from '../../support/stdio.ts';

const TIMEOUT = { timeout: 20_000 };

test('N-41 a server that ends the call when its question is refused gets no cancellation', TIMEOUT, async () => {
  const { memory, call } = asker({ isAttributed: true });
  await using gateway = await testCore({ up: { memory } });
  const params = toolCall('up__ask', { nonce: 'n' });
  const { error } = await modernRequest(gateway, 'tools/call', params, { capabilities: {} }).reply;
  assert.equal(error?.code, -32021);
  // A second call of the same client shows that the first has long ended at the server.
  const again = await modernRequest(gateway, 'tools/call', toolCall('up__other', {}), { capabilities: {} }).reply;
  assert.ok(again.result);
  assert.equal(call('n').told.size, 1);
  assert.equal(call('n').isCancelled, false);
});

test('N-41 a server that goes on after its question is refused gets a cancellation', TIMEOUT, async () => {
  const { memory, calls, call, ask } = asker({ isAttributed: true, isQuiet: true });
  await using gateway = await testCore({ up: { memory } });
  const params = toolCall('up__ask', { nonce: 'n' });
  const { reply } = modernRequest(gateway, 'tools/call', params, { capabilities: {} });
  await memory.until(() => calls.get('n'));
  ask('n', 'q', 'elicitation/create', { message: 'Who?', requestedSchema: { type: 'object', properties: {} } });
  const { error } = await reply;
  assert.equal(error?.code, -32021);
  await memory.until(() => call('n').isCancelled || undefined);
});

test('N-41 a subscription whose link is lost is made on a new one before it is acknowledged', TIMEOUT, async () => {
  let losses = 0;
  const memory = memoryUpstream({
    capabilities: { resources: { subscribe: true } },
    lists: { resources: [{ uri: 'test://a', name: 'a' }] },
    request: (peer, request) => {
      if (request.method === 'resources/subscribe' && losses++ === 0) {
        peer.end(new GatewayError('upstream-session-lost', { upstream: 'up', message: 'gone' }));
      } else peer.say(result(request, {}));
    },
  });
  await using gateway = await testCore({ up: { memory } });
  const notifications = { resourceSubscriptions: ['up+test://a'] };
  const { said, call, reply } = modernRequest(gateway, 'subscriptions/listen', { notifications });
  await until(() => said.length > 0, 'an acknowledgement');
  const [acknowledged] = said;
  assert.ok(acknowledged !== undefined && 'params' in acknowledged);
  assert.deepEqual(JSON.parse(acknowledged.params?.raw('notifications') ?? ''), notifications);
  assert.equal(memory.requests('resources/subscribe').length, 2);
  call.close();
  await reply;
});
