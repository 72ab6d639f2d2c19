import assert from 'node:assert/strict';
import { test } from 'node:test';
import { Session } from '../../../src/gateway/clients/session.ts';
import type { Message, Response } from '../../../src/protocol/jsonrpc.ts';
import { testCore, toolCall } from '../../support/core.ts';
import { memoryUpstream } from '../../support/memory-upstream.ts';

const TIMEOUT = { timeout: 120_000 };
const CHANGED = 'notifications/tools/list_changed';
const isCall = (one: Message) => one.kind === 'request' && one.method === 'tools/call';
const methodsOf = (messages: readonly object[]) => messages.map((one) => ('method' in one ? one.method : undefined));

test('a front refuses a session that it has not made', TIMEOUT, async () => {
  await using gateway = await testCore({ up: { memory: memoryUpstream({}) } });
  const { session } = await gateway.connect();
  const copy = {
    id: session.id,
    ref: session.ref,
    caller: session.caller,
    closed: session.closed,
    setSink: () => undefined,
    removeSink: () => undefined,
  };
  const { gateway: front } = gateway.core;
  const ping = { kind: 'request', id: '1', method: 'ping', params: undefined } as const;
  const sink = { send: () => true };
  await assert.rejects(front.handleRequest(copy, ping, sink), TypeError);
  assert.equal((await front.handleRequest(session, ping, sink))?.kind, 'result');
});

// T-026
test('messages wait for the next answer if a client does not open its stream again', TIMEOUT, async () => {
  await using gateway = await testCore({ up: { memory: memoryUpstream({}) } });
  const client = await gateway.connect({ listens: false });
  const session = Session.from(client.session);
  const stream = client.sink(client.listened);
  session.setSink(stream);
  session.removeSink(stream);
  session.announce(CHANGED, undefined);
  assert.deepEqual(methodsOf((await client.request('ping')).messages), [CHANGED]);
  assert.deepEqual((await client.request('ping')).messages, []);
  session.setSink(stream);
  session.announce(CHANGED, undefined);
  assert.deepEqual((await client.request('ping')).messages, []);
  assert.deepEqual(methodsOf(client.listened), [CHANGED]);
});

// T-026
test('messages wait for a client that has opened no stream yet', TIMEOUT, async () => {
  await using gateway = await testCore({ up: { memory: memoryUpstream({}) } });
  const client = await gateway.connect({ listens: false });
  Session.from(client.session).announce(CHANGED, undefined);
  assert.deepEqual((await client.request('ping')).messages, []);
  client.listen();
  assert.deepEqual(methodsOf(client.listened), [CHANGED]);
});

// N-29
test('a question without room ends at once, and those that wait are answered', TIMEOUT, async () => {
  const memory = memoryUpstream({
    lists: { tools: [{ name: 'echo', inputSchema: { type: 'object' } }] },
    response: (_peer, response) => void answers.push(response),
  });
  const answers: Response[] = [];
  await using gateway = await testCore({ up: { memory } });
  const client = await gateway.connect({ capabilities: { elicitation: {} }, listens: false });
  await client.request('tools/call', toolCall('up__echo'));
  const [peer] = memory.peers.filter(({ received }) => received.some((one) => isCall(one)));
  const params = JSON.stringify({ message: 'x'.repeat(700_000), requestedSchema: { type: 'object', properties: {} } });
  for (const id of [1, 2]) peer?.send(`{"jsonrpc":"2.0","id":${id},"method":"elicitation/create","params":${params}}`);
  const refused = await memory.until(() => answers[0]);
  assert.deepEqual([refused.kind, refused.id], ['error', '2']);
  assert.match(await gateway.metrics.text(), /linkspan_dropped_messages_total\{reason="session-queue"\} 1/);
  client.listen();
  const asked = client.listened.flatMap((one) => (one.kind === 'request' ? [one] : []));
  client.answer(asked[0]?.id ?? '', { action: 'decline' });
  await memory.until(() => answers.find(({ id }) => id === '1'));
});
