import assert from 'node:assert/strict';
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, test } from 'node:test';
import { connect, type EitherClient, SDKS, textOf } from '../support/either-sdk.ts';
import { type RunningGateway, startGateway } from '../support/gateway.ts';
import { hostileStdio, Ledgers } from '../support/hostile.ts';
import { until } from '../support/stdio.ts';

const TIMEOUT = { timeout: 120_000 };
/** Longer than a test may take, so that no call fails before the end of its server. */
const NEVER = '5m';

let dir = '';
let ledgers: Ledgers;
let gateway: RunningGateway;

before(async () => {
  dir = await mkdtemp(join(tmpdir(), 'linkspan-kill-'));
  ledgers = new Ledgers(dir);
  const patient = { start: NEVER, call: NEVER };
  gateway = await startGateway({
    mcpServers: {
      hang: hostileStdio('hang', ledgers, patient),
      shared: { ...hostileStdio('hang', new Ledgers(join(dir)), patient), isolation: 'shared' },
      calm: hostileStdio('calm', ledgers, patient),
    },
  });
});

after(async () => {
  await gateway.stop();
  await rm(dir, { recursive: true, force: true });
});

/** Sends a call that gets no answer, and waits until a server has received it. */
async function hangingCall(client: EitherClient, tool: string, signal?: AbortSignal) {
  const before = ledgers.count('hang', 'call bad');
  const call = client.call(tool, {}, signal === undefined ? {} : { signal });
  call.catch(() => undefined);
  await until(() => ledgers.count('hang', 'call bad') > before, 'a server has the call');
  const pid = ledgers.of('hang').findLast(({ what }) => what === 'call bad')?.pid ?? 0;
  return { call, pid };
}

async function failureOf(call: Promise<unknown>): Promise<object> {
  try {
    await call;
  } catch (thrown) {
    assert.ok(thrown instanceof Error && 'code' in thrown && 'data' in thrown, String(thrown));
    const { code, data, message } = thrown;
    return { code, data, message: message.replace(/^MCP error -\d+: /, '') };
  }
  return assert.fail('the call went well');
}

function lost(upstream: string): object {
  return {
    code: -31_010,
    data: { code: 'upstream-lost', upstream, executed: 'unknown', retryable: false },
    message: `Upstream connection lost: the process of upstream "${upstream}" was killed by SIGKILL`,
  };
}

for (const sdk of SDKS) {
  // R1 REL-09
  test(`${sdk}: a server killed during a call fails that call, and the next one works`, TIMEOUT, async () => {
    await using client = await connect(sdk, gateway.endpoint());
    await using bystander = await connect(sdk, gateway.endpoint());
    assert.equal(textOf(await bystander.call('hang__fine')), 'fine');
    for (let round = 1; round <= 3; round++) {
      const { call, pid } = await hangingCall(client, 'hang__bad');
      const calls = ledgers.count('hang', 'call bad');
      const started = ledgers.count('hang', 'start');
      process.kill(pid, 'SIGKILL');
      assert.deepEqual(await failureOf(call), lost('hang'));
      assert.equal(textOf(await client.call('hang__fine')), 'fine');
      assert.equal(ledgers.count('hang', 'start'), started + 1, 'the next call starts the server again');
      assert.equal(ledgers.count('hang', 'call bad'), calls, 'a call is dispatched at most once');
    }
    // Another client has another process of the same server.
    const starts = ledgers.count('hang', 'start');
    assert.equal(textOf(await bystander.call('hang__fine')), 'fine');
    assert.equal(textOf(await bystander.call('calm__fine')), 'fine');
    assert.equal(ledgers.count('hang', 'start'), starts);
  });
}

// R1
test('a killed shared server fails the calls of its clients, then serves them again', TIMEOUT, async () => {
  const clients = await Promise.all(SDKS.map((sdk) => connect(sdk, gateway.endpoint())));
  try {
    const hanging = [];
    for (const client of clients) hanging.push(await hangingCall(client, 'shared__bad'));
    const pids = new Set(hanging.map(({ pid }) => pid));
    assert.equal(pids.size, 1);
    for (const pid of pids) process.kill(pid, 'SIGKILL');
    for (const { call } of hanging) assert.deepEqual(await failureOf(call), lost('shared'));
    for (const client of clients) assert.equal(textOf(await client.call('shared__fine')), 'fine');
  } finally {
    await Promise.all(clients.map((client) => client[Symbol.asyncDispose]()));
  }
});

// R7
test('a suspended server answers when it continues, and delays no other server', TIMEOUT, async () => {
  await using client = await connect('SDK v1', gateway.endpoint());
  const { pid } = await hangingCall(client, 'hang__bad');
  process.kill(pid, 'SIGSTOP');
  try {
    const late = client.call('hang__fine');
    for (let n = 0; n < 20; n++) assert.equal(textOf(await client.call('calm__fine')), 'fine');
    process.kill(pid, 'SIGCONT');
    assert.equal(textOf(await late), 'fine');
  } finally {
    process.kill(pid, 'SIGCONT');
  }
});

// X-037 REL-06
test('a cancelled call ends at once, and is cancelled at the server', TIMEOUT, async () => {
  for (const sdk of SDKS) {
    await using client = await connect(sdk, gateway.endpoint());
    const cancelled = ledgers.count('hang', 'cancelled');
    const abort = new AbortController();
    const { call, pid } = await hangingCall(client, 'hang__bad', abort.signal);
    abort.abort(new Error('enough'));
    await assert.rejects(call, /enough/);
    await until(() => ledgers.count('hang', 'cancelled') > cancelled, 'the call is cancelled at the server');
    assert.equal(ledgers.of('hang').findLast(({ what }) => what === 'cancelled')?.pid, pid);
    assert.equal(textOf(await client.call('hang__fine')), 'fine');
  }
});

// R8 REL-05
test('a disconnect of a legacy client cancels nothing', TIMEOUT, async () => {
  const cancelled = ledgers.count('hang', 'cancelled');
  const client = await connect('SDK v1', gateway.endpoint());
  const leaving = new AbortController();
  const headers = { 'content-type': 'application/json', accept: 'application/json, text/event-stream' };
  const call = { jsonrpc: '2.0', id: 'r', method: 'tools/call', params: { name: 'hang__bad', arguments: {} } };
  const before = ledgers.count('hang', 'call bad');
  const request = fetch(gateway.endpoint(), {
    method: 'POST',
    headers: { ...headers, 'mcp-session-id': client.sessionId },
    body: JSON.stringify(call),
    signal: leaving.signal,
  });
  request.catch(() => undefined);
  await until(() => ledgers.count('hang', 'call bad') > before, 'the server has the call');
  leaving.abort();
  assert.equal(textOf(await client.call('hang__fine')), 'fine');
  assert.equal(ledgers.count('hang', 'cancelled'), cancelled);
  // The end of the session cancels the call.
  await client[Symbol.asyncDispose]();
});
