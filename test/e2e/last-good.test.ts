import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import { createHash } from 'node:crypto';
import { chmod, mkdtemp, readdir, rm, stat, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, test } from 'node:test';
import { fileURLToPath } from 'node:url';
import { initialize, messagesOf, post, rpc } from '../downstream/client.ts';
import { type RunningGateway, startGateway } from '../support/gateway.ts';
import { PATIENCE_MS } from '../support/patience.ts';
import { waitUntil } from '../support/wait-until.ts';
import { MAIN } from '../support/program.ts';

const TIMEOUT = { timeout: 120_000 };
const LABEL = fileURLToPath(new URL('../fixtures/servers/label-stdio.ts', import.meta.url));
const COPY = 'last-good-config.json';

let dir = '';

beforeEach(async () => {
  dir = await mkdtemp(join(tmpdir(), 'linkspan-last-good-'));
});

afterEach(async () => {
  await rm(dir, { recursive: true, force: true });
});

const server = { command: process.execPath, args: [LABEL] };
const broken = { mcpServers: { a: { ...server, isolaton: 'call' } } };

function start(file: Parameters<typeof startGateway>[0], args: readonly string[] = ['--last-good']) {
  return startGateway(file, { dir, args });
}

/** Runs a gateway once, so that a copy of its config is kept. */
async function runOnce(
  file: Parameters<typeof startGateway>[0],
  args: readonly string[] = ['--last-good'],
): Promise<void> {
  await (await start(file, args)).stop();
}

async function label(url: string, headers: Readonly<Record<string, string>> = {}): Promise<string> {
  const session = await initialize(url, undefined, headers);
  const call = rpc(1, 'tools/call', { name: 'a__pid', arguments: {} });
  const [answer] = messagesOf(await post(url, call, session, headers));
  return JSON.stringify(answer?.result ?? answer?.error);
}

async function text(gateway: RunningGateway, path: string): Promise<string> {
  return await (await fetch(`${gateway.operatorUrl}${path}`)).text();
}

test('a start with a broken file serves the last good upstreams and says so everywhere', TIMEOUT, async () => {
  const envFile = join(dir, 'a.env');
  await writeFile(envFile, 'LABEL=kept\n');
  const good = { mcpServers: { a: { ...server, envFile } } };
  await runOnce(good);
  assert.equal((await stat(join(dir, 'state', COPY))).mode & 0o777, 0o600);
  await rm(envFile);

  await using gateway = await start(broken);
  assert.match(await label(gateway.endpoint()), / kept"/);
  const line = gateway
    .logs()
    .split('\n')
    .find((each) => each.includes('config is broken'));
  assert.match(line ?? '', /"level":50.*isolation/);
  const { config } = Object(JSON.parse(await text(gateway, '/status')));
  assert.match(config.lastGoodAt, /^\d{4}-/);
  assert.match(config.rejected.reason, /isolation/);
  const metrics = await text(gateway, '/metrics');
  assert.match(metrics, /^linkspan_config_last_good_upstreams 1$/m);
  assert.match(metrics, /^linkspan_config_last_reload_successful 0$/m);
  const args = [MAIN, 'status', '--state-dir', join(dir, 'state')];
  const status = spawnSync(process.execPath, args, { encoding: 'utf8', timeout: PATIENCE_MS });
  assert.match(status.stdout, /The upstreams are those of .* because the file was broken/);

  await writeFile(envFile, 'LABEL=new\n');
  await gateway.configure(good);
  await waitUntil(async () => (await text(gateway, '/metrics')).includes('linkspan_config_last_good_upstreams 0'));
  assert.equal(Object(JSON.parse(await text(gateway, '/status'))).config.lastGoodAt, undefined);
  await waitUntil(async () => (await label(gateway.endpoint())).includes(' new'));
});

test('keys of a broken file are valid, and those of the last good one are not', TIMEOUT, async () => {
  const keys = (name: string) => ({
    auth: { apiKeys: [{ name, sha256: createHash('sha256').update(name).digest('hex') }] },
  });
  await runOnce({ mcpServers: { a: server }, gateway: keys('old') });
  await using gateway = await start({ ...broken, gateway: keys('new') });
  const asked = await post(gateway.endpoint(), rpc(1, 'ping'), undefined, { authorization: 'Bearer old' });
  assert.equal(asked.status, 401);
  assert.match(await label(gateway.endpoint(), { authorization: 'Bearer new' }), /content/);
});

test('a start with a wrong gateway section fails with a reason in spite of --last-good', TIMEOUT, async () => {
  await runOnce({ mcpServers: { a: server } });
  const start2 = start({ ...broken, gateway: { limits: { processes: 'many' } } });
  await assert.rejects(start2, /--last-good: .*never come from an older file[^]*gateway\.limits\.processes/);
});

test('a start without --last-good fails; the next good one removes the copy', TIMEOUT, async () => {
  await assert.rejects(start(broken), /--last-good: there is no last good version[^]*isolation/);
  await runOnce({ mcpServers: { a: server } });
  await assert.rejects(start(broken, []), /isolation/);
  assert.ok((await readdir(join(dir, 'state'))).includes(COPY));
  await runOnce({ mcpServers: { a: server } }, []);
  assert.ok(!(await readdir(join(dir, 'state'))).includes(COPY));
});

test('a reload renews the copy, and a copy that others could write is not used', TIMEOUT, async () => {
  {
    await using gateway = await start({ mcpServers: {} });
    await gateway.configure({ mcpServers: { a: { ...server, env: { LABEL: 'reloaded' } } } });
    await gateway.waitForLog((line) => (line.includes('"config applied"') ? line : undefined));
  }
  {
    await using gateway = await start(broken);
    assert.match(await label(gateway.endpoint()), / reloaded"/);
  }
  await chmod(join(dir, 'state', COPY), 0o666);
  await assert.rejects(start(broken), /could have been written by another user/);
});
