/** Tests what the workers of a gateway have together: certificate, API keys, rates and counts, tasks, streams and operators. */
import assert from 'node:assert/strict';
import { once } from 'node:events';
import { copyFile, mkdtemp, rm } from 'node:fs/promises';
import { request as httpRequest } from 'node:http';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { text as readText } from 'node:stream/consumers';
import { test } from 'node:test';
import { setTimeout as sleep } from 'node:timers/promises';
import { connect } from 'node:tls';
import { z } from 'zod';
import { BOTH, getEvents, initialize, post, postForEvents, responseTo, rpc } from '../downstream/client.ts';
import { makeCertificate } from '../support/certificate.ts';
import { runCli } from '../support/cli.ts';
import { type RunningGateway, startGateway } from '../support/gateway.ts';
import { legacyUpstream, modernUpstream } from '../support/http-upstream.ts';
import { answerOf, modernEvents, modernPost, modernResult } from '../support/modern-wire.ts';
import { act, HELD, startRemote } from '../support/nonce-remote.ts';
import { waitUntil } from '../support/wait-until.ts';
import { askEachWorker, metricOf, workersOf } from '../support/workers.ts';

const OPTIONS = { timeout: 180_000 };
const PID = { command: process.execPath, args: [join(import.meta.dirname, '../fixtures/servers/pid-stdio.ts')] };
const CLI_MS = 60_000;
const STOP_MS = 60_000;
/** With so many connections, both workers have accepted some. */
const MANY = 24;

const start = (mcpServers: Record<string, Record<string, unknown>>, own: object = {}) =>
  startGateway({ mcpServers, gateway: { workers: 2, ...own } });

/** Sends a request of a session to each worker, so that it crosses workers. */
async function askBoth(gateway: RunningGateway, session: string): Promise<void> {
  const answers = await askEachWorker(gateway, () => post(gateway.endpoint(), rpc(1, 'ping'), session));
  for (const { status } of answers) assert.equal(status, 200);
}

/** Returns the serial numbers of the certificates that a gateway presents to new connections. */
async function serialsOf({ url }: RunningGateway): Promise<ReadonlySet<string>> {
  const serials = await Promise.all(
    Array.from({ length: MANY }, async () => {
      const socket = connect({ host: '127.0.0.1', port: Number(new URL(url).port), rejectUnauthorized: false });
      await once(socket, 'secureConnect');
      const { serialNumber } = socket.getPeerCertificate();
      socket.destroy();
      return serialNumber;
    }),
  );
  return new Set(serials);
}

test('both workers speak HTTPS, and both use a renewed certificate', OPTIONS, async () => {
  await using first = await makeCertificate('first');
  await using second = await makeCertificate('second');
  const tls = { cert: `\${file:${first.certFile}}`, key: `\${file:${first.keyFile}}` };
  await using gateway = await start({ pid: PID }, { tls });
  assert.match(gateway.url, /^https:/);
  const [before] = await serialsOf(gateway);
  await copyFile(second.certFile, first.certFile);
  await copyFile(second.keyFile, first.keyFile);
  await waitUntil(async () => {
    const serials = await serialsOf(gateway);
    return serials.size === 1 && !serials.has(before ?? '');
  });
});

test('a key that is made while workers run works at both, and its end holds at both', OPTIONS, async () => {
  const dir = await mkdtemp(join(tmpdir(), 'linkspan-workers-keys-'));
  try {
    const file = join(dir, 'keys.json');
    const keyCommand = async (...args: readonly string[]) => {
      const { code, stdout, stderr } = await runCli(['key', ...args, '--file', file], dir, process.env, CLI_MS);
      assert.equal(code, 0, stderr);
      return { authorization: `Bearer ${stdout.trim()}` };
    };
    const ann = await keyCommand('create', 'ann');
    await using gateway = await start({ pid: PID }, { auth: { keyFile: file } });
    const url = gateway.endpoint();
    const bob = await keyCommand('create', 'bob');
    const statuses = async (headers: Record<string, string>) => {
      const got = await Promise.all(Array.from({ length: MANY }, () => modernPost(url, 'tools/list', {}, { headers })));
      return new Set(got.map(({ status }) => status));
    };
    const all = async (headers: Record<string, string>, status: number) => {
      const seen = await statuses(headers);
      return seen.size === 1 && seen.has(status);
    };
    await waitUntil(() => all(bob, 200));
    const sessions = await Promise.all(Array.from({ length: 6 }, () => initialize(url, undefined, ann)));
    const streams = await Promise.all(sessions.map((session) => getEvents(url, session, ann)));
    await keyCommand('revoke', 'ann');
    await Promise.all(streams.map((stream) => stream.ended()));
    await waitUntil(() => all(ann, 401));
    for (const session of sessions) {
      const stolen = await post(url, rpc(1, 'ping'), session, bob);
      assert.equal(stolen.status, 404);
    }
    assert.ok(await all(bob, 200));
  } finally {
    await rm(dir, { recursive: true, force: true });
  }
});

test('workers keep a rate together over both of them', OPTIONS, async () => {
  await using remote = await startRemote();
  const rates = [{ name: 'few', to: { anyone: true }, limit: 20, window: '1h' }];
  await using gateway = await start({ nonce: { url: `${remote.url}/mcp` } }, { rates });
  const { _meta, ...params } = act('nonce:1:1;', []);
  const call = async () => answerOf(await modernPost(gateway.endpoint(), 'tools/call', params));
  const answers = await Promise.all(Array.from({ length: 60 }, call));
  assert.equal(answers.filter(({ result }) => result !== undefined).length, 20);
  assert.equal(answers.filter(({ error }) => JSON.stringify(error ?? null).includes('"rate-limited"')).length, 40);
});

test('workers count the requests of a principal in flight together', OPTIONS, async () => {
  await using remote = await startRemote();
  await using gateway = await start({ nonce: { url: `${remote.url}/mcp` } }, { limits: { inFlightPerPrincipal: 4 } });
  const settled: unknown[] = [];
  const calls = Array.from({ length: 16 }, async (_, n) => {
    const { _meta, ...params } = act(`nonce:${n}:1;`, [], HELD);
    const answer = answerOf(await modernPost(gateway.endpoint(), 'tools/call', params));
    settled.push(answer);
    return answer;
  });
  // Each call is refused, or held at the upstream.
  const held = async () => Object.keys(await remote.ledger()).length;
  await waitUntil(async () => settled.length + (await held()) === calls.length);
  await remote.continue();
  const answers = await Promise.all(calls);
  const served = answers.filter(({ result }) => result !== undefined).length;
  assert.ok(served >= 2 && served <= 4, `${served} at once`);
  assert.equal(
    answers.filter(({ error }) => JSON.stringify(error ?? null).includes('"overloaded"')).length,
    16 - served,
  );
});

test('a task is found at both workers, and ends for both', OPTIONS, async () => {
  const tasks = 'io.modelcontextprotocol/tasks';
  const times = { createdAt: '2026-01-01T00:00:00Z', lastUpdatedAt: '2026-01-01T00:00:00Z', ttlMs: 600_000 };
  let status = 'working';
  const result = { content: [{ type: 'text', text: 'done' }] };
  await using up = await modernUpstream({
    capabilities: { tools: {}, extensions: { [tasks]: {} } },
    tools: [{ name: 'job', inputSchema: { type: 'object' }, execution: { taskSupport: 'required' } }],
    answers: {
      'tools/call': () => ({ resultType: 'task', taskId: 't-1', status, ...times }),
      'tasks/get': () => ({
        resultType: 'complete',
        taskId: 't-1',
        status,
        ...times,
        ...(status === 'completed' ? { result } : {}),
      }),
    },
  });
  await using gateway = await start({ up: { url: up.url, era: 'modern' } });
  const url = gateway.endpoint();
  const knowing = { capabilities: { extensions: { [tasks]: {} } } };
  const { taskId } = await modernResult(url, 'tools/call', { name: 'up__job', arguments: {} }, knowing);
  const states = () =>
    Promise.all(Array.from({ length: MANY }, () => modernResult(url, 'tasks/get', { taskId }, knowing)));
  for (const state of await states()) assert.equal(state['status'], 'working');
  status = 'completed';
  for (const state of await states()) assert.match(JSON.stringify(state), /"done"/);
  const others = await modernPost(url, 'tasks/get', { taskId: 'x' }, knowing);
  assert.ok(answerOf(others).error !== undefined);
});

test('SIGTERM finishes calls, and ends the streams of both workers', OPTIONS, async () => {
  await using remote = await startRemote();
  const gateway = await start({ nonce: { url: `${remote.url}/mcp` } });
  const url = gateway.endpoint();
  const sessions = await Promise.all(Array.from({ length: 8 }, () => initialize(url)));
  await askBoth(gateway, sessions[0] ?? '');
  const streams = await Promise.all(sessions.map((session) => getEvents(url, session)));
  const listens = await Promise.all(
    Array.from({ length: 8 }, () =>
      modernEvents(url, 'subscriptions/listen', { notifications: { toolsListChanged: true } }),
    ),
  );
  for (const listen of listens) await listen.until(({ seen }) => seen.length > 0);
  const calls = await Promise.all(
    sessions.map((session, n) => {
      const steps = act(`nonce:${n}:1;`, ['progress'], { pauseMs: 3_000 });
      return postForEvents(url, rpc(n, 'tools/call', steps), session);
    }),
  );
  await waitUntil(async () => ((await metricOf(gateway, /^linkspan_requests_in_flight /)) ?? 0) >= 8);
  const stopped = gateway.stop(STOP_MS);
  for (const [n, call] of calls.entries()) {
    await call.until(({ messages }) => messages.some(({ id, result }) => id === n && result !== undefined));
  }
  await Promise.all([...streams, ...listens, ...calls].map((stream) => stream.ended()));
  for (const listen of listens) {
    assert.ok(
      listen.messages.some(({ result }) => result !== undefined),
      'it ends with its result',
    );
  }
  await stopped;
});

// R10
test('a client that reads slowly gets its whole answer from workers that stop', OPTIONS, async () => {
  const text = 'x'.repeat(8 * 1_048_576);
  const tools = [{ name: 'large', inputSchema: { type: 'object' } }];
  const content = [{ type: 'text', text }];
  await using up = await legacyUpstream({ tools, answers: { 'tools/call': () => ({ content }) } });
  await using gateway = await start({ up: { url: up.url } });
  const session = await initialize(gateway.endpoint());
  let n = 0;
  const headers = { 'content-type': 'application/json', accept: BOTH, 'mcp-session-id': session };
  // One answer is from the worker that has the session, and the other one crosses workers.
  const responses = await askEachWorker(gateway, async () => {
    const request = httpRequest(gateway.endpoint(), { method: 'POST', headers, agent: false });
    request.end(rpc(++n, 'tools/call', { name: 'up__large', arguments: {} }));
    return await responseTo(request);
  });
  gateway.kill('SIGTERM');
  // Longer than workers without requests in flight take to end.
  await sleep(5_000); // subject
  for (const response of responses) {
    assert.equal(response.statusCode, 200);
    const read = await readText(response);
    assert.ok(read.includes(`"${text}"`) && read.trimEnd().endsWith('}'), `${read.length} characters`);
  }
  await gateway.ended;
});

test('what operators have changed holds at a worker that is started later', OPTIONS, async () => {
  await using gateway = await start({ pid: PID, other: PID });
  const operate = async (...args: readonly string[]) => {
    const state = join(gateway.dir, 'state');
    const { code, stderr } = await runCli([...args, '--state-dir', state], gateway.dir, process.env, CLI_MS);
    assert.deepEqual([code, stderr], [0, '']);
  };
  const answers = async () => {
    const params = { name: 'pid__pid', arguments: {} };
    const got = await Promise.all(
      Array.from({ length: MANY }, () => modernPost(gateway.endpoint(), 'tools/call', params)),
    );
    return got.map((each) =>
      JSON.stringify(answerOf(each)).includes('an operator has disabled it') ? 'refused' : 'made',
    );
  };
  await operate('drain', 'pid');
  await operate('drain', 'other');
  await operate('restart', 'other');
  await operate('log-level', 'debug');
  for (const worker of await workersOf(gateway)) {
    const before = await workersOf(gateway);
    process.kill(worker, 'SIGKILL');
    await waitUntil(async () => (await workersOf(gateway)).some((pid) => !before.includes(pid)));
    await waitUntil(async () => (await (await fetch(`${gateway.operatorUrl}/readyz`)).text()).includes('"reasons":[]'));
  }
  assert.deepEqual([...new Set(await answers())], ['refused']);
  const other = await modernPost(gateway.endpoint(), 'tools/call', { name: 'other__pid', arguments: {} });
  assert.ok(answerOf(other).result !== undefined);
  const workers = await workersOf(gateway);
  const isOfWorker = (line: string) =>
    line.includes('upstream process started') && workers.some((pid) => line.includes(`"pid":${pid},`));
  await gateway.waitForLog((line) => (isOfWorker(line) ? true : undefined));
  await operate('restart', 'pid');
  assert.deepEqual([...new Set(await answers())], ['made']);
});

test('linkspan status and ls show workers as one gateway', OPTIONS, async () => {
  await using gateway = await start({ pid: PID });
  const url = gateway.endpoint();
  await Promise.all(Array.from({ length: 5 }, () => initialize(url)));
  const run = async (...args: readonly string[]) => {
    const state = join(gateway.dir, 'state');
    const { code, stdout, stderr } = await runCli([...args, '--state-dir', state], gateway.dir, process.env, CLI_MS);
    assert.deepEqual([code, stderr], [0, '']);
    return stdout;
  };
  const status = await run('status');
  assert.match(status, new RegExp(`process ${gateway.pid}`));
  assert.match(status, /5 sessions/);
  const sessions = z
    .object({ sessions: z.array(z.unknown()) })
    .parse(JSON.parse(await run('ls', 'sessions', '--json')));
  assert.equal(sessions.sessions.length, 5);
  assert.match(await run('ls', 'upstreams'), /pid/);
  await run('rotate-keys');
  await askBoth(gateway, await initialize(url));
});

test('a request of 2026-07-28 that crosses workers is counted once, with its tool', OPTIONS, async () => {
  await using gateway = await start({ pid: PID });
  const call = { name: 'pid__pid', arguments: {} };
  await askEachWorker(gateway, () => modernResult(gateway.endpoint(), 'tools/call', call));
  assert.equal(await metricOf(gateway, /^linkspan_forwarded_requests_total\{outcome="answered"\}/), 1);
  const count = /^mcp_server_operation_duration_seconds_count\{mcp_method_name="tools\/call"/;
  assert.equal(await metricOf(gateway, count), 2);
  assert.equal(await metricOf(gateway, new RegExp(`${count.source}.*gen_ai_tool_name="pid__pid"`)), 2);
});
