import assert from 'node:assert/strict';
import { hash } from 'node:crypto';
import { join } from 'node:path';
import { test } from 'node:test';
import { initialize, messagesOf, post, rpc, send } from '../downstream/client.ts';
import { type RunningGateway, startGateway } from '../support/gateway.ts';
import { isGone } from '../support/stdio.ts';
import { waitUntil } from '../support/wait-until.ts';
import { metricOf, workersOf } from '../support/workers.ts';

const OPTIONS = { timeout: 180_000 };
const STOP_MS = 70_000;
const PID = { command: process.execPath, args: [join(import.meta.dirname, '../fixtures/servers/pid-stdio.ts')] };
const OPERATOR = 'a-key-of-op-0123456789abcdef';
const asOperator = { authorization: `Bearer ${OPERATOR}`, 'content-type': 'application/json' };

const fileWith = (mcpServers: Record<string, typeof PID>) => ({
  mcpServers,
  gateway: { workers: 2, operatorKeys: [{ name: 'op', sha256: hash('sha256', OPERATOR) }] },
});

async function ready({ operatorUrl }: RunningGateway) {
  const answer = await fetch(`${operatorUrl}/readyz`);
  return { status: answer.status, text: await answer.text() };
}

async function toolsOf(gateway: RunningGateway, session: string): Promise<string> {
  return JSON.stringify(messagesOf(await post(gateway.endpoint(), rpc(1, 'tools/list'), session)));
}

test('a worker that hangs is named and replaced, and a reload goes on without it', OPTIONS, async () => {
  await using gateway = await startGateway(fileWith({ pid: PID }));
  const sessions = await Promise.all(Array.from({ length: 8 }, () => initialize(gateway.endpoint())));
  const [hung = 0, other] = await workersOf(gateway);
  process.kill(hung, 'SIGSTOP');
  const during = await ready(gateway);
  assert.equal(during.status, 200);
  assert.match(during.text, /1 of 2 workers does not answer/);
  await gateway.configure(fileWith({ pid: PID, second: PID }));
  const reloading = send(`${gateway.operatorUrl}/admin/v1/config/reload`, { method: 'POST', headers: asOperator });
  assert.match((await reloading).text, /"applied"/);
  assert.ok(isGone(hung));
  await waitUntil(async () => (await ready(gateway)).text.includes('"reasons":[]'));
  const workers = await workersOf(gateway);
  assert.deepEqual([workers.length, workers.includes(other ?? 0), workers.includes(hung)], [2, true, false]);
  assert.equal(await metricOf(gateway, /^linkspan_lost_workers_total\{reason="silent"\} /), 1);
  for (const session of sessions) assert.match(await toolsOf(gateway, session), /"second__pid"/);
});

// R10
test('a worker that hangs does not keep a stopping gateway', OPTIONS, async () => {
  await using gateway = await startGateway(fileWith({ pid: PID }));
  const workers = await workersOf(gateway);
  process.kill(workers[0] ?? 0, 'SIGSTOP');
  // Rejects if the gateway does not end in this time.
  await gateway.stop(STOP_MS);
  assert.deepEqual(await gateway.ended, { code: 0, signal: null });
  for (const worker of workers) assert.ok(isGone(worker));
});
