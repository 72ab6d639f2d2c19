import assert from 'node:assert/strict';
import { test } from 'node:test';
import {
  callsAnswerOf,
  type ClientSource,
  MAX_ITEMS,
  sessionsAnswerOf,
  streamsAnswerOf,
} from '../../../src/compose/admin/admin-clients.ts';
import { asker } from '../../support/asker.ts';
import { testCore, toolCall } from '../../support/core.ts';
import { memoryUpstream } from '../../support/memory-upstream.ts';
import { modernRequest } from '../../support/modern-client.ts';
import { coreTaskUpstream } from '../../support/task-upstreams.ts';
import { waitUntil } from '../../support/wait-until.ts';

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

test('calls that have an answer are not in flight, unless they are parked', TIMEOUT, async () => {
  const tasks = coreTaskUpstream();
  const asking = asker({ script: { request: () => undefined } });
  await using gateway = await testCore({ up: { memory: asking.memory }, jobs: { memory: tasks.memory } });
  const capabilities = { elicitation: { form: {} }, extensions: { 'io.modelcontextprotocol/tasks': {} } };
  const call = (tool: string) => modernRequest(gateway, 'tools/call', toolCall(tool, { nonce: 'n' }), { capabilities });
  assert.equal((await call('jobs__job').reply).result?.['resultType'], 'task');
  assert.equal((await call('up__ask').reply).result?.['resultType'], 'input_required');
  const shown = () => {
    const { sessions } = sessionsAnswerOf(gateway.core, performance.now());
    const { calls } = callsAnswerOf(gateway.core, performance.now());
    const inFlight = sessions.reduce((sum, { requestsInFlight }) => sum + requestsInFlight, 0);
    return { calls: calls.map(({ state, tool }) => [state, tool]), inFlight };
  };
  assert.deepEqual(shown(), { calls: [['parked', 'up__ask']], inFlight: 0 });
  const held = call('up__other');
  await waitUntil(() => shown().calls.length === 2);
  assert.equal(shown().inFlight, 1);
  held.call.cancel('enough');
  await held.reply;
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
