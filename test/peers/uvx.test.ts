/** A published Python server, configured as its authors recommend: with `uvx`. */
import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import { readFileSync } from 'node:fs';
import { mkdtempDisposable } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { test } from 'node:test';
import { offering } from '../conformance/offering.ts';
import { connect, textOf } from '../support/either-sdk.ts';
import { startGateway } from '../support/gateway.ts';
import { childrenOf } from '../support/stdio.ts';
import { uv } from './install/python.ts';

const NAME = 'time__get_current_time';
const UP_MS = 60_000;

const uvFile = await uv();
const time = { command: join(dirname(uvFile), 'uvx'), args: ['mcp-server-time'] };

function commandOf(pid: number): string {
  return readFileSync(`/proc/${pid}/cmdline`, 'latin1').replaceAll('\0', ' ');
}

// N-07
test("a uvx server runs without the process of uv, and holds uv's cache lock", async () => {
  await using gateway = await startGateway({ mcpServers: { time } });
  await using client = await offering(() => connect('SDK v1', gateway.endpoint()), [NAME], UP_MS);
  assert.match(textOf(await client.call(NAME, { timezone: 'Europe/Paris' })), /Europe\/Paris/);
  const servers = childrenOf(gateway.pid)
    .map(commandOf)
    .filter((command) => command.includes('mcp-server-time'));
  assert.equal(servers.length, 1, servers.join('\n'));
  assert.match(servers[0] ?? '', /python/);
  assert.doesNotMatch(servers[0] ?? '', /uvx? /);
  // uv would remove the files of a server whose wrapper has ended, if nothing held its lock.
  const cache = spawnSync(uvFile, ['cache', 'dir'], { encoding: 'utf8' }).stdout.trim();
  assert.equal(spawnSync('flock', ['--exclusive', '--nonblock', join(cache, '.lock'), 'true']).status, 1);
});

test('a uvx server that was installed as a tool runs without the process of uv', async () => {
  await using tools = await mkdtempDisposable(join(tmpdir(), 'linkspan-uv-tools-'));
  const env = { UV_TOOL_DIR: join(tools.path, 'tools'), UV_TOOL_BIN_DIR: join(tools.path, 'bin') };
  const installed = spawnSync(uvFile, ['tool', 'install', '--quiet', 'mcp-server-time'], {
    env: { ...process.env, ...env },
  });
  assert.equal(installed.status, 0, installed.stderr.toString());
  await using gateway = await startGateway({ mcpServers: { time: { ...time, env } } });
  await using _client = await offering(() => connect('SDK v1', gateway.endpoint()), [NAME], UP_MS);
  const servers = childrenOf(gateway.pid)
    .map(commandOf)
    .filter((command) => command.includes('mcp-server-time'));
  assert.equal(servers.length, 1, servers.join('\n'));
  assert.ok(servers[0]?.includes(env.UV_TOOL_DIR), servers[0]);
  assert.doesNotMatch(servers[0] ?? '', /uvx? /);
});

// N-07
test('a uvx server that does not exist fails with the error text of uv', async () => {
  const missing = { ...time, args: ['linkspan-test-there-is-no-such-package'] };
  await using gateway = await startGateway({ mcpServers: { missing } });
  await using _client = await connect('SDK v1', gateway.endpoint());
  await gateway.waitForLog(
    (line) => (line.includes('"phase":"failed"') && line.includes('package') ? line : undefined),
    UP_MS,
  );
});
