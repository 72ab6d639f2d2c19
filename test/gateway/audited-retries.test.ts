import assert from 'node:assert/strict';
import { cp, mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { test } from 'node:test';
import { GatewayError, toAnswer } from '../../src/errors.ts';
import { RPC } from '../../src/protocol/rpc-codes.ts';
import { accepted, asker } from '../support/asker.ts';
import { type AuditRecord, openTestAudit } from '../support/audit.ts';
import { testCore, type TestCore, toolCall } from '../support/core.ts';
import { JoinedProcesses } from '../support/joined-processes.ts';
import { memoryUpstream, type MemoryUpstream, result } from '../support/memory-upstream.ts';
import { inputRequiredIn, modernRequest } from '../support/modern-client.ts';
import { extensionUpstream } from '../support/task-upstreams.ts';

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

const QUESTION = { name: { method: 'elicitation/create', params: { message: 'Who?', requestedSchema: {} } } };

/** A tool of 2026-07-28 that asks its client. */
function asking(): MemoryUpstream {
  const discovered = { resultType: 'complete', supportedVersions: ['2026-07-28'], capabilities: { tools: {} } };
  return memoryUpstream({
    isRaw: true,
    lists: { tools: [{ name: 'ask', inputSchema: { type: 'object' } }] },
    request: (peer, request) => {
      const asks = { resultType: 'input_required', inputRequests: QUESTION };
      peer.send(result(request, request.method === 'tools/call' ? asks : discovered));
    },
  });
}

test('a question that reaches no client counts as that, not as a failed tool', TIMEOUT, async () => {
  await using audit = await openTestAudit();
  {
    const tasks = extensionUpstream((task) => {
      task.status = 'input_required';
      task.inputRequests = QUESTION;
    });
    const upstreams = {
      up: { memory: asking(), era: 'modern' },
      jobs: { memory: tasks.memory, era: 'modern' },
    } as const;
    await using gateway = await testCore(upstreams, {}, undefined, audit.trail);
    const client = await gateway.connect();
    for (const tool of ['up__ask', 'jobs__job']) {
      assert.equal((await client.result('tools/call', toolCall(tool)))['isError'], true);
    }
    assert.deepEqual(await counted(gateway), [
      ['up__ask', 'client-unreachable'],
      ['jobs__job', 'client-unreachable'],
    ]);
  }
  const calls = (await audit.records()).filter(({ method }) => method === 'tools/call');
  const expected = ['error', 'client-unreachable', 'unknown'];
  assert.deepEqual(
    calls.map(({ outcome, error, executed }) => [outcome, error, executed]),
    [expected, expected],
  );
});

test('a call whose page was not opened is recorded as held back by the gateway', TIMEOUT, async () => {
  await using audit = await openTestAudit();
  {
    const page = { mode: 'url', elicitationId: '1', url: 'https://up.test/pay', message: 'Pay' };
    const error = { code: RPC.urlElicitationRequired, message: 'pay', data: { elicitations: [page] } };
    const memory = memoryUpstream({
      lists: { tools: [{ name: 'ask', inputSchema: { type: 'object' } }] },
      request: (peer, { id }) => peer.send(JSON.stringify({ jsonrpc: '2.0', id: JSON.parse(id), error })),
    });
    await using gateway = await testCore({ up: { memory } }, {}, undefined, audit.trail);
    const options = { capabilities: { elicitation: { form: {}, url: {} } } };
    const ask = (more: object) => modernRequest(gateway, 'tools/call', { ...toolCall('up__ask'), ...more }, options);
    const { requestState } = inputRequiredIn(await ask({}).reply);
    await ask({ requestState, inputResponses: { url1: { action: 'decline' } } }).reply;
  }
  assert.deepEqual(retries(await audit.records()), [['up', 'ask', 'error', 'client-unreachable', 'no']]);
});
