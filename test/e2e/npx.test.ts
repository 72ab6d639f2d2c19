/** A server that npx starts. It is apart from the other tests, since npx may ask the registry. */
import assert from 'node:assert/strict';
import { join } from 'node:path';
import { test } from 'node:test';
import { initialize, post, rpc, send } from '../downstream/client.ts';
import { startGateway } from '../support/gateway.ts';
import { upstreamProcesses } from '../support/stdio.ts';
import { think } from '../support/thinking.ts';

const TIMEOUT = { timeout: 120_000 };
const ROOT = join(import.meta.dirname, '../..');

// N-07
test('an npx server is one process, started once for its lists and its first session', TIMEOUT, async () => {
  const thinking = {
    command: 'npx',
    args: ['-y', '@modelcontextprotocol/server-sequential-thinking'],
    cwd: ROOT,
    env: { npm_config_update_notifier: 'false' },
  };
  await using gateway = await startGateway({ mcpServers: { thinking } });
  const url = gateway.endpoint();
  const session = await initialize(url);
  await post(url, rpc(1, 'tools/list'), session);
  const before = upstreamProcesses(gateway.pid);
  assert.equal(before.length, 1);
  assert.deepEqual(await think(url, session), { thoughts: 1, lost: undefined });
  assert.deepEqual(upstreamProcesses(gateway.pid), before, 'no other process');
  const { text } = await send(`${gateway.operatorUrl}/status`, {});
  const [status] = JSON.parse(text).upstreams;
  assert.partialDeepStrictEqual(status, { id: 'thinking', connections: 1, processes: 1 });
  assert.ok(status.memoryBytes > 10 << 20, `${status.memoryBytes} bytes`);
  assert.equal(status.advice, undefined);
  await think(url, await initialize(url));
  const later = JSON.parse((await send(`${gateway.operatorUrl}/status`, {})).text).upstreams[0];
  assert.match(later.advice, /isolation: principal.*isolation: shared/);
  const isAboutTwo = (line: string) =>
    line.includes('"msg":"processes of upstreams"') && line.includes('"processes":2');
  const logged = JSON.parse(await gateway.waitForLog((line) => (isAboutTwo(line) ? line : undefined)));
  assert.match(logged.byUpstream.thinking.advice, /isolation: shared/);
  assert.ok(logged.byUpstream.thinking.memoryBytes > 20 << 20);
});
