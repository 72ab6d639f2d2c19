import assert from 'node:assert/strict';
import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { test } from 'node:test';
import { initialize, post, rpc } from '../downstream/client.ts';
import { startGateway } from '../support/gateway.ts';
import { legacyUpstream } from '../support/http-upstream.ts';

const CANARY = 'canary-5f1c9d';
let made = 0;

/** Returns a text that no log line may have. */
function canary(): string {
  return `${CANARY}-${++made}`;
}

/** Prints its secrets on stderr, as servers do in messages about them, and ends. */
const TALKS = `console.error('ERROR: refused', process.env.API_KEY, process.argv.slice(1).join(' ')); process.exit(1)`;

test('no secret of the config is in any line at level trace, whatever fails', { timeout: 120_000 }, async () => {
  await using upstream = await legacyUpstream({ tools: [] });
  const headers = { Authorization: `Bearer ${canary()}`, 'X-Key': canary() };
  const dir = await mkdtemp(join(tmpdir(), 'linkspan-npx-'));
  const npx = join(dir, 'npx');
  // As npm does in its messages.
  await writeFile(npx, '#!/bin/sh\necho "npm error: cannot run $*" >&2\nexit 1\n', { mode: 0o700 });
  const good = {
    remote: { url: `${upstream.url}?key=${canary()}`, headers, start: 'eager' },
    // Nothing listens there.
    refused: { url: `http://me:${canary()}@127.0.0.1:9/${canary()}`, headers, start: 'eager' },
    missing: { command: `/nowhere/program`, args: ['--token', canary()], env: { NAME: canary() }, start: 'eager' },
    talks: {
      command: process.execPath,
      args: ['-e', TALKS, '--', '--api-key', canary(), `--token=${canary()}`],
      env: { API_KEY: canary() },
      start: 'eager',
    },
    npx: { command: npx, args: ['-y', 'x', `--token=${canary()}`], start: 'eager' },
  };
  const gateway = { logLevel: 'trace', accessLog: 'all' };
  await using running = await startGateway({ mcpServers: good, gateway });
  const session = await initialize(running.endpoint());
  await post(running.endpoint(), rpc(1, 'tools/list'), session);
  const authorization = `Bearer ${canary()}`;
  await post(running.endpoint(), rpc(2, 'tools/call', { name: 'x', arguments: { password: canary() } }), session, {
    authorization,
  });
  await running.waitForLog((line) => (line.includes('"upstream process lost"') ? true : undefined));

  const rotated = { ...good, remote: { ...good.remote, headers: { 'X-Key': canary() } } };
  await running.configure({ mcpServers: rotated, gateway });
  await running.waitForLog((line) => (line.includes('"config applied"') ? true : undefined));
  const envFile = join(running.dir, 'a.env');
  await writeFile(envFile, `A=${canary()}\n`);
  await running.configure({ mcpServers: { ...rotated, new: { command: 'x', envFile, headers: canary() } }, gateway });
  await running.waitForLog((line) => (line.includes('config rejected') ? true : undefined));

  const logs = running.logs();
  const leaks = logs.split('\n').filter((line) => line.includes(CANARY));
  assert.deepEqual(leaks, []);
  assert.match(logs, /"severity":"error"/, 'stderr is logged');
  assert.match(logs, /ERROR: refused \[redacted\]/);
  assert.match(logs, /npm error: cannot run -y x --token=\[redacted\]/);
  assert.ok(!logs.includes(session.slice(0, 40)), 'the id of a session');
  await rm(dir, { recursive: true });
});
