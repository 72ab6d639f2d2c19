import assert from 'node:assert/strict';
import { cp, mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { test } from 'node:test';
import { GatewayError, toAnswer } from '../../src/errors.ts';
import { accepted, asker } from '../support/asker.ts';
import { type AuditRecord, openTestAudit } from '../support/audit.ts';
import { testCore, type TestCore, toolCall } from '../support/core.ts';
import { JoinedProcesses } from '../support/joined-processes.ts';
import { inputRequiredIn, modernRequest } from '../support/modern-client.ts';

const TIMEOUT = { timeout: 120_000 };
const FORM = { elicitation: { form: {} } };

function call(gateway: TestCore, more: object = {}, tool = 'up__ask') {
  return modernRequest(gateway, 'tools/call', { ...toolCall(tool, { nonce: 'n' }), ...more }, { capabilities: FORM });
}

/** Makes a call that asks. Returns a retry of it that answers. */
async function parkCall(gateway: TestCore) {
  const { requestState, inputRequests } = inputRequiredIn(await call(gateway).reply);
  const inputResponses = Object.fromEntries(Object.keys(inputRequests).map((key) => [key, accepted('Ada')]));
  return { requestState, inputResponses };
}

/** What the records of retries say about the call. */
function retries(records: readonly AuditRecord[]): unknown[][] {
  return records
    .filter(({ isRetry }) => isRetry === true)
    .map(({ upstream, upstreamName, outcome, error, executed }) => [upstream, upstreamName, outcome, error, executed]);
}

/** The labels of calls that metrics count for clients: the tool, and the type of the error. */
async function counted({ metrics }: TestCore): Promise<(string | undefined)[][]> {
  const labels = /^mcp_server_operation_duration_seconds_count\{mcp_method_name="tools\/call",(.*)\} \d+$/gm;
  return [...(await metrics.text()).matchAll(labels)].map(([, labels = '']) => [
    /gen_ai_tool_name="([^"]*)"/.exec(labels)?.[1],
    /error_type="([^"]*)"/.exec(labels)?.[1],
  ]);
}

test('a retry that gets the kept end of its call is recorded with upstream and tool', TIMEOUT, async () => {
  await using audit = await openTestAudit();
  {
    const { memory } = asker();
    await using gateway = await testCore({ up: { memory } }, {}, undefined, audit.trail);
    const retry = await parkCall(gateway);
    for (const _ of [1, 2]) assert.equal((await call(gateway, retry).reply).result?.['resultType'], 'complete');
    const lost = await parkCall(gateway);
    for (const peer of memory.peers) peer.crash();
    await memory.until(() => memory.open.size === 0 || undefined);
    assert.equal(Object((await call(gateway, lost).reply).error?.data).code, 'upstream-lost');
    assert.deepEqual(await counted(gateway), [
      ['up__ask', ''],
      ['up__ask', 'upstream-lost'],
    ]);
  }
  assert.deepEqual(retries(await audit.records()), [
    ['up', 'ask', 'ok', undefined, 'yes'],
    ['up', 'ask', 'ok', undefined, 'yes'],
    ['up', 'ask', 'error', 'upstream-lost', 'unknown'],
  ]);
});

test('a refused retry of a call that runs is not recorded as one that did not run', TIMEOUT, async () => {
  await using audit = await openTestAudit();
  {
    const { memory } = asker();
    await using gateway = await testCore({ up: { memory } }, {}, undefined, audit.trail);
    const retry = await parkCall(gateway);
    const inputResponses = Object.fromEntries(Object.keys(retry.inputResponses).map((key) => [key, { action: 7 }]));
    await call(gateway, { ...retry, inputResponses }).reply;
    await call(gateway, { ...retry, requestState: `${retry.requestState}x` }).reply;
    await call(gateway, retry, 'up__none').reply;
  }
  assert.deepEqual(retries(await audit.records()), [
    ['up', 'ask', 'error', 'invalid-params', 'unknown'],
    ['up', 'ask', 'error', 'invalid-state', 'unknown'],
    [undefined, undefined, 'error', 'unknown-tool', 'unknown'],
  ]);
});

test('a call whose process is lost is recorded with upstream and tool', TIMEOUT, async () => {
  const processes = new JoinedProcesses();
  await using audit = await openTestAudit();
  const stateDir = await mkdtemp(join(tmpdir(), 'linkspan-replica-'));
  {
    const { memory } = asker();
    await using first = await testCore({ up: { memory } }, {}, processes);
    await cp(join(first.config.stateDir, 'keys.json'), join(stateDir, 'keys.json'));
    await using second = await testCore({ up: { memory } }, { stateDir }, processes, audit.trail);
    await parkCall(first);
    // The other process has the connection, and ends without an answer.
    processes.loss = toAnswer(new GatewayError('outcome-unknown'));
    assert.equal(Object((await call(second).reply).error?.data).code, 'outcome-unknown');
    assert.deepEqual(await counted(second), [['up__ask', 'outcome-unknown']]);
  }
  await rm(stateDir, { recursive: true });
  const calls = (await audit.records()).filter(({ method }) => method === 'tools/call');
  assert.deepEqual(
    calls.map(({ upstream, upstreamName, error, executed }) => [upstream, upstreamName, error, executed]),
    [['up', 'ask', 'outcome-unknown', 'unknown']],
  );
});
