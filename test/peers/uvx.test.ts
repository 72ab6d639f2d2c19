/** A published Python server, configured as its authors recommend: with `uvx`. */
import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import { readFileSync } from 'node:fs';
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
