/** Published servers of the Python SDK 2.x whose imports take longer than the gateway waits for their first answer. */
import assert from 'node:assert/strict';
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { test } from 'node:test';
import { offering } from '../conformance/offering.ts';
import { connect, textOf } from '../support/either-sdk.ts';
import { startGateway } from '../support/gateway.ts';
import { command } from './install/command.ts';
import { pythonWith } from './install/python.ts';

/** Longer than `uvx` takes to start without a download. */
const UP_MS = 20_000;

const python = await pythonWith('mcp2');

/** `sh` sleeps first, as on a slow disk: the process runs, and prints nothing. */
const late = (seconds: number, module: string, ...args: readonly string[]) => ({
  command: 'sh',
  args: ['-c', `sleep ${seconds}; exec "$0" "$@"`, python, '-m', module, ...args],
});

async function textFrom(server: object, tool: string, args: Readonly<Record<string, unknown>>): Promise<string> {
  await using gateway = await startGateway({ mcpServers: { late: { ...server } } });
  const name = `late__${tool}`;
  await using client = await offering(() => connect('SDK v1', gateway.endpoint()), [name], UP_MS);
  return textOf(await client.call(name, args));
}

for (const seconds of [0, 3, 5]) {
  // N-01
  test(`mcp-server-time that starts ${seconds} s late is listed and answers`, async () => {
    const text = await textFrom(late(seconds, 'mcp_server_time'), 'get_current_time', { timezone: 'Europe/Paris' });
    assert.match(text, /Europe\/Paris/);
  });
}

// N-01
test('mcp-server-git that starts 3 s late is listed and answers', async () => {
  const repository = await mkdtemp(join(tmpdir(), 'linkspan-git-'));
  try {
    await command('git', ['init', '--quiet', repository]);
    const server = late(3, 'mcp_server_git', '--repository', repository);
    assert.match(await textFrom(server, 'git_status', { repo_path: repository }), /No commits yet/);
  } finally {
    await rm(repository, { recursive: true, force: true });
  }
});

// N-01
test('mcp-server-fetch that starts 3 s late is listed and answers', async () => {
  const server = late(3, 'mcp_server_fetch', '--ignore-robots-txt');
  // Nothing listens at this address, so the text is the tool's own error.
  const text = await textFrom(server, 'fetch', { url: 'http://127.0.0.1:9/' });
  assert.match(text, /127\.0\.0\.1:9/);
});
