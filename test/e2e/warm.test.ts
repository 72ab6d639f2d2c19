import assert from 'node:assert/strict';
import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { test } from 'node:test';
import { fileURLToPath } from 'node:url';
import { Child } from '../support/child.ts';
import { startGateway } from '../support/gateway.ts';
import { marker } from '../support/leftovers.ts';
import { referenceServers } from '../support/reference-servers.ts';
import { connectSdk1 } from '../support/sdk-client.ts';
import { childrenOf } from '../support/stdio.ts';

const MAIN = fileURLToPath(new URL('../../src/main.ts', import.meta.url));
const TIMEOUT = { timeout: 60_000 };

const { everything, 'sequential-thinking': thinking } = referenceServers(tmpdir());
/** A server that reads and prints nothing until its stdin ends. */
const hangs = {
  command: process.execPath,
  args: ['-e', "process.stdin.on('end', () => process.exit()).resume()"],
  timeouts: { start: '1s' },
};
/** Lists wait for no upstream, so that the client sees the tools that were known before its request. */
const PATIENCE = { lists: { wait: '0s' } };

/** Returns the upstreams in the first list of the first client. */
async function firstList(url: string): Promise<readonly string[]> {
  await using sdk = await connectSdk1(url);
  const { tools } = await sdk.client.listTools();
  return [...new Set(tools.map(({ name }) => name.split('__', 1)[0] ?? ''))].toSorted();
}

test('N-05 without --warm the first client of a first start finds no tools yet', TIMEOUT, async () => {
  await using gateway = await startGateway({ mcpServers: { everything, thinking }, gateway: PATIENCE });
  assert.deepEqual(await firstList(gateway.endpoint()), []);
});

test('N-05 after run --warm the first client of a first start finds all tools', TIMEOUT, async () => {
  const file = { mcpServers: { everything, thinking }, gateway: PATIENCE };
  await using gateway = await startGateway(file, { args: ['--warm'] });
  assert.deepEqual(await firstList(gateway.endpoint()), ['everything', 'thinking']);
});

test('N-05 after run --warm initialize has the capabilities and instructions of upstreams', TIMEOUT, async () => {
  await using gateway = await startGateway({ mcpServers: { everything }, gateway: PATIENCE }, { args: ['--warm'] });
  await using sdk = await connectSdk1(gateway.endpoint());
  assert.ok(sdk.client.getServerCapabilities()?.logging);
  assert.match(sdk.client.getInstructions() ?? '', /server/i);
});

test('N-05 run --warm listens without an upstream that does not start', TIMEOUT, async () => {
  const file = { mcpServers: { hangs, thinking }, gateway: PATIENCE };
  await using gateway = await startGateway(file, { args: ['--warm'] });
  assert.deepEqual(await firstList(gateway.endpoint()), ['thinking']);
});

test('N-07 the process that run --warm started for its lists serves the first client', TIMEOUT, async () => {
  const file = { mcpServers: { thinking }, gateway: PATIENCE };
  await using gateway = await startGateway(file, { args: ['--warm'] });
  const started = childrenOf(gateway.pid);
  await using sdk = await connectSdk1(gateway.endpoint());
  const thought = { thought: 'one', thoughtNumber: 1, totalThoughts: 1, nextThoughtNeeded: false };
  await sdk.client.callTool({ name: 'thinking__sequentialthinking', arguments: thought });
  assert.deepEqual(childrenOf(gateway.pid), started);
});

test('N-05 run --warm ends at SIGTERM while it still waits for an upstream', TIMEOUT, async () => {
  const dir = await mkdtemp(join(tmpdir(), 'linkspan-warm-'));
  try {
    const config = join(dir, 'config.json');
    const slow = { ...hangs, env: marker(), timeouts: { start: '50s' } };
    const gateway = { listen: '127.0.0.1:0', operator: '127.0.0.1:0', stateDir: join(dir, 'state') };
    await writeFile(config, JSON.stringify({ mcpServers: { slow }, gateway }));
    await using child = await Child.start(process.execPath, [MAIN, 'run', '--warm', '--config', config]);
    await child.waitForLine((line) => (line.includes('"phase":"starting"') ? line : undefined), 20_000);
    assert.deepEqual(await child.stop(20_000), { code: 0, signal: null });
  } finally {
    await rm(dir, { recursive: true, force: true });
  }
});
