import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { existsSync } from 'node:fs';
import { mkdir, mkdtemp, rm, stat, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { suite, test } from 'node:test';
import { memberOf } from '../../src/json/record.ts';
import { type Got, initialize, messagesOf, post, rpc, send } from '../downstream/client.ts';
import { connectOver, SDKS } from '../support/either-sdk.ts';
import { type RunningGateway, startGateway } from '../support/gateway.ts';
import { referenceServers } from '../support/reference-servers.ts';
import { readOnlyDisk, smallDisk, type SmallDisk } from '../support/small-disk.ts';
import { until } from '../support/stdio.ts';
import { MAIN } from '../support/program.ts';

const TIMEOUT = { timeout: 120_000 };
const DOCUMENT = 'everything+demo://resource/static/document/features.md';

async function testDir() {
  const path = await mkdtemp(join(tmpdir(), 'linkspan-state-'));
  return { path, [Symbol.asyncDispose]: () => rm(path, { recursive: true, force: true }) };
}

const ping = (gateway: RunningGateway, id: string): Promise<Got> => post(gateway.endpoint(), rpc(1, 'ping'), id);

const endSession = (gateway: RunningGateway, id: string): Promise<Got> =>
  send(gateway.endpoint(), { method: 'DELETE', headers: { 'mcp-session-id': id } });

async function kill(gateway: RunningGateway): Promise<void> {
  gateway.kill('SIGKILL');
  await gateway.ended;
}

async function readiness(gateway: RunningGateway): Promise<{ readonly status: number; readonly reasons: unknown }> {
  const { status, text } = await send(`${gateway.operatorUrl}/readyz`, {});
  const body: unknown = JSON.parse(text);
  return { status, reasons: Object(body).reasons };
}

/** Requests `/readyz` until it is ready. The timeout of the test bounds it. */
async function becomesReady(gateway: RunningGateway): Promise<void> {
  let status = 0;
  while (status !== 200) ({ status } = await readiness(gateway));
}

async function metric(gateway: RunningGateway, name: string): Promise<number> {
  const { text } = await send(`${gateway.operatorUrl}/metrics`, {});
  return Number(new RegExp(`^${name} (\\d+)$`, 'm').exec(text)?.[1]);
}

/** Returns the tools of a list answer. Its `_meta` names the gateway, by a key that the second one on a directory does not have. */
function toolsIn(answer: Got): unknown {
  return memberOf(messagesOf(answer)[0]?.result, 'tools');
}

suite('two gateways on one state directory', { concurrency: 1 }, () => {
  // N-67
  test('the second one warns that it stores no sessions, and serves the stored lists', TIMEOUT, async () => {
    await using dir = await testDir();
    await using second = await testDir();
    const servers = referenceServers(dir.path);
    const file = { mcpServers: { everything: servers.everything }, gateway: { stateDir: join(dir.path, 'state') } };
    await using first = await startGateway(file, { dir: dir.path });
    const kept = await initialize(first.endpoint());
    const listed = await post(first.endpoint(), rpc(1, 'tools/list'), kept);
    await until(() => first.logs().includes('"listening"'), 'the first listens');

    const config = { ...file, mcpServers: { everything: { ...servers.everything, start: 'lazy' } } };
    await using other = await startGateway(config, { dir: second.path });
    const words = `process ${first.pid}, the gateway of ${first.configFile}, uses the same state directory`;
    const warning = await other.waitForLog((line) => (line.includes(words) ? line : undefined));
    assert.match(warning, /stop one of them, or give each a stateDir of its own"/, 'the advice is not cut');
    assert.ok(warning.includes(`"stateDir":"${join(dir.path, 'state')}"`));
    const own = await initialize(other.endpoint());
    const shared = await post(other.endpoint(), rpc(1, 'tools/list'), own);
    const tools = toolsIn(listed);
    assert.ok(Array.isArray(tools) && tools.length > 0);
    assert.deepEqual(toolsIn(shared), tools);

    // Neither gateway can serve or end a session of the other.
    assert.equal((await ping(other, kept)).status, 404);
    assert.equal((await endSession(other, kept)).status, 404);
    assert.equal((await ping(first, own)).status, 404);
    assert.equal((await ping(first, kept)).status, 200);
    assert.equal((await ping(other, own)).status, 200);
  });

  // N-67
  test('after SIGKILL of the owner the next one takes over, with all ended sessions', TIMEOUT, async () => {
    await using dir = await testDir();
    const file = { mcpServers: {}, gateway: { stateDir: join(dir.path, 'state') } };
    let ids: string[] = [];
    {
      await using first = await startGateway(file, { dir: dir.path });
      await using second = await startGateway(file);
      ids = [await initialize(first.endpoint()), await initialize(first.endpoint())];
      assert.equal((await endSession(first, ids[0] ?? '')).status, 204);
      await kill(first);
      const own = await initialize(second.endpoint());
      assert.equal((await endSession(second, own)).status, 204);
    }
    for (const _again of [1, 2]) {
      await using next = await startGateway(file, { dir: dir.path });
      assert.deepEqual(await Promise.all(ids.map(async (id) => (await ping(next, id)).status)), [404, 200]);
      assert.ok(!next.logs().includes('another process'));
      await kill(next);
    }
  });

  // N-67
  test('the stdio command leaves the directory to a gateway that starts later', TIMEOUT, async () => {
    await using dir = await testDir();
    const { everything } = referenceServers(dir.path);
    const file = { mcpServers: { everything }, gateway: { stateDir: join(dir.path, 'state') } };
    const configFile = join(dir.path, 'stdio.json');
    await writeFile(configFile, JSON.stringify(file));
    const env = { PATH: process.env['PATH'] ?? '', HOME: process.env['HOME'] ?? '' };
    const [sdk] = SDKS;
    await using client = await connectOver(sdk, {
      kind: 'stdio',
      command: process.execPath,
      args: [MAIN, 'stdio', '--config', configFile],
      env,
    });
    assert.ok((await client.tools()).length > 0);
    let id = '';
    {
      await using gateway = await startGateway(file, { dir: dir.path });
      id = await initialize(gateway.endpoint());
      assert.ok(!gateway.logs().includes('another process'));
    }
    await using gateway = await startGateway(file, { dir: dir.path });
    assert.equal((await ping(gateway, id)).status, 200);
    assert.ok((await client.tools()).length > 0);
  });
});

suite('a disk that is full', { concurrency: 1 }, () => {
  async function startOn(disk: SmallDisk, dir: string): Promise<RunningGateway> {
    const { everything } = referenceServers(dir);
    return await startGateway({ mcpServers: { everything }, gateway: { stateDir: disk.path } }, { dir });
  }

  const subscribe = (gateway: RunningGateway, id: string, method = 'resources/subscribe') =>
    post(gateway.endpoint(), rpc(1, method, { uri: DOCUMENT }), id);

  /** Fills the disk, and subscribes until the journal cannot be written. */
  async function fillUp(disk: SmallDisk, gateway: RunningGateway, id: string): Promise<void> {
    await disk.fill();
    for (let i = 0; (await readiness(gateway)).status === 200; i++) {
      const method = i % 2 === 0 ? 'resources/subscribe' : 'resources/unsubscribe';
      assert.deepEqual(messagesOf(await subscribe(gateway, id, method))[0]?.result, {});
    }
  }

  // N-31
  test('DELETE and subscribe work, and an ended session is unknown after SIGKILL', TIMEOUT, async () => {
    await using disk = await smallDisk('1m');
    await using dir = await testDir();
    let [ended, subscribed] = ['', ''];
    {
      await using gateway = await startOn(disk, dir.path);
      [ended, subscribed] = [await initialize(gateway.endpoint()), await initialize(gateway.endpoint())];
      assert.equal((await readiness(gateway)).status, 200);
      await fillUp(disk, gateway, subscribed);
      assert.deepEqual(await readiness(gateway), {
        status: 503,
        reasons: [`state directory ${disk.path} cannot be written: ENOSPC`],
      });
      assert.ok((await metric(gateway, 'linkspan_state_write_failures_total')) >= 1);
      assert.deepEqual(messagesOf(await subscribe(gateway, subscribed))[0]?.result, {});
      assert.equal((await endSession(gateway, ended)).status, 204, 'it is written into the reserve');
      assert.equal((await ping(gateway, ended)).status, 404);
      const complaint = /state directory cannot be written/g;
      await gateway.waitForLog((line) => (line.search(complaint) < 0 ? undefined : line));
      assert.equal(gateway.logs().match(complaint)?.length, 1);
      await kill(gateway);
    }
    await using gateway = await startOn(disk, dir.path);
    assert.equal((await ping(gateway, ended)).status, 404);
    assert.equal((await ping(gateway, subscribed)).status, 200);
  });

  // N-31
  test('DELETE without room explains the risk of a restart, and is saved later', TIMEOUT, async () => {
    await using disk = await smallDisk('1m');
    await using dir = await testDir();
    let id = '';
    {
      await using gateway = await startOn(disk, dir.path);
      id = await initialize(gateway.endpoint());
      await fillUp(disk, gateway, id);
      await disk.free();
      await disk.fill();
      let got = await endSession(gateway, await initialize(gateway.endpoint()));
      // The last page of the journal may have room for some more.
      while (got.status === 204) got = await endSession(gateway, await initialize(gateway.endpoint()));
      got = await endSession(gateway, id);
      assert.equal(got.status, 500);
      assert.match(got.text, /the session has ended, but .* would revive it .*ENOSPC/);
      assert.equal((await ping(gateway, id)).status, 404, 'it has ended in this process');
      await disk.free();
      await becomesReady(gateway);
      await kill(gateway);
    }
    await using gateway = await startOn(disk, dir.path);
    assert.equal((await ping(gateway, id)).status, 404);
  });

  test('a state directory on a read-only file system ends the start with advice', TIMEOUT, async () => {
    await using disk = await readOnlyDisk();
    await using dir = await testDir();
    const file = join(dir.path, 'config.json');
    for (const stateDir of [disk.path, join(disk.path, 'below')]) {
      const gateway = { listen: '127.0.0.1:0', operator: false, stateDir };
      await writeFile(file, JSON.stringify({ mcpServers: {}, gateway }));
      const child = spawn(process.execPath, [MAIN, 'run', '--config', file]);
      let output = '';
      for (const stream of [child.stdout, child.stderr])
        stream.on('data', (chunk: Buffer) => (output += String(chunk)));
      const code = await new Promise((resolve) => child.once('close', resolve));
      assert.equal(code, 1, output);
      const words = `The state directory ${stateDir} cannot be used: its file system is read-only (EROFS). Set gateway.stateDir`;
      assert.ok(output.includes(words), output);
    }
  });
});

// N-31
test('a state directory that is removed comes back with its keys and all sessions', TIMEOUT, async () => {
  await using dir = await testDir();
  const stateDir = join(dir.path, 'state');
  const file = { mcpServers: {}, gateway: { stateDir } };
  let ids: string[] = [];
  {
    await using gateway = await startGateway(file, { dir: dir.path });
    const open = () => initialize(gateway.endpoint());
    ids = [await open(), await open(), await open()];
    assert.equal((await endSession(gateway, ids[0] ?? '')).status, 204);
    await rm(stateDir, { recursive: true });
    await endSession(gateway, ids[1] ?? '');
    await mkdir(stateDir, { recursive: true, mode: 0o700 });
    await gateway.waitForLog((line) => (line.includes('state directory can be written again') ? line : undefined));
    await until(() => existsSync(join(stateDir, 'keys.json')), 'the keys are written again');
    await kill(gateway);
  }
  await using gateway = await startGateway(file, { dir: dir.path });
  assert.deepEqual(await Promise.all(ids.map(async (id) => (await ping(gateway, id)).status)), [404, 404, 200]);
});

test('a missing state directory is created, with access for this user only', TIMEOUT, async () => {
  await using dir = await testDir();
  const stateDir = join(dir.path, 'a', 'b');
  await using _gateway = await startGateway({ mcpServers: {}, gateway: { stateDir } }, { dir: dir.path });
  for (const path of [join(dir.path, 'a'), stateDir]) assert.equal((await stat(path)).mode & 0o777, 0o700);
});
