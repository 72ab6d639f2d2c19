import assert from 'node:assert/strict';
import { test } from 'node:test';
import { testCore } from '../../support/core.ts';
import { memoryUpstream } from '../../support/memory-upstream.ts';

const TIMEOUT = { timeout: 20_000 };

test('only the whole id of a session in memory is known without asking for its owner', TIMEOUT, async () => {
  await using gateway = await testCore({ up: { memory: memoryUpstream({}) } });
  const { session } = await gateway.connect();
  const { id } = session;
  const tag = id.slice(id.lastIndexOf('.'));
  const known = () => [id, `other${tag}`, tag, ''].map((one) => gateway.core.gateway.hasSession(one));
  assert.deepEqual(known(), [true, false, false, false]);
  await gateway.core.gateway.endSession(session);
  assert.deepEqual(known(), [false, false, false, false]);
});
