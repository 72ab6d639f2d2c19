import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { join } from 'node:path';
import { test } from 'node:test';
import { setTimeout as sleep } from 'node:timers/promises';
import { runCli } from '../../support/cli.ts';
import { startGateway } from '../../support/gateway.ts';
import { act } from '../../support/nonce-remote.ts';
import { MAIN } from '../../support/program.ts';

const FIXTURES = join(import.meta.dirname, '../../fixtures');
const BOUNDED = { timeout: 120_000 };
/** Longer than `fetch` waits with `short-fetch.ts`, in which it fails after a second. */
const SLOW_MS = 3_000; // subject
const SHORT_FETCH = { NODE_OPTIONS: `--import=${join(FIXTURES, 'short-fetch.ts')}` };

const start = () =>
  startGateway({
    mcpServers: { nonce: { command: process.execPath, args: [join(FIXTURES, 'servers/nonce-stdio.ts')] } },
  });

test('call waits for a slow tool longer than fetch waits for a response', BOUNDED, async () => {
  await using gateway = await start();
  const args = JSON.stringify(act('nonce:1:1;', [], { pauseMs: SLOW_MS })['arguments']);
  const command = ['call', 'nonce__act', args, '--config', gateway.configFile];
  const { code, stdout, stderr } = await runCli(command, gateway.dir, { HOME: gateway.dir, ...SHORT_FETCH }, 60_000);
  assert.equal(code, 0, stderr);
  assert.match(stdout, /nonce:1:1;/);
});

test('logs -f follows a log that is silent for longer than fetch waits', BOUNDED, async () => {
  await using gateway = await start();
  const env = { HOME: gateway.dir, ...SHORT_FETCH };
  const child = spawn(process.execPath, [MAIN, 'logs', '-f', '--config', gateway.configFile], {
    cwd: gateway.dir,
    env,
  });
  const ended = once(child, 'exit');
  const first = await Promise.race([ended, sleep(SLOW_MS + 2_000, 'it runs')]); // subject
  assert.equal(first, 'it runs');
  child.kill('SIGINT');
  assert.deepEqual(await ended, [0, null]);
});
