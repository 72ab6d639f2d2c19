import assert from 'node:assert/strict';
import { test } from 'node:test';
import { MAX_HOPS, SESSION_ENDED } from '../../../src/gateway/exchange/owners.ts';
import type { Owner } from '../../../src/gateway/front/front.ts';
import { RawObject } from '../../../src/json/json.ts';
import type { Message } from '../../../src/protocol/jsonrpc.ts';
import { testCore, toolCall } from '../../support/core.ts';
import { JoinedProcesses } from '../../support/joined-processes.ts';
import { memoryUpstream, result } from '../../support/memory-upstream.ts';
import { waitUntil } from '../../support/wait-until.ts';

const TIMEOUT = { timeout: 120_000 };

// R10
test('a session that comes back finds its requests in the process that gave it away', TIMEOUT, async () => {
  const memory = memoryUpstream({
    lists: { tools: [{ name: 'act', inputSchema: { type: 'object' } }] },
    request: (peer, { method, id }) => {
      if (method !== 'tools/call') return;
      const params = { message: 'Sure?', requestedSchema: { type: 'object', properties: {} } };
      peer.send(JSON.stringify({ jsonrpc: '2.0', id: `q${id}`, method: 'elicitation/create', params }));
    },
    response: (peer, { id }) => {
      const called = memory.requests('tools/call').find((one) => `"q${one.id}"` === id);
      if (called !== undefined) peer.send(result(called, { content: [] }));
    },
  });
  await using gateway = await testCore({ up: { memory } }, {}, new JoinedProcesses());
  const { gateway: front, sessions } = gateway.core;
  const client = await gateway.connect({ capabilities: { elicitation: {} } });
  const { id, caller } = client.session;
  const questions: Message[] = [];
  const onMessage = (message: Message) => void questions.push(message);
  const comeBack = async () => {
    gateway.core.handOver();
    assert.equal((await front.ownerOfSession(id, caller.principal, caller.view)).kind, 'here');
    const session = await front.findSession(id, caller.principal, caller.view);
    assert.ok(session !== undefined && session !== client.session);
    return session;
  };
  const call = (one: string) => client.send('tools/call', toolCall('up__act'), { id: one, onMessage });
  const [answered, cancelled, ended] = [call('7'), call('8'), call('9')];
  await waitUntil(() => questions.length === 3);
  await comeBack();
  const session = await comeBack();
  const [question] = questions;
  assert.ok(question?.kind === 'request');
  front.handleResponse(session, { kind: 'result', id: question.id, result: '{"action":"decline"}' });
  assert.equal((await answered).answer?.kind, 'result');
  const params = RawObject.of({ requestId: 8 });
  front.handleNotification(session, { kind: 'notification', method: 'notifications/cancelled', params });
  assert.equal((await cancelled).answer, undefined);
  await front.endSession(session);
  const { answer } = await ended;
  assert.ok(answer?.kind === 'error');
  assert.partialDeepStrictEqual(answer.error.data, { code: 'cancelled' });
  assert.deepEqual(
    [...sessions.all()].filter(({ inFlight }) => inFlight.size > 0),
    [],
  );
});

// R10
test('a session that comes back finds its requests in the process before, too', TIMEOUT, async () => {
  const processes = new JoinedProcesses();
  const join = processes.join.bind(processes);
  const passed: string[] = [];
  const before: Owner = {
    forward: () => Promise.reject(new Error('this process has no HTTP')),
    handleModernRequest: () => assert.fail('a modern request'),
    handleMessage: async (_session, message) => {
      passed.push(message.kind === 'notification' ? message.method : message.id);
    },
  };
  const formers = [before];
  // A process that has given a session away with requests in flight is its former process itself.
  processes.join = () => ({ ...join(), formerOf: () => formers.pop() });
  await using gateway = await testCore({ up: {} }, {}, processes);
  const { gateway: front } = gateway.core;
  const { id, caller } = (await gateway.connect()).session;
  const comeBack = async () => {
    gateway.core.handOver();
    assert.equal((await front.ownerOfSession(id, caller.principal, caller.view)).kind, 'here');
    const session = await front.findSession(id, caller.principal, caller.view);
    assert.ok(session !== undefined);
    return session;
  };
  await comeBack();
  const session = await comeBack();
  front.handleResponse(session, { kind: 'result', id: 'asked before', result: '{}' });
  await front.endSession(session);
  assert.deepEqual(passed, ['asked before', SESSION_ENDED.method]);
});

// R10
test('two processes that had a session in turn pass a late message on for a while', TIMEOUT, async () => {
  const processes = new JoinedProcesses();
  const join = processes.join.bind(processes);
  let passes = 0;
  processes.join = () => ({
    ...join(),
    // The same process stands for both, since only it can open the id.
    formerOf: () => ({
      forward: () => Promise.reject(new Error('this process has no HTTP')),
      handleModernRequest: () => assert.fail('a modern request'),
      handleMessage: async ({ id, caller: { principal, view } }, message, hops) => {
        passes++;
        await gateway.core.gateway.handleLateMessage(id, principal, view, message, hops);
      },
    }),
  });
  await using gateway = await testCore({ up: {} }, {}, processes);
  const { id, caller } = (await gateway.connect()).session;
  const { principal, view } = caller;
  gateway.core.handOver();
  assert.equal((await gateway.core.gateway.ownerOfSession(id, principal, view)).kind, 'here');
  assert.ok((await gateway.core.gateway.findSession(id, principal, view)) !== undefined);
  gateway.core.handOver();
  await gateway.core.gateway.handleLateMessage(id, principal, view, { kind: 'result', id: 'none', result: '{}' });
  assert.equal(passes, MAX_HOPS);
});
