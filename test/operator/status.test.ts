import assert from 'node:assert/strict';
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { test } from 'node:test';
import { Client, StreamableHTTPClientTransport } from '@modelcontextprotocol/client';
import { runCli } from '../support/cli.ts';
import { startGateway } from '../support/gateway.ts';
import { hostileStdio, Ledgers } from '../support/hostile.ts';
import { waitUntil } from '../support/wait-until.ts';

// N-12
test('/status counts what is offered, and names what is filtered and quarantined', { timeout: 120_000 }, async () => {
  const dir = await mkdtemp(join(tmpdir(), 'linkspan-status-'));
  try {
    const server = { ...hostileStdio('names', new Ledgers(dir)), excludeTools: ['fine'] };
    await using gateway = await startGateway({ mcpServers: { names: server } });
    const client = new Client({ name: 'operator', version: '1' });
    await client.connect(new StreamableHTTPClientTransport(new URL(gateway.endpoint())));
    const { tools } = await client.listTools();
    await client.close();

    const { upstreams } = JSON.parse(await (await fetch(`${gateway.operatorUrl}/status`)).text());
    const [status] = upstreams;
    assert.equal(status.tools, tools.length);
    assert.equal(status.filteredTools, 1);
    const line = await gateway.waitForLog((one) => (one.includes('"upstream lists"') ? one : undefined));
    const logged = JSON.parse(line);
    assert.equal(logged.offeredTools, logged.tools - 1, 'the log knows the filter too');
    const left: string[] = status.eras.legacy.listProblems.filter((one: string) => one.includes('item left out'));
    assert.ok(
      left.some((one) => one.startsWith('tool "twin": item left out: ')),
      left.join('\n'),
    );
    // The hostile list has eleven items; one stands for each.
    assert.equal(status.tools + status.filteredTools + left.length, 11);
  } finally {
    await rm(dir, { recursive: true, force: true });
  }
});

test('status says since when an upstream is down, and when it is tried again', { timeout: 120_000 }, async () => {
  const before = new Date().toISOString();
  await using gateway = await startGateway({ mcpServers: { web: { url: 'http://127.0.0.1:9/mcp', required: true } } });
  const read = async () => JSON.parse(await (await fetch(`${gateway.operatorUrl}/status`)).text()).upstreams[0];
  await waitUntil(async () => (await read()).state === 'failed');
  const { since } = await read();
  assert.ok(before <= since && since <= new Date().toISOString(), since);
  const seen = new Set<string>();
  // The pause grows with each attempt.
  await waitUntil(async () => {
    const now = await read();
    seen.add(now.since);
    return now.retryInSeconds > 1;
  });
  assert.deepEqual([...seen], [since], 'attempts change nothing');
  const { stdout } = await runCli(['status', '--config', gateway.configFile], tmpdir(), {}, 30_000);
  assert.match(stdout, new RegExp(`^ +Since ${since}(?:, not tried again for \\d+ s)?$`, 'm'));
});
