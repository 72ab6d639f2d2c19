import assert from 'node:assert/strict';
import { createHash } from 'node:crypto';
import { readFile, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { test } from 'node:test';
import { fileURLToPath } from 'node:url';
import { z } from 'zod';
import { ADMIN_PATH } from '../../src/operator/admin/routes.ts';
import { type Ran, runCli } from '../support/cli.ts';
import { freePort } from '../support/free-port.ts';
import { type RunningGateway, startGateway } from '../support/gateway.ts';
import { PATIENCE_MS } from '../support/patience.ts';
import { waitUntil } from '../support/wait-until.ts';

const TIMEOUT = { timeout: 120_000 };
const SERVER = fileURLToPath(new URL('../fixtures/servers/label-stdio.ts', import.meta.url));
/** Only operators reload here, so that each test knows when. */
const RELOAD = { watch: false, drain: '1s' };

/** Runs the command line on this gateway. */
function linkspan({ configFile, dir }: RunningGateway, ...args: readonly string[]): Promise<Ran> {
  return runCli([...args, '--config', configFile], dir, { HOME: dir }, PATIENCE_MS);
}

const OPERATOR_FILE = z.object({ url: z.string(), token: z.string() });

/** Returns how this user reaches the gateway, as its state directory says. */
async function operatorOf({ dir }: RunningGateway): Promise<z.output<typeof OPERATOR_FILE>> {
  return OPERATOR_FILE.parse(JSON.parse(await readFile(join(dir, 'state', 'operator.json'), 'utf8')));
}

async function ask<S extends z.ZodType>(
  gateway: RunningGateway,
  schema: S,
  path: string,
  { method = 'GET', body }: { readonly method?: string; readonly body?: object } = {},
): Promise<z.output<S>> {
  const { url, token } = await operatorOf(gateway);
  const response = await fetch(`${url}${ADMIN_PATH}${path}`, {
    method,
    headers: { Authorization: `Bearer ${token}`, 'Content-Type': 'application/json' },
    ...(body === undefined ? {} : { body: JSON.stringify(body) }),
  });
  const text = await response.text();
  assert.equal(response.status, 200, text);
  return schema.parse(JSON.parse(text));
}

const RELOADED = z.looseObject({
  outcome: z.string(),
  changes: z.array(z.string()),
  problems: z.array(z.string()),
  config: z.looseObject({ hash: z.string(), atRestart: z.array(z.string()) }),
});
const reload = (gateway: RunningGateway) => ask(gateway, RELOADED, '/config/reload', { method: 'POST', body: {} });

const local = { command: process.execPath, args: [SERVER] };

test('config diff shows what reload then does, and status what runs', TIMEOUT, async () => {
  await using gateway = await startGateway({ mcpServers: {}, gateway: { reload: RELOAD } });
  assert.deepEqual(
    [(await linkspan(gateway, 'config', 'diff')).code, (await linkspan(gateway, 'reload')).code],
    [0, 0],
    'nothing to do',
  );
  await gateway.configure({ mcpServers: { local }, gateway: { reload: RELOAD, accessLog: 'none' } });
  const diff = await linkspan(gateway, 'config', 'diff');
  assert.equal(diff.code, 1, diff.stderr);
  assert.match(diff.stdout, /^\+ mcpServers\.local \(stdio\)$/m);
  assert.match(diff.stdout, /^~ gateway\.accessLog: .*after a restart$/m);
  assert.match((await linkspan(gateway, 'ls')).stdout, /no upstreams/);

  const done = await linkspan(gateway, 'reload');
  assert.equal(done.code, 0, done.stderr);
  assert.match(done.stdout, /is applied/);
  assert.match((await linkspan(gateway, 'ls')).stdout, /^local +configured/m);
  assert.match((await linkspan(gateway, 'status')).stdout, /1 changed setting for the next start: /);
  const later = await linkspan(gateway, 'config', 'diff');
  assert.match(later.stdout, /differs from the running config:\n~ gateway\.accessLog: .*after a restart\n$/);
  const called = await linkspan(gateway, 'call', 'local__pid');
  assert.equal(called.code, 0, called.stderr);
});

test('reload exits with 1 for a file that cannot be used, and status says why', TIMEOUT, async () => {
  await using gateway = await startGateway({ mcpServers: {}, gateway: { reload: RELOAD } });
  await writeFile(
    gateway.configFile,
    '{"mcpServers": {}, "gateway": {"lissten": 1, "lissts": 1, "stateDir": "state"}}',
  );
  const at = ['--state-dir', join(gateway.dir, 'state')];
  const diff = await linkspan(gateway, 'config', 'diff', ...at);
  assert.deepEqual([diff.code, /cannot be used:\n.*lissten/.test(diff.stdout)], [1, true], diff.stdout);
  const rejected = await linkspan(gateway, 'reload', ...at);
  assert.equal(rejected.code, 1, rejected.stderr);
  assert.match(rejected.stdout, /the running config stays.*\n.*config\.json:1:\d+ gateway\.lissten/);
  const shown = (await linkspan(gateway, 'status', ...at)).stdout;
  assert.match(shown, /rejected at .*lissten.*\n +\S*config\.json:1:\d+ gateway\.lissts/);
  const status = await (await fetch(`${gateway.operatorUrl}/status`)).text();
  assert.match(status, /"rejected":\{"at":"[^"]+","reason":"[^"]*lissten/);
});

test('a level that an operator has set stays until the file has another one', TIMEOUT, async () => {
  const level = async () => (await ask(gateway, z.looseObject({ level: z.string() }), '/log-level')).level;
  await using gateway = await startGateway({ mcpServers: {}, gateway: { reload: RELOAD, logLevel: 'info' } });
  await ask(gateway, z.looseObject({}), '/log-level', { method: 'PUT', body: { level: 'error' } });
  await gateway.configure({ mcpServers: { local }, gateway: { reload: RELOAD, logLevel: 'info' } });
  assert.equal((await reload(gateway)).outcome, 'applied');
  assert.equal(await level(), 'error');
  await gateway.configure({ mcpServers: { local }, gateway: { reload: RELOAD, logLevel: 'warn' } });
  assert.deepEqual((await reload(gateway)).changes, ['~ gateway.logLevel: "info" → "warn"']);
  assert.equal(await level(), 'warn');
  await ask(gateway, z.looseObject({}), '/log-level', { method: 'PUT', body: { level: 'error' } });
  await gateway.configure({ mcpServers: {}, gateway: { reload: RELOAD, logLevel: 'warn' } });
  assert.equal((await reload(gateway)).outcome, 'applied');
  assert.equal(await level(), 'error');
});

test('a removed key of an operator is refused at once, and its log stream ends', TIMEOUT, async () => {
  const keyOf = (name: string) => ({ name, sha256: createHash('sha256').update(name).digest('hex') });
  const file = (...names: string[]) => ({
    mcpServers: {},
    gateway: { reload: RELOAD, logLevel: 'info', operatorKeys: names.map(keyOf) },
  });
  await using gateway = await startGateway(file('ann', 'bob'));
  const asOperator = (name: string, path: string) =>
    fetch(`${gateway.operatorUrl}${ADMIN_PATH}${path}`, { headers: { Authorization: `Bearer ${name}` } });
  const [ann, bob] = [await asOperator('ann', '/log?follow=true'), await asOperator('bob', '/log?follow=true')];
  await gateway.configure(file('bob', 'cy'));
  const { changes } = await reload(gateway);
  assert.deepEqual(changes, ['~ gateway.operatorKeys: set → set (not shown)']);
  assert.deepEqual(
    await Promise.all(['ann', 'bob', 'cy'].map(async (name) => (await asOperator(name, '/status')).status)),
    [401, 200, 200],
  );
  assert.doesNotMatch(await ann.text(), /config applied/);
  const lines = bob.body?.pipeThrough(new TextDecoderStream());
  assert.ok(lines !== undefined);
  let text = '';
  for await (const chunk of lines) {
    text += chunk;
    if (text.includes('config applied')) break;
  }
});

test('the command line finds a gateway whose ports have moved', TIMEOUT, async () => {
  await using gateway = await startGateway({ mcpServers: {}, gateway: { reload: RELOAD } });
  const before = await operatorOf(gateway);
  const [listen, operator] = [`127.0.0.1:${await freePort()}`, `127.0.0.1:${await freePort()}`];
  await gateway.configure({ mcpServers: {}, gateway: { reload: RELOAD, listen, operator } });
  await reload(gateway);
  assert.deepEqual(await operatorOf(gateway), { url: `http://${operator}`, token: before.token });
  const { endpoint } = await ask(gateway, z.looseObject({ endpoint: z.string() }), '/status');
  assert.equal(endpoint, `http://${listen}/mcp`);
  assert.equal((await linkspan(gateway, 'status')).code, 0);

  await gateway.configure({ mcpServers: {}, gateway: { reload: RELOAD, listen, operator: false } });
  await reload(gateway);
  await assert.rejects(operatorOf(gateway), { code: 'ENOENT' });
  assert.equal((await linkspan(gateway, 'status')).code, 4);
  await waitUntil(() => gateway.logs().includes('config applied'));
});

test('the watch of the file follows its setting', TIMEOUT, async () => {
  await using gateway = await startGateway({ mcpServers: {}, gateway: { reload: RELOAD } });
  await gateway.configure({ mcpServers: {}, gateway: { reload: { ...RELOAD, watch: true } } });
  assert.equal((await reload(gateway)).outcome, 'applied');
  await gateway.configure({ mcpServers: { local }, gateway: { reload: { ...RELOAD, watch: true } } });
  const COUNT = z.looseObject({ upstreams: z.looseObject({ total: z.number() }) });
  await waitUntil(async () => (await ask(gateway, COUNT, '/status')).upstreams.total === 1);
});
