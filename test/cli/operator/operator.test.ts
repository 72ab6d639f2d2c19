import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, test } from 'node:test';
import { fileURLToPath } from 'node:url';
import { LISTS } from '../../../src/cli/operator/commands.ts';
import { type Ran, runCli } from '../../support/cli.ts';
import { MAIN } from '../../support/program.ts';
import { hasUnseen } from '../../../src/peer-text.ts';
import { getEvents, initialize, post, rpc } from '../../downstream/client.ts';
import { type RunningGateway, startGateway } from '../../support/gateway.ts';

const SERVER = fileURLToPath(new URL('../../fixtures/servers/pid-stdio.ts', import.meta.url));
const BOUNDED = { timeout: 120_000 };

let gateway: RunningGateway;
let empty = '';

before(async () => {
  empty = await mkdtemp(join(tmpdir(), 'linkspan-empty-'));
  gateway = await startGateway({
    mcpServers: {
      local: { command: process.execPath, args: [SERVER] },
      crash: { command: 'sh', args: ['-c', 'echo boom >&2; exit 3'] },
    },
  });
});

after(async () => {
  await gateway.stop();
  await rm(empty, { recursive: true, force: true });
});

/** Runs the command line in an empty folder. */
function linkspan(args: readonly string[], env: NodeJS.ProcessEnv = {}): Promise<Ran> {
  return runCli(args, empty, { HOME: empty, ...env }, 30_000);
}

/** Runs a command on the gateway of this file. */
function on(...args: readonly string[]): Promise<Ran> {
  return linkspan([...args, '--config', gateway.configFile]);
}

test('the commands say that lists depend on the caller', BOUNDED, async () => {
  const personal = { url: 'https://personal.invalid/mcp', auth: { kind: 'identity' } };
  const other = await startGateway({ mcpServers: { personal } });
  try {
    const { stdout } = await linkspan(['ls', 'items', '--config', other.configFile]);
    assert.equal(stdout, 'The lists of "personal" depend on the caller, and are not known here.\n');
    const status = await linkspan(['status', '--config', other.configFile]);
    assert.match(status.stdout, /^personal +configured +http +lists depend on the caller +0 connections$/m);
    const asked = ['explain', 'tool', 'personal__read', '--as', '{"sub":"ada"}', '--config', other.configFile];
    assert.match((await linkspan(asked)).stdout, /for ada: unknown\n/);
    const called = await linkspan(['call', 'nobody__read', '--config', other.configFile]);
    assert.match(called.stderr, /lists the names, except of "personal", whose lists depend on the caller\n$/);
  } finally {
    await other.stop();
  }
});

test('status shows process, endpoint and upstreams, and exits with 0 while ready', BOUNDED, async () => {
  const { code, stdout, stderr } = await on('status');
  assert.deepEqual([code, stderr], [0, '']);
  assert.match(stdout, new RegExp(`process ${gateway.pid}, up \\d+ (?:s|min)`));
  assert.match(stdout, new RegExp(`Clients +${gateway.endpoint()}`));
  assert.match(stdout, /^local +configured +stdio +never listed +0 connections$/m);
  assert.match(
    stdout,
    /^Load +0 sessions, 0 clients without a session, 0 requests under way, 0 calls waiting for clients$/m,
  );
  assert.match(
    (await on('ls', 'items')).stdout,
    /^Nothing was listed yet\. The first client .*"linkspan prefetch" does\.$/m,
  );
  const json = JSON.parse((await on('status', '--json')).stdout);
  assert.deepEqual([json.pid, json.upstreams.length], [gateway.pid, 2]);
});

test('call prints the result on stdout, and on stderr as whom it was called', BOUNDED, async () => {
  const { code, stdout, stderr } = await on('call', 'local__pid', 'a=1', 'b=x y');
  assert.equal(code, 0, stderr);
  assert.match(stdout, /^\d+ \{"a":1,"b":"x y"\}\n$/);
  assert.match(stderr, /^called as operator local, \d+\.\d\d s\n$/);
});

test('the exit code tells the failure of a tool from a refused call', BOUNDED, async () => {
  assert.equal((await on('call', 'local__fail')).code, 5);
  const refused = await on('call', 'local__nothing');
  assert.equal(refused.code, 1);
  assert.match(refused.stderr, /Unknown tool.* \(unknown-tool\); "linkspan ls items" lists the names\n$/);
  const misspelled = await on('call', 'local__fial');
  assert.match(
    misspelled.stderr,
    /\(unknown-tool\); "linkspan ls items" lists the names \(did you mean "local__fail"\?\)\n$/,
  );
  const wrong = await on('call', 'local__pid', '{"a":');
  assert.equal(wrong.code, 2);
});

test('ls prints every list for people and as JSON', BOUNDED, async () => {
  for (const list of LISTS) {
    const { code, stdout, stderr } = await on('ls', list);
    assert.deepEqual([code, stderr], [0, ''], list);
    assert.notEqual(stdout, '', list);
    const json = await on('ls', list, '--json');
    assert.equal(typeof JSON.parse(json.stdout), 'object', list);
  }
  const items = await on('ls', 'items');
  assert.match(items.stdout, /^tool +local__pid +local: pid +published$/m);
  assert.equal((await on('ls', 'items', '--view', '/mcp')).stdout, items.stdout);
  const own = await on('ls', 'items', '--view', '/mcp/local');
  assert.match(own.stdout, /^tool +pid +local +published$/m);
  const missing = await on('call', 'pid', '--view', '/mcp/nope');
  assert.equal(missing.stderr, 'linkspan: There is no endpoint "nope". There are: /mcp, /mcp/local, /mcp/crash.\n');
});

test('ls streams shows the endpoint of an open stream', BOUNDED, async () => {
  const other = await startGateway({ mcpServers: { local: { command: process.execPath, args: [SERVER] } } });
  try {
    const stream = await getEvents(other.endpoint(), await initialize(other.endpoint()));
    const { stdout } = await linkspan(['ls', 'streams', '--config', other.configFile]);
    assert.match(stdout, /^\S+ +listen +1 +\S+ +\/mcp$/m);
    stream.close();
  } finally {
    await other.stop();
  }
});

test('restart and drain say what they did, and the next call works again', BOUNDED, async () => {
  const drained = await on('drain', 'local', '--wait', '1');
  assert.match(drained.stdout, /out of service until "linkspan restart local"/);
  const metrics = await (await fetch(`${gateway.operatorUrl}/metrics`)).text();
  assert.match(metrics, /^linkspan_upstream_state_info\{upstream="local",state="disabled"\} 1$/m);
  assert.match((await on('status')).stdout, /^local +disabled.*\n.*\n +Since 20.*Z\n +Put it into service again/m);
  assert.equal((await on('call', 'local__pid')).code, 1);
  const restarted = await on('restart', 'local');
  assert.equal(restarted.code, 0, restarted.stderr);
  assert.equal((await on('call', 'local__pid')).code, 0);
  for (const wait of ['', ' ', '0x1', '-1', '601']) {
    const refused = await on('drain', 'local', `--wait=${wait}`);
    assert.deepEqual([refused.code, refused.stdout], [2, ''], wait);
    assert.match(refused.stderr, /^linkspan: --wait: expected seconds from 0 to 600, got "/);
  }
  const wrong = await on('restart', 'nope');
  assert.equal(wrong.code, 1);
  assert.match(wrong.stderr, /^linkspan: There is no upstream "nope"\. There are: local, crash\.\n$/);
});

test('restart of an upstream that ends exits with 1; logs has what it printed', BOUNDED, async () => {
  const { code, stdout } = await on('restart', 'crash');
  assert.equal(code, 1);
  assert.match(
    stdout,
    /crash" was restarted, and is failed: .* exited with code 3 before it answered \(last line on stderr: boom\)/,
  );
  assert.doesNotMatch(stdout, /the request was not sent/);
  const json = await on('restart', 'crash', '--json');
  assert.deepEqual([json.code, JSON.parse(json.stdout).isStarted], [1, false]);
  const logs = await on('logs', '--upstream', 'crash');
  assert.match(logs.stdout, /^! crash: .*exited with code 3 before it answered\. On stderr:\n +\| boom$/m);
});

test('logs of an upstream that does not exist names those that do', BOUNDED, async () => {
  const { code, stdout, stderr } = await on('logs', '--upstream', 'lcoal');
  assert.deepEqual([code, stdout], [0, '']);
  assert.equal(stderr, 'linkspan: There is no upstream "lcoal" now. There are: local, crash.\n');
});

test('logs prints the latest lines; with --follow, further ones until it is stopped', BOUNDED, async () => {
  const { code, stdout } = await on('logs', '--json');
  assert.equal(code, 0);
  assert.match(stdout, /"msg":"listening"/);
  const child = spawn(process.execPath, [MAIN, 'logs', '-f', '--json', '--config', gateway.configFile], { cwd: empty });
  let text = '';
  const isFound = Promise.withResolvers<undefined>();
  child.stdout.on('data', (chunk: Buffer) => {
    text += chunk.toString();
    if (text.includes('"operation":"setDraining"')) isFound.resolve(undefined);
  });
  // The first output shows that it follows.
  await once(child.stdout, 'data');
  await on('drain', '--undo');
  await isFound.promise;
  child.kill('SIGINT');
  const [exitCode] = await once(child, 'exit');
  assert.equal(exitCode, 0);
});

// N-07
test('prefetch downloads beside a running gateway, which stores the lists', BOUNDED, async () => {
  const { code, stdout, stderr } = await on('prefetch');
  assert.equal(code, 1, 'the other upstream fails');
  assert.match(stdout, /^local: \d+ tools.*\ncrash: FAILED/);
  assert.match(stderr, /a running gateway uses .* and stores the lists itself; each upstream is started once/);
});

test('healthcheck needs no key, and exits with 1 while the gateway is not ready', BOUNDED, async () => {
  assert.equal((await linkspan(['healthcheck', '--url', gateway.operatorUrl])).code, 0);
  await on('drain');
  assert.equal((await on('healthcheck', '--ready')).code, 1);
  assert.equal((await on('healthcheck')).code, 0);
  await on('drain', '--undo');
  assert.equal((await on('healthcheck', '--ready')).code, 0);
});

test('without a gateway, a command exits with 4 in one line that says what to do', BOUNDED, async () => {
  for (const args of [['status'], ['healthcheck'], ['ls', '--state-dir', empty]]) {
    const { code, stdout, stderr } = await linkspan(args);
    assert.deepEqual([code, stdout], [4, ''], args.join(' '));
    assert.match(stderr, /^linkspan: no .*linkspan run.*\n$/);
  }
  const json = await linkspan(['status', '--json']);
  assert.equal(JSON.parse(json.stderr).exitCode, 4);
});

test('a gateway elsewhere needs a key; a wrong one exits with 3', BOUNDED, async () => {
  const without = await linkspan(['status', '--url', gateway.operatorUrl]);
  assert.equal(without.code, 3);
  assert.match(without.stderr, /LINKSPAN_OPERATOR_KEY/);
  for (const key of ['wrong', 'wrong\n', ' \n']) {
    const env = { LINKSPAN_OPERATOR_KEY: key };
    assert.equal((await linkspan(['status', '--url', gateway.operatorUrl], env)).code, 3, JSON.stringify(key));
  }
});

test('a gateway is found although its config file was broken since', BOUNDED, async () => {
  const dir = await mkdtemp(join(tmpdir(), 'linkspan-broken-'));
  try {
    const file = join(dir, 'linkspan.yaml');
    const stateDir = join(gateway.dir, 'state');
    await writeFile(file, `gateway:\n  stateDir: ${stateDir}\n  nonsense: true\n`);
    assert.equal((await linkspan(['status', '--config', file])).code, 0);
  } finally {
    await rm(dir, { recursive: true, force: true });
  }
});

// N-73
test('no command prints a character of a client that a person cannot see', BOUNDED, async () => {
  const odd = 'odd\u001b[31m\u007f\u009b31m\u200b\u200e\u2028\u202e\u2066\ufeff\u{e0041}';
  const clientInfo = { name: odd, version: odd };
  const params = { protocolVersion: '2025-11-25', capabilities: { [odd]: {} }, clientInfo };
  const opened = await post(gateway.endpoint(), rpc(0, 'initialize', params));
  const session = String(opened.headers['mcp-session-id']);
  await post(gateway.endpoint(), rpc(1, 'tools/call', { name: odd }), session);
  await gateway.waitForLog((line) => (line.includes('Unknown tool: odd') ? true : undefined), 60_000);
  const commands = [
    ['ls', 'clients'],
    ['ls', 'sessions'],
    ['ls', 'calls'],
    ['logs'],
    ['call', odd],
    ['explain', 'tool', odd],
  ];
  for (const command of commands) {
    for (const form of [[], ['--json']]) {
      const { stdout, stderr } = await on(...command, ...form);
      assert.ok(!hasUnseen(`${stdout}${stderr}`.replaceAll('\n', '')), command.join(' '));
    }
  }
  const { stdout } = await on('ls', 'clients');
  assert.match(stdout, /^odd\\u001b\[31m\\u007f\\u009b31m\\u200b\\u200e\\u2028\\u202e\\u2066\\ufeff/m);
});
