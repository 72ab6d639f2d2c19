import assert from 'node:assert/strict';
import { chown, mkdir, mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, test } from 'node:test';
import { EXIT } from '../../../src/cli/operator/cli-error.ts';
import { findGateway } from '../../../src/cli/operator/running-gateway.ts';
import { readOperatorFile, writeOperatorFile } from '../../../src/store/disk/operator-file.ts';
import { runCli } from '../../support/cli.ts';
import { startGateway } from '../../support/gateway.ts';

const BOUNDED = { timeout: 120_000 };
const AS_ROOT = { timeout: 120_000, skip: process.geteuid?.() !== 0 && 'only root can give files away' };
const SERVICE_UID = 65_534;

let dir = '';

before(async () => {
  dir = await mkdtemp(join(tmpdir(), 'linkspan-target-'));
});

after(async () => {
  await rm(dir, { recursive: true, force: true });
});

/** Writes what a gateway of the service's user leaves in its state directory. Returns that directory. */
async function stateOfService(root: string, url: string): Promise<string> {
  const state = join(root, 'linkspan', 'abc');
  await mkdir(state, { recursive: true, mode: 0o700 });
  const names = { version: '0', configFile: '/etc/linkspan/linkspan.yaml', startedAt: '' };
  await writeOperatorFile(state, { url, token: 'token', pid: process.pid, ...names });
  await chown(join(state, 'operator.json'), SERVICE_UID, SERVICE_UID);
  await chown(state, SERVICE_UID, SERVICE_UID);
  return state;
}

test('root finds the gateway of the systemd unit without an option', AS_ROOT, async () => {
  const root = await mkdtemp(join(dir, 'service-'));
  await stateOfService(root, 'http://127.0.0.1:1');
  const found = await findGateway({}, dir, { HOME: dir }, join(root, 'linkspan'));
  assert.deepEqual([found.url, found.token], ['http://127.0.0.1:1', 'token']);
});

test('root finds the gateway of another user by its state directory or XDG_STATE_HOME', AS_ROOT, async () => {
  const root = await mkdtemp(join(dir, 'named-'));
  const stateDir = await stateOfService(root, 'http://127.0.0.1:1');
  assert.equal((await findGateway({ stateDir }, dir, {})).token, 'token');
  assert.equal((await findGateway({}, dir, { XDG_STATE_HOME: root })).token, 'token');
});

test('a config file in the current folder leads root to no gateway of another user', AS_ROOT, async () => {
  const root = await mkdtemp(join(dir, 'planted-'));
  const stateDir = await stateOfService(root, 'http://127.0.0.1:1');
  const config = join(root, 'linkspan.json');
  await writeFile(config, JSON.stringify({ mcpServers: {}, gateway: { stateDir } }));
  await assert.rejects(findGateway({}, root, {}), { exitCode: EXIT.unauthorized });
  assert.equal((await findGateway({ config }, root, {})).token, 'token');
});

// N-80
test('a gateway with its file in two state directories is the only one', BOUNDED, async () => {
  const root = await mkdtemp(join(dir, 'twice-'));
  const content = {
    url: 'http://127.0.0.1:1',
    token: 'token',
    pid: process.pid,
    version: '0',
    configFile: '/a',
    startedAt: '',
  };
  for (const name of ['own', 'abc']) await writeOperatorFile(join(root, 'linkspan', name), content);
  assert.equal((await findGateway({}, dir, { XDG_STATE_HOME: root }, join(root, 'none'))).token, 'token');
});

test('a file that a killed gateway left is not mistaken for a second gateway', BOUNDED, async () => {
  const root = await mkdtemp(join(dir, 'killed-'));
  await using gateway = await startGateway({ mcpServers: {} });
  const own = await readOperatorFile(join(gateway.dir, 'state'));
  assert.ok(own);
  const left = { ...own, token: 'of-the-killed-one', pid: process.pid, configFile: '/killed' };
  const files = { running: own, refused: { ...left, token: 'other', url: 'http://127.0.0.1:1' }, foreign: left };
  for (const [name, content] of Object.entries(files)) await writeOperatorFile(join(root, 'linkspan', name), content);
  const env = { XDG_STATE_HOME: root };
  assert.equal((await findGateway({}, dir, env, join(root, 'none'))).token, own.token);

  await using second = await startGateway({ mcpServers: {} });
  const other = await readOperatorFile(join(second.dir, 'state'));
  assert.ok(other);
  await writeOperatorFile(join(root, 'linkspan', 'second'), other);
  const both = /more than one gateway runs; choose one with --config: (?:(?!killed).)*$/;
  await assert.rejects(findGateway({}, dir, env, join(root, 'none')), both);
});

test('root sees the status of a gateway that another user runs', AS_ROOT, async () => {
  await using gateway = await startGateway({ mcpServers: {} });
  const state = join(gateway.dir, 'state');
  await chown(join(state, 'operator.json'), SERVICE_UID, SERVICE_UID);
  await chown(state, SERVICE_UID, SERVICE_UID);
  const ran = await runCli(['status', '--state-dir', state], dir, { HOME: dir }, 30_000);
  assert.deepEqual([ran.code, ran.stderr], [0, '']);
  assert.match(ran.stdout, new RegExp(`process ${gateway.pid}`));
});
