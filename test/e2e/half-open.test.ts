import assert from 'node:assert/strict';
import { hash } from 'node:crypto';
import { mkdtemp, readFile, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { test } from 'node:test';
import { NamespaceNetwork } from '../chaos/network.ts';
import { initialize, post, rpc, send } from '../downstream/client.ts';
import { Child } from '../support/child.ts';
import { startGateway } from '../support/gateway.ts';
import { marker } from '../support/leftovers.ts';
import { waitUntil } from '../support/wait-until.ts';

const { missing } = NamespaceNetwork;
const OPTIONS = { timeout: 120_000, ...(missing === undefined ? {} : { skip: missing }) };
const KEY = 'key-of-a-client-that-vanishes';
const SERVERS = join(import.meta.dirname, '../fixtures/servers');
const PID = { command: process.execPath, args: [join(SERVERS, 'pid-stdio.ts')] };
const AUTH = { apiKeys: [{ name: 'client', sha256: hash('sha256', KEY) }] };
const HEADERS = { authorization: `Bearer ${KEY}` };

/** Fewer repetitions than docs/deployment.md advises, so that the kernel gives up after seconds: after 200, 400, 800 and 1 600 ms. */
const WITH_FEW_REPETITIONS = ['sh', '-c', 'echo 3 > /proc/sys/net/ipv4/tcp_retries2; exec "$0" "$@"'];

/** Opens the GET stream of a session, and prints a line for the response and for each comment. */
const CLIENT = `const [url, key, session] = process.argv.slice(1);
const headers = { accept: 'text/event-stream', authorization: 'Bearer ' + key, 'mcp-session-id': session };
require('node:http').get(url, { headers }, (response) => {
  console.log('opened', response.statusCode);
  response.on('data', () => console.log('kept alive'));
});`;

// REL-21 R16
test('the stream of a client that vanished ends when the kernel gives up', OPTIONS, async () => {
  await using network = await NamespaceNetwork.open();
  const address = network.hostOf(0);
  const via = [...network.via(0), ...WITH_FEW_REPETITIONS];
  const ours = { listen: `${address}:0`, operator: `${address}:0`, auth: AUTH, sessions: { keepAlive: '1s' } };
  await using gateway = await startGateway({ mcpServers: { pid: PID }, gateway: ours }, { via });
  const url = gateway.endpoint();
  const session = await initialize(url, '2025-11-25', HEADERS);

  const [command, ...args] = [...network.via(1), process.execPath, '-e', CLIENT, url, KEY, session];
  await using client = await Child.start(command ?? '', args);
  const countStreams = async () => {
    const { text } = await send(`${gateway.operatorUrl}/metrics`, { method: 'GET' });
    return /^linkspan_streams\{kind="get"\} (\d+)$/m.exec(text)?.[1];
  };
  await client.waitForLine((line) => (line === 'kept alive' ? true : undefined));
  assert.match(client.logs(), /^opened 200$/m);
  assert.equal(await countStreams(), '1');
  network.cut(0, 'others');
  await waitUntil(async () => (await countStreams()) === '0');
  assert.ok(client.running);
});

// R4
test('calls to a server that vanished fail in time; then it is used again', OPTIONS, async () => {
  const dir = await mkdtemp(join(tmpdir(), 'linkspan-test-'));
  await using stack = new AsyncDisposableStack();
  stack.defer(() => rm(dir, { recursive: true, force: true }));
  const network = stack.use(await NamespaceNetwork.open());
  const [address, host] = [network.hostOf(0), network.hostOf('Redis')];
  const [command, ...args] = [
    ...network.via('Redis'),
    process.execPath,
    join(SERVERS, 'ledger-http.ts'),
    'legacy',
    '0',
  ];
  const env = { ...marker(), LEDGER: join(dir, 'ledger'), LEDGER_HOST: host };
  const server = stack.use(await Child.start(command ?? '', args, { env }));
  const port = await server.waitForLine((line) => /^listening on .*:(\d+)$/.exec(line)?.[1]);
  const far = { url: `http://${host}:${port}/mcp`, timeouts: { connect: '5s', call: '5s' } };
  const ours = { listen: `${address}:0`, operator: `${address}:0`, auth: AUTH };
  const gateway = stack.use(await startGateway({ mcpServers: { far }, gateway: ours }, { via: network.via(0) }));
  const url = gateway.endpoint();
  const session = await initialize(url, '2025-11-25', HEADERS);
  let calls = 0;
  const call = async (way = 'answer') => {
    const act = { call: String(++calls), attempt: 1, nonce: 'n', way, steps: 0, pauseMs: 0 };
    const params = { name: 'far__act', arguments: act };
    return (await post(url, rpc(calls, 'tools/call', params), session, HEADERS)).text;
  };
  const runs = async () =>
    (await readFile(env.LEDGER, 'utf8'))
      .trimEnd()
      .split('\n')
      .map((line): unknown => JSON.parse(line).call);
  // A busy machine may miss the short timeout.
  await waitUntil(async () => (await call()).includes('"content"'));

  const late = call('hang');
  const hung = String(calls);
  await waitUntil(async () => (await runs()).includes(hung));
  network.cut(0, 'Redis');
  assert.match(await late, /"code":"upstream-timeout".*"executed":"unknown"/);
  assert.match(await call(), /"code":"upstream-(?:timeout|unavailable)"/);
  network.restore(0, 'Redis');
  await waitUntil(async () => (await call()).includes('"content"'));
  const ran = await runs();
  assert.equal(new Set(ran).size, ran.length, `some ran twice: ${ran.join(', ')}`);
});
