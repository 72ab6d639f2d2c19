import assert from 'node:assert/strict';
import { readdirSync, readFileSync, statSync } from 'node:fs';
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { test } from 'node:test';
import { connect } from 'node:tls';
import { META } from '../../src/protocol/meta.ts';
import { getEvents, initialize, messagesOf, post, postForEvents, rpc } from '../downstream/client.ts';
import { runCli } from '../support/cli.ts';
import { freePort } from '../support/free-port.ts';
import { type RunningGateway, startGateway } from '../support/gateway.ts';
import { answerOf, modernPost } from '../support/modern-wire.ts';
import { act, HELD, startRemote } from '../support/nonce-remote.ts';
import { connectSdk1 } from '../support/sdk-client.ts';
import { isGone } from '../support/stdio.ts';
import { waitUntil } from '../support/wait-until.ts';
import { askEachWorker, metricOf, workersOf } from '../support/workers.ts';

const OPTIONS = { timeout: 120_000 };
const SERVERS = join(import.meta.dirname, '../fixtures/servers');
const PID = { command: process.execPath, args: [join(SERVERS, 'pid-stdio.ts')] };
const NONCE = { command: process.execPath, args: [join(SERVERS, 'nonce-stdio.ts')] };
const STOP_MS = 60_000;

const start = (mcpServers: Record<string, Record<string, unknown>>, own: object = {}, dir?: string) =>
  startGateway({ mcpServers, gateway: { workers: 2, ...own } }, dir === undefined ? {} : { dir });

/** Calls a tool on a connection of its own, and returns the text of the answer. */
async function callTool(gateway: RunningGateway, session: string, name: string, args = {}): Promise<string> {
  const got = await post(gateway.endpoint(), rpc(1, 'tools/call', { name, arguments: args }), session);
  return JSON.stringify(messagesOf(got));
}

const processIn = (text: string) => Number(/"text":"(\d+) /.exec(text)?.[1]);

test('a session is served by one process of its upstream, whichever worker accepts', OPTIONS, async () => {
  await using gateway = await start({ pid: PID });
  assert.equal((await workersOf(gateway)).length, 2);
  const session = await initialize(gateway.endpoint());
  const pids = new Set<number>();
  let n = 0;
  for (let round = 0; round < 3; round++) {
    const texts = await askEachWorker(gateway, () => callTool(gateway, session, 'pid__pid', { n: n++ }));
    for (const text of texts) pids.add(processIn(text));
  }
  await waitUntil(
    async () => (await metricOf(gateway, /^linkspan_forwarded_requests_total\{outcome="answered"\}/)) === 3,
  );
  assert.equal(pids.size, 1, [...pids].join());
  assert.equal(await metricOf(gateway, /^linkspan_sessions /), 1);
  const calls = /^mcp_server_operation_duration_seconds_count\{mcp_method_name="tools\/call"/;
  assert.equal(await metricOf(gateway, calls), n, 'the metrics are those of both workers');
  const connected = await connectSdk1(gateway.endpoint());
  await connected.client.callTool({ name: 'pid__pid', arguments: {} });
  await connected[Symbol.asyncDispose]();
});

for (const workers of [1, 2]) {
  test(`the metrics of the process itself are served (workers: ${workers})`, OPTIONS, async () => {
    await using gateway = await startGateway({ mcpServers: {}, gateway: { workers } });
    assert.ok(((await metricOf(gateway, /^process_resident_memory_bytes /)) ?? 0) > 0);
  });
}

test('streams, questions, their answers and cancellations cross workers', OPTIONS, async () => {
  await using gateway = await start({ nonce: NONCE });
  const url = gateway.endpoint();
  const session = await initialize(url, '2025-11-25', {}, { elicitation: {} });
  await post(url, JSON.stringify({ jsonrpc: '2.0', method: 'notifications/initialized' }), session);
  const listening = await getEvents(url, session);
  await post(url, rpc(1, 'logging/setLevel', { level: 'info' }), session);
  for (let round = 0; round < 6; round++) {
    const nonce = `nonce:${round}:1;`;
    const call = await postForEvents(url, rpc(round, 'tools/call', act(nonce, ['progress', 'elicit'])), session);
    await call.until(({ messages }) => messages.some(({ method }) => method === 'elicitation/create'));
    const question = call.messages.find(({ method }) => method === 'elicitation/create');
    const answer = { jsonrpc: '2.0', id: question?.id, result: { action: 'accept', content: { nonce } } };
    assert.equal((await post(url, JSON.stringify(answer), session)).status, 202);
    await call.until(({ messages }) => messages.some(({ id }) => id === round));
    assert.ok(call.messages.some(({ method }) => method === 'notifications/progress'));
  }
  const cancelled = await postForEvents(url, rpc(30, 'tools/call', act('nonce:2:2;', ['elicit'])), session);
  await cancelled.until(({ messages }) => messages.some(({ method }) => method === 'elicitation/create'));
  await post(
    url,
    JSON.stringify({ jsonrpc: '2.0', method: 'notifications/cancelled', params: { requestId: 30 } }),
    session,
  );
  await waitUntil(async () =>
    (await callTool(gateway, session, 'nonce__ledger')).includes(String.raw`\"cancelled\":1`),
  );
  await post(url, rpc(6, 'tools/call', act('nonce:4:4;', ['doom'])), session);
  await listening.until(({ messages }) => messages.some(({ method }) => method === 'notifications/message'));
  listening.close();
});

test('a killed worker is replaced, its sessions go on, and its children are gone', OPTIONS, async () => {
  await using gateway = await start({ pid: PID });
  const session = await initialize(gateway.endpoint());
  const before = await workersOf(gateway);
  const child = processIn(await callTool(gateway, session, 'pid__pid'));
  for (const worker of before) {
    const count = async () => (await workersOf(gateway)).filter((pid) => !before.includes(pid)).length;
    const replaced = await count();
    process.kill(worker, 'SIGKILL');
    await waitUntil(async () => (await count()) > replaced);
    await waitUntil(async () => (await (await fetch(`${gateway.operatorUrl}/readyz`)).text()).includes('"reasons":[]'));
    await waitUntil(async () => processIn(await callTool(gateway, session, 'pid__pid')) > 0);
  }
  await waitUntil(() => isGone(child));
  assert.notEqual(processIn(await callTool(gateway, session, 'pid__pid')), child);
  assert.match(gateway.logs(), /a worker has ended; another one takes its place/);
});

test('when the parent is killed, all workers and their children end', OPTIONS, async () => {
  const gateway = await start({ pid: PID });
  const session = await initialize(gateway.endpoint());
  const child = processIn(await callTool(gateway, session, 'pid__pid'));
  const workers = await workersOf(gateway);
  gateway.kill('SIGKILL');
  await gateway.ended;
  for (const pid of [...workers, child]) await waitUntil(() => isGone(pid));
  await gateway.stop();
});

test('a session and its end survive a restart of the gateway', OPTIONS, async () => {
  const dir = await mkdtemp(join(tmpdir(), 'linkspan-workers-test-'));
  const listen = `127.0.0.1:${await freePort()}`;
  try {
    const first = await start({ pid: PID }, { listen }, dir);
    const [kept, ended] = [await initialize(first.endpoint()), await initialize(first.endpoint())];
    const deletion = await fetch(first.endpoint(), { method: 'DELETE', headers: { 'mcp-session-id': ended } });
    assert.ok(deletion.ok);
    for (let n = 0; n < 8; n++) assert.equal((await post(first.endpoint(), rpc(1, 'ping'), ended)).status, 404);
    await first.stop(STOP_MS);
    await using second = await start({ pid: PID }, { listen }, dir);
    assert.ok(processIn(await callTool(second, kept, 'pid__pid')) > 0);
    assert.equal((await post(second.endpoint(), rpc(1, 'ping'), ended)).status, 404);
    await second.stop(STOP_MS);
  } finally {
    await rm(dir, { recursive: true, force: true });
  }
});

test('a reload is applied by all workers, and one that cannot be is applied by none', OPTIONS, async () => {
  await using gateway = await start({ pid: PID });
  const names = async () => {
    const got = await modernPost(gateway.endpoint(), 'tools/list');
    return JSON.stringify(answerOf(got).result);
  };
  const allHave = async (name: string, count = 10) => {
    for (let n = 0; n < count; n++) if (!(await names()).includes(`"${name}"`)) return false;
    return true;
  };
  await waitUntil(() => allHave('pid__pid'));
  const servers = { pid: PID, second: PID };
  await gateway.configure({ mcpServers: servers, gateway: { workers: 2 } });
  await waitUntil(() => allHave('second__pid'));
  await using other = await startGateway({ mcpServers: { pid: PID } });
  const listen = new URL(other.url).host;
  await gateway.configure({ mcpServers: { ...servers, third: PID }, gateway: { workers: 2, listen } });
  await gateway.waitForLog((line) => (line.includes('config rejected') ? true : undefined));
  assert.ok(await allHave('second__pid'));
  assert.ok(!(await names()).includes('third'));
});

// REL-08
test('a call with a key is made once by all workers', OPTIONS, async () => {
  await using remote = await startRemote();
  await using gateway = await start({ nonce: { url: `${remote.url}/mcp` } });
  const nonce = 'nonce:1:1;';
  const { _meta, ...params } = act(nonce, [], { pauseMs: 200 });
  const call = async (): Promise<string> => {
    const meta = { [META.idempotencyKey]: nonce };
    const { result, error } = answerOf(await modernPost(gateway.endpoint(), 'tools/call', params, { meta }));
    return JSON.stringify(result ?? error);
  };
  const answers = await Promise.all(Array.from({ length: 40 }, call));
  assert.ok(answers.some((text) => text.includes('"text"')));
  await waitUntil(async () => (await call()).includes(`"text":"${nonce}"`));
  assert.equal(await remote.ran(nonce), 1);
});

test('a call in flight is answered while the gateway stops', OPTIONS, async () => {
  await using remote = await startRemote();
  const gateway = await start({ nonce: { url: `${remote.url}/mcp` } });
  const session = await initialize(gateway.endpoint());
  const calls = Array.from({ length: 6 }, async (_, n) => {
    const nonce = `nonce:${n}:1;`;
    return messagesOf(await post(gateway.endpoint(), rpc(n, 'tools/call', act(nonce, [], HELD)), session));
  });
  await waitUntil(async () => (await metricOf(gateway, /^linkspan_requests_in_flight /)) === 6);
  const stopped = gateway.stop(STOP_MS);
  await gateway.waitForLog((line) => (line.includes('"stopping"') ? true : undefined));
  const status = await runCli(['status', '--config', gateway.configFile], gateway.dir, { HOME: gateway.dir }, STOP_MS);
  assert.match(status.stdout, /6 requests under way/, status.stderr);
  await remote.continue();
  for (const [n, messages] of (await Promise.all(calls)).entries()) {
    assert.match(JSON.stringify(messages), new RegExp(`"text":"nonce:${n}:1;"`));
  }
  await stopped;
});

test('operators see all workers as one gateway', OPTIONS, async () => {
  await using gateway = await start({ pid: PID });
  const sessions = await Promise.all(Array.from({ length: 6 }, () => initialize(gateway.endpoint())));
  assert.equal(await metricOf(gateway, /^linkspan_ready /), 1, 'as /readyz says');
  const { token } = JSON.parse(readFileSync(join(gateway.dir, 'state', 'operator.json'), 'utf8'));
  const admin = async (path: string, method = 'GET') => {
    const headers = { authorization: `Bearer ${token}` };
    const answer = await fetch(`${gateway.operatorUrl}/admin/v1${path}`, { method, headers });
    return { status: answer.status, text: await answer.text() };
  };
  const status = JSON.parse((await admin('/status')).text);
  assert.equal(status.sessions, 6);
  assert.equal(status.pid, gateway.pid);
  const listed = JSON.parse((await admin('/sessions')).text);
  assert.equal(listed.sessions.length, 6);
  for (const { id } of listed.sessions) assert.equal((await admin(`/sessions/${id}`, 'DELETE')).status, 200);
  for (const session of sessions) assert.equal((await post(gateway.endpoint(), rpc(1, 'ping'), session)).status, 404);
  assert.equal((await admin('/sessions/none', 'DELETE')).status, 404);
  assert.match((await admin('/upstreams/pid')).text, /"state":"\w+"/);
  assert.equal((await admin('/drain', 'POST')).status, 200);
  assert.equal(await metricOf(gateway, /^linkspan_ready /), 0);
});

// SEC-45
test('workers accept holders of the ring alone, and no key is in env or argv', OPTIONS, async () => {
  await using gateway = await start({ pid: PID });
  const keys = readFileSync(join(gateway.dir, 'state', 'keys.json'), 'utf8');
  const secrets = [...keys.matchAll(/"key":\s*"([^"]+)"/g)].map(([, key = '']) => key);
  assert.ok(secrets.length > 0);
  for (const pid of await workersOf(gateway)) {
    for (const file of ['environ', 'cmdline']) {
      const text = readFileSync(`/proc/${pid}/${file}`, 'latin1');
      for (const secret of secrets) assert.ok(!text.includes(secret));
    }
  }
  const [folder = ''] = readdirSync(join(gateway.dir, 'state')).filter((name) => name.startsWith('workers-'));
  const dir = join(gateway.dir, 'state', folder);
  assert.equal(statSync(dir).mode & 0o777, 0o700);
  const sockets = readdirSync(dir).map((name) => join(dir, name));
  assert.equal(sockets.length, 2);
  for (const path of sockets) {
    const refused = Promise.withResolvers<string>();
    const socket = connect({
      path,
      rejectUnauthorized: false,
      pskCallback: () => ({ psk: Buffer.alloc(32), identity: 'x' }),
    });
    socket.on('error', (error) => refused.resolve(error.message));
    socket.on('close', () => refused.resolve('closed'));
    socket.once('secureConnect', () => refused.resolve('connected'));
    assert.notEqual(await refused.promise, 'connected');
    socket.destroy();
  }
});
