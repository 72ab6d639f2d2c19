import assert from 'node:assert/strict';
import { once } from 'node:events';
import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { connect } from 'node:net';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { after, before, test } from 'node:test';
import { fileURLToPath } from 'node:url';
import { Child } from '../support/child.ts';
import { marker } from '../support/leftovers.ts';
import { environmentOn } from '../support/node-versions.ts';
import { childrenOf, isGone, until } from '../support/stdio.ts';

const ROOT = fileURLToPath(new URL('../../', import.meta.url));
const SERVER = fileURLToPath(new URL('../fixtures/servers/pid-stdio.ts', import.meta.url));
const BOUNDED = { timeout: 60_000 };
const WAIT_MS = 30_000;

let dir = '';
let config = '';
let env: Readonly<Record<string, string>> = {};

before(async () => {
  dir = await mkdtemp(join(tmpdir(), 'linkspan-npm-'));
  config = join(dir, 'config.json');
  const gateway = { listen: '127.0.0.1:0', operator: '127.0.0.1:0', stateDir: join(dir, 'state') };
  const pid = { command: process.execPath, args: [SERVER], env: marker() };
  await writeFile(config, JSON.stringify({ mcpServers: { pid }, gateway }));
  env = environmentOn(dirname(process.execPath), { HOME: dir });
});

after(async () => {
  await rm(dir, { recursive: true, force: true });
});

/** Resolves with the first group of a log line that matches. */
function found(child: Child, pattern: RegExp): Promise<string> {
  return child.waitForLine((line) => pattern.exec(line)?.[1], WAIT_MS);
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
