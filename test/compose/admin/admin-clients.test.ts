import assert from 'node:assert/strict';
import { test } from 'node:test';
import {
  type ClientSource,
  MAX_ITEMS,
  sessionsAnswerOf,
  streamsAnswerOf,
} from '../../../src/compose/admin/admin-clients.ts';
import { testCore } from '../../support/core.ts';
import { memoryUpstream } from '../../support/memory-upstream.ts';

const TIMEOUT = { timeout: 120_000 };

test('sessions show client, streams and idle time, but not their id', TIMEOUT, async () => {
  await using gateway = await testCore({ up: { memory: memoryUpstream({ lists: {} }) } });
  const client = await gateway.connect({ listens: true });
  const { sessions } = sessionsAnswerOf(gateway.core, performance.now());
  const [only] = sessions;
  assert.equal(sessions.length, 1);
  assert.deepEqual([only?.client, only?.streams, only?.principal], ['test 1', 1, 'local']);
  assert.ok(!JSON.stringify(sessions).includes(client.session.id));
  assert.equal(streamsAnswerOf(gateway.core).streams[0]?.session, only?.id);
});

test('a list that is too long for one answer is cut, and says so', TIMEOUT, async () => {
  await using gateway = await testCore({ up: { memory: memoryUpstream({ lists: {} }) } });
  await gateway.connect();
  const [one] = gateway.core.sessions;
  assert.ok(one !== undefined);
  const many = { [Symbol.iterator]: () => Array.from({ length: MAX_ITEMS + 1 }, () => one).values() };
  const { groups, seenClients, parked } = gateway.core;
  const source: ClientSource = { sessions: many, groups, seenClients, parked };
  const { sessions, isCut } = sessionsAnswerOf(source, performance.now());
  assert.deepEqual([sessions.length, isCut], [MAX_ITEMS, true]);
});
