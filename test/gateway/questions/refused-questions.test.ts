import assert from 'node:assert/strict';
import { test } from 'node:test';
import { GatewayError } from '../../../src/errors.ts';
import { asker } from '../../support/asker.ts';
import { testCore, toolCall } from '../../support/core.ts';
import { legacyUpstream } from '../../support/http-upstream.ts';
import { memoryUpstream, result } from '../../support/memory-upstream.ts';
import { modernRequest } from '../../support/modern-client.ts';
import { until } from '../../support/stdio.ts';

const TIMEOUT = { timeout: 120_000 };

// N-41
test('an upstream that ends the call after a refused question gets no cancellation', TIMEOUT, async () => {
  const { memory, call } = asker({ isAttributed: true });
  await using gateway = await testCore({ up: { memory } });
  const params = toolCall('up__ask', { nonce: 'n' });
  const { error } = await modernRequest(gateway, 'tools/call', params, { capabilities: {} }).reply;
  assert.equal(error?.code, -32021);
  // A second call of the same client shows that the first has long ended at the server.
  const again = await modernRequest(gateway, 'tools/call', toolCall('up__other', {}), { capabilities: {} }).reply;
  assert.ok(again.result);
  assert.equal(call('n').answers.size, 1);
  assert.equal(call('n').isCancelled, false);
});

// N-41
test('an upstream that continues after a refused question gets a cancellation', TIMEOUT, async () => {
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

// N-41
test('a subscription whose link is lost is acknowledged after one on a new link', TIMEOUT, async () => {
  let losses = 0;
  const memory = memoryUpstream({
    capabilities: { resources: { subscribe: true } },
    lists: { resources: [{ uri: 'test://a', name: 'a' }] },
    request: (peer, request) => {
      if (request.method === 'resources/subscribe' && losses++ === 0) {
        peer.end(new GatewayError('upstream-session-lost', { upstream: 'up', message: 'gone' }));
      } else peer.send(result(request, {}));
    },
  });
  await using gateway = await testCore({ up: { memory } });
  const notifications = { resourceSubscriptions: ['up+test://a'] };
  const { messages, call, reply } = modernRequest(gateway, 'subscriptions/listen', { notifications });
  await until(() => messages.length > 0, 'an acknowledgement');
  const [acknowledged] = messages;
  assert.ok(acknowledged !== undefined && 'params' in acknowledged);
  assert.deepEqual(JSON.parse(acknowledged.params?.raw('notifications') ?? ''), notifications);
  assert.equal(memory.requests('resources/subscribe').length, 2);
  call.close();
  await reply;
});

// N-41
test('a call at a lost session is answered from a new one, without an error', TIMEOUT, async () => {
  let [sessions, calls] = [0, 0];
  await using upstream = await legacyUpstream({
    tools: [{ name: 'say', inputSchema: { type: 'object' } }],
    answers: {
      initialize: ({ response }) => {
        response.setHeader('mcp-session-id', `s${++sessions}`);
        return { protocolVersion: '2025-11-25', capabilities: { tools: {} }, serverInfo: { name: 'r', version: '1' } };
      },
      // The first call of each client is refused, as by a server that was restarted.
      'tools/call': ({ response }) => {
        if (++calls % 2 === 0) return { content: [] };
        response.writeHead(404).end();
        return undefined;
      },
    },
  });
  await using gateway = await testCore({ up: upstream.config });
  const client = await gateway.connect();
  assert.deepEqual(await client.result('tools/call', toolCall('up__say', {})), { content: [] });
  const { result: answer } = await modernRequest(gateway, 'tools/call', toolCall('up__say', {})).reply;
  assert.ok(answer);
  const ids = upstream.requests('tools/call').map(({ headers }) => headers['mcp-session-id']);
  assert.deepEqual([ids.length, new Set(ids).size], [4, 4], 'each in a session of its own');
});
