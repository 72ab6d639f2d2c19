import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import { createHash } from 'node:crypto';
import { existsSync } from 'node:fs';
import { mkdir, mkdtemp, readdir, readFile, rm, stat, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, test } from 'node:test';
import { firstKeyHash } from '../../src/store/disk/first-key.ts';
import { loadConfig } from '../../src/config/load.ts';
import { runCli } from '../support/cli.ts';
import { startGateway } from '../support/gateway.ts';
import { PATIENCE_MS } from '../support/patience.ts';
import { MAIN } from '../support/program.ts';

let dir = '';

beforeEach(async () => {
  dir = await mkdtemp(join(tmpdir(), 'linkspan-key-'));
});

afterEach(async () => {
  await rm(dir, { recursive: true, force: true });
});

const sha256 = (text: string): string => createHash('sha256').update(text).digest('hex');

test('the first start makes a key and shows it, later starts keep it and show nothing', async () => {
  const state = join(dir, 'state');
  const shown: string[] = [];
  const show = (key: string) => shown.push(key);
  const first = await firstKeyHash(state, show);
  const second = await firstKeyHash(state, show);

  assert.equal(shown.length, 1);
  assert.equal(first, sha256(shown[0] ?? ''));
  assert.equal(second, first);
  assert.deepEqual(await readdir(state), ['first-key.sha256']);
  assert.equal((await readFile(join(state, 'first-key.sha256'), 'utf8')).trim(), first);
  assert.equal((await stat(join(state, 'first-key.sha256'))).mode & 0o777, 0o600);
});

test('a key file with other text ends the start with the way out, and stays as it is', async () => {
  await writeFile(join(dir, 'first-key.sha256'), 'secret\n');
  await assert.rejects(
    firstKeyHash(dir, () => assert.fail('shown')),
    /does not hold a SHA-256; remove it/,
  );
  assert.equal(await readFile(join(dir, 'first-key.sha256'), 'utf8'), 'secret\n');
});

test('a state directory that cannot be written is named', async () => {
  await writeFile(join(dir, 'file'), '');
  await assert.rejects(
    firstKeyHash(join(dir, 'file', 'state'), () => assert.fail('shown')),
    /first-key\.sha256/,
  );
});

const FILE = { mcpServers: { a: { url: 'http://127.0.0.1:9/mcp' } } };

test('a config with authentication or with a mistake gets no first key', async () => {
  const file = join(dir, 'config.json');
  const load = (gateway: object) => {
    return writeFile(file, JSON.stringify({ ...FILE, gateway: { stateDir: dir, ...gateway } })).then(() =>
      loadConfig(file, { env: {}, firstKeyHash: () => assert.fail('made a key') }),
    );
  };
  const auth = { apiKeys: [{ name: 'own', sha256: sha256('x') }] };
  assert.deepEqual((await load({ listen: '0.0.0.0:3000', auth })).config.auth.apiKeys, auth.apiKeys);
  await assert.rejects(load({ listen: 'nowhere' }), /listen/);
});

test('without the option, an address that others can reach still needs authentication', async () => {
  const file = join(dir, 'config.json');
  await writeFile(file, JSON.stringify({ ...FILE, gateway: { listen: '0.0.0.0:3000' } }));
  await assert.rejects(loadConfig(file, { env: {} }), /open to the network without authentication/);
  const { config } = await loadConfig(file, { env: {}, firstKeyHash: () => sha256('x') });
  assert.deepEqual(config.auth.apiKeys, [{ name: 'first', sha256: sha256('x') }]);
});

test('--first-key shows the only key that is accepted, also after a reload', { timeout: 120_000 }, async () => {
  await mkdir(join(dir, 'state'));
  const initialize = {
    jsonrpc: '2.0',
    id: 1,
    method: 'initialize',
    params: { protocolVersion: '2025-11-25', capabilities: {}, clientInfo: { name: 'test', version: '1' } },
  };
  const file = { mcpServers: {}, gateway: { listen: '0.0.0.0:0' } };
  let key = '';
  for (const round of ['first', 'second']) {
    await using gateway = await startGateway(file, { args: ['--first-key'], dir });
    const { port } = new URL(gateway.url);
    const post = async (credential: string) => {
      const response = await fetch(`http://127.0.0.1:${port}/mcp`, {
        method: 'POST',
        headers: {
          'content-type': 'application/json',
          accept: 'application/json, text/event-stream',
          authorization: `Bearer ${credential}`,
        },
        body: JSON.stringify(initialize),
      });
      await response.body?.cancel();
      return response.status;
    };
    const shown = /^ {4}([\w-]{43})$/m.exec(gateway.logs())?.[1];
    if (round === 'first') key = shown ?? '';
    else assert.equal(shown, undefined);
    assert.equal(await post(key), 200, round);
    assert.equal(await post('x'.repeat(43)), 401, round);
    await gateway.configure({
      ...file,
      gateway: { ...file.gateway, lists: { wait: '1s' }, stateDir: join(dir, 'other') },
    });
    await gateway.waitForLog((line) => (line.includes('"config applied"') ? true : undefined));
    assert.equal(await post(key), 200, `${round}, reloaded`);
    assert.equal(await post('x'.repeat(43)), 401, `${round}, reloaded`);
  }
});

test('a difference that would make a first key shows the change and makes none', { timeout: 120_000 }, async () => {
  await mkdir(join(dir, 'state'));
  const listen = '0.0.0.0:0';
  const auth = { apiKeys: [{ name: 'own', sha256: sha256('x') }] };
  await using gateway = await startGateway(
    { mcpServers: {}, gateway: { listen, auth, reload: { watch: false } } },
    { args: ['--first-key'], dir },
  );
  await gateway.configure({ mcpServers: {}, gateway: { listen, reload: { watch: false } } });
  const keyFile = join(dir, 'state', 'first-key.sha256');
  const diff = () => runCli(['config', 'diff', '--config', gateway.configFile], dir, { HOME: dir }, 20_000);
  const before = await diff();
  assert.equal(before.code, 1, before.stderr);
  assert.match(before.stdout, /^~ gateway\.auth\.apiKeys: set → set \(not shown\)$/m);
  assert.equal(existsSync(keyFile), false, 'the difference makes no key');
  assert.doesNotMatch(gateway.logs(), /No API key is configured/);

  const reloaded = await runCli(['reload', '--config', gateway.configFile], dir, { HOME: dir }, 20_000);
  assert.equal(reloaded.code, 0, reloaded.stderr);
  assert.equal(existsSync(keyFile), true, 'the reload makes it');
  assert.equal((await diff()).code, 0, 'nothing is left to change');
});

test('a command that opens no port makes no first key', { timeout: 120_000 }, async () => {
  const file = join(dir, 'config.json');
  const env = { HOME: dir, LINKSPAN_FIRST_KEY: '1' };
  const configure = (stateDir: string) =>
    writeFile(file, JSON.stringify({ mcpServers: {}, gateway: { listen: '0.0.0.0:0', stateDir } }));
  await configure(join(dir, 'state'));
  const prefetched = await runCli(['prefetch', '--config', file], dir, env, 20_000);
  assert.equal(prefetched.code, 0, prefetched.stderr);
  assert.doesNotMatch(prefetched.stderr, /No API key/);
  assert.equal(existsSync(join(dir, 'state', 'first-key.sha256')), false);

  await writeFile(join(dir, 'file'), '');
  await configure(join(dir, 'file', 'state'));
  const served = spawnSync(process.execPath, [MAIN, 'stdio', '--config', file], {
    env,
    input: '',
    timeout: PATIENCE_MS,
  });
  assert.equal(served.status, 0, String(served.stderr));
  assert.doesNotMatch(String(served.stderr), /No API key/);
});
