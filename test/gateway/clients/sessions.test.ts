import assert from 'node:assert/strict';
import { test } from 'node:test';
import { GatewayError } from '../../../src/errors.ts';
import { testCore } from '../../support/core.ts';
import { JoinedProcesses } from '../../support/joined-processes.ts';
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

test('a session is opened only by the process that owns it', TIMEOUT, async () => {
  const processes = new JoinedProcesses();
  await using gateway = await testCore({ up: { memory: memoryUpstream({}) } }, {}, processes);
  const other = processes.join();
  other.serve(gateway.core.gateway);
  processes.claimant = other.name;
  await assert.rejects(gateway.connect(), /belongs to another process/);
  processes.claimant = new GatewayError('overloaded', { message: 'the store is away' });
  await assert.rejects(gateway.connect(), /the store is away/);
  assert.equal(gateway.core.sessions.size, 0);
  processes.claimant = undefined;
  await gateway.connect();
});
