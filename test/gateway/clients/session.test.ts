import assert from 'node:assert/strict';
import { test } from 'node:test';
import { Session } from '../../../src/gateway/clients/session.ts';
import { testCore } from '../../support/core.ts';
import { memoryUpstream } from '../../support/memory-upstream.ts';

const CHANGED = 'notifications/tools/list_changed';
const methodsOf = (messages: readonly object[]) => messages.map((one) => ('method' in one ? one.method : undefined));

test('a front refuses a session that it has not made', { timeout: 120_000 }, async () => {
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
test('messages wait for the next answer if a client does not open its stream again', { timeout: 120_000 }, async () => {
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
test('messages wait for a client that has opened no stream yet', { timeout: 120_000 }, async () => {
  await using gateway = await testCore({ up: { memory: memoryUpstream({}) } });
  const client = await gateway.connect({ listens: false });
  Session.from(client.session).announce(CHANGED, undefined);
  assert.deepEqual((await client.request('ping')).messages, []);
  client.listen();
  assert.deepEqual(methodsOf(client.listened), [CHANGED]);
});
