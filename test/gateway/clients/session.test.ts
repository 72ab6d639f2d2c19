import assert from 'node:assert/strict';
import { test } from 'node:test';
import { testCore } from '../../support/core.ts';
import { memoryUpstream } from '../../support/memory-upstream.ts';

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
