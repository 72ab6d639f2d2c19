import assert from 'node:assert/strict';
import { once } from 'node:events';
import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { connect } from 'node:net';
import { tmpdir } from 'node:os';
import { basename, dirname, join } from 'node:path';
import { after, before, test } from 'node:test';
import { fileURLToPath } from 'node:url';
import { Client } from '@modelcontextprotocol/client';
import { StdioClientTransport } from '@modelcontextprotocol/client/stdio';
import { Child } from '../support/child.ts';
import { marker } from '../support/leftovers.ts';
import { environmentOn } from '../support/node-versions.ts';
import { childrenOf, isGone, until } from '../support/stdio.ts';
import { waitUntil } from '../support/wait-until.ts';

const ROOT = fileURLToPath(new URL('../../', import.meta.url));
const SERVER = fileURLToPath(new URL('../fixtures/servers/pid-stdio.ts', import.meta.url));
const BOUNDED = { timeout: 120_000 };

let dir = '';
let config = '';
let env: Readonly<Record<string, string>> = {};

before(async () => {
  dir = await mkdtemp(join(tmpdir(), 'linkspan-npm-'));
  config = join(dir, 'config.json');
  const gateway = { listen: '127.0.0.1:0', operator: '127.0.0.1:0', stateDir: join(dir, 'state') };
  const pid = { command: process.execPath, args: [SERVER], env: marker() };
  await writeFile(config, JSON.stringify({ mcpServers: { pid, gone: { command: join(dir, 'gone') } }, gateway }));
  env = environmentOn(dirname(process.execPath), { HOME: dir });
});

after(async () => {
  await rm(dir, { recursive: true, force: true });
});

/** Resolves with the first group of a log line that matches. */
function found(child: Child, pattern: RegExp): Promise<string> {
  return child.waitForLine((line) => pattern.exec(line)?.[1]);
}

for (const args of [
  ['start', '--'],
  ['run', 'linkspan', '--', 'run'],
]) {
  // N-81
  test(`SIGTERM to the process of npm ${args.join(' ')} ends the gateway`, BOUNDED, async () => {
    const npm = await Child.start('npm', [...args, '--warm', '--config', config], { cwd: ROOT, env });
    const pid = Number(await found(npm, /"pid":(\d+).*"msg":"listening"/));
    try {
      const url = await found(npm, /"url":"([^"]+)".*"msg":"listening"/);
      const processes = [pid, ...childrenOf(pid)];
      assert.ok(processes.length > 1);
      npm.kill('SIGTERM');
      await npm.ended;
      await until(() => processes.every(isGone), 'the gateway and its servers have ended');
      const [refusal] = await once(connect(Number(new URL(url).port), '127.0.0.1'), 'error');
      assert.equal(refusal.code, 'ECONNREFUSED');
    } finally {
      if (!isGone(pid)) process.kill(pid, 'SIGKILL');
    }
  });
}

/** Runs an npm script to its end. */
async function npmRun(...args: readonly string[]): Promise<{ readonly code: number | null; readonly text: string }> {
  const npm = await Child.start('npm', ['run', '-s', 'linkspan', '--', ...args], { cwd: ROOT, env });
  const { code } = await npm.ended;
  return { code, text: npm.logs() };
}

// N-85
test('what a checkout prints about its commands can be run there', BOUNDED, async () => {
  const none = await npmRun('status', '--config', config);
  assert.equal(none.code, 4, none.text);
  assert.match(none.text, /Start one with "npm run -s linkspan -- run"/);

  await using npm = await Child.start('npm', ['start', '--', '--config', config], { cwd: ROOT, env, group: true });
  await found(npm, /("url").*"msg":"listening"/);
  const failed = await npmRun('restart', 'gone', '--config', config);
  assert.equal(failed.code, 1, failed.text);
  // The gateway tries again by itself, and names the step once that has failed.
  let step = '';
  await waitUntil(async () => {
    const { code, text } = await npmRun('status', '--config', config);
    assert.equal(code, 0, text);
    step = /npm run -s linkspan -- (restart gone)$/m.exec(text)?.[1] ?? '';
    return step !== '';
  });
  assert.equal((await npmRun(...step.split(' '), '--config', config)).code, 1);

  const help = await npmRun('--help');
  assert.match(help.text, /^Usage: npm run -s linkspan -- \[options\]/);
  assert.match(help.text, /\n {2}npm run -s linkspan -- status /);
});

// N-85
test('relative paths of a command in a checkout are those of the folder of its caller', BOUNDED, async () => {
  const args = ['--prefix', ROOT, 'run', '-s', 'linkspan', '--', 'validate', '--config', basename(config)];
  const npm = await Child.start('npm', args, { cwd: dir, env });
  await npm.ended;
  assert.match(npm.logs(), /config\.json is valid/);
});

// N-85
test('a client of a checkout starts the gateway as a program by npm', BOUNDED, async () => {
  const args = ['--prefix', ROOT, 'run', '-s', 'linkspan', '--', 'stdio', '--config', config];
  const transport = new StdioClientTransport({ command: 'npm', args, cwd: dir, env: { ...env }, stderr: 'ignore' });
  const client = new Client({ name: 'starter', version: '1' });
  await client.connect(transport);
  const { tools } = await client.listTools();
  assert.ok(tools.some(({ name }) => name === 'pid__pid'));
  await client.close();
});
