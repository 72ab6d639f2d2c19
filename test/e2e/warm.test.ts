import assert from 'node:assert/strict';
import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { test } from 'node:test';
import { SECOND_SIGNAL_MS } from '../../src/cli/signals.ts';
import { Child } from '../support/child.ts';
import { startGateway } from '../support/gateway.ts';
import { hostileStdio, Ledgers } from '../support/hostile.ts';
import { marker } from '../support/leftovers.ts';
import { PATIENCE_MS } from '../support/patience.ts';
import { referenceServers } from '../support/reference-servers.ts';
import { connectSdk1 } from '../support/sdk-client.ts';
import { waitUntil } from '../support/wait-until.ts';
import { MAIN } from '../support/program.ts';
import { workersOf } from '../support/workers.ts';

const TIMEOUT = { timeout: 120_000 };

const { everything, 'sequential-thinking': thinking } = referenceServers(tmpdir());
/** A server that reads and prints nothing until its stdin ends. */
const hangs = {
  command: process.execPath,
  args: ['-e', "process.stdin.on('end', () => process.exit()).resume()"],
  timeouts: { start: '1s' },
};
/** Longer than a test may take. */
const PATIENT = { start: '5m', call: '5m' };
/** Lists wait for no upstream, so that the client sees the tools that were known before its request. */
const PATIENCE = { lists: { wait: '0s' } };

/** Returns the upstreams in the first list of the first client. */
async function firstList(url: string): Promise<readonly string[]> {
  await using sdk = await connectSdk1(url);
  const { tools } = await sdk.client.listTools();
  return [...new Set(tools.map(({ name }) => name.split('__', 1)[0] ?? ''))].toSorted();
}

/** Calls `use` with an empty folder, and removes it. */
async function inFolder(use: (dir: string) => Promise<void>): Promise<void> {
  const dir = await mkdtemp(join(tmpdir(), 'linkspan-warm-'));
  try {
    await use(dir);
  } finally {
    await rm(dir, { recursive: true, force: true });
  }
}

// N-05
test('without --warm the first client of a first start finds no tools yet', TIMEOUT, async () => {
  await inFolder(async (dir) => {
    const gate = join(dir, 'gate');
    const slow = hostileStdio('gated-start', new Ledgers(dir), PATIENT, { GATE: gate });
    await using gateway = await startGateway({ mcpServers: { slow }, gateway: PATIENCE });
    assert.deepEqual(await firstList(gateway.endpoint()), []);
    // The upstream was starting, and has tools as soon as it may start.
    await writeFile(gate, '');
    await waitUntil(async () => (await firstList(gateway.endpoint())).includes('slow'));
  });
});

// N-05
test('after run --warm the first client of a first start finds all tools', TIMEOUT, async () => {
  const file = { mcpServers: { everything, thinking }, gateway: PATIENCE };
  await using gateway = await startGateway(file, { args: ['--warm'] });
  assert.deepEqual(await firstList(gateway.endpoint()), ['everything', 'thinking']);
});

// N-05
test('after run --warm initialize has the capabilities and instructions of upstreams', TIMEOUT, async () => {
  await using gateway = await startGateway({ mcpServers: { everything }, gateway: PATIENCE }, { args: ['--warm'] });
  await using sdk = await connectSdk1(gateway.endpoint());
  assert.ok(sdk.client.getServerCapabilities()?.logging);
  assert.match(sdk.client.getInstructions() ?? '', /server/i);
});

// N-05
test('run --warm listens without an upstream that does not start', TIMEOUT, async () => {
  const file = { mcpServers: { hangs, thinking }, gateway: PATIENCE };
  await using gateway = await startGateway(file, { args: ['--warm'] });
  assert.deepEqual(await firstList(gateway.endpoint()), ['thinking']);
});

// N-07
test('the process that run --warm started for its lists serves the first client', TIMEOUT, async () => {
  await inFolder(async (dir) => {
    const ledgers = new Ledgers(dir);
    const file = { mcpServers: { calm: hostileStdio('calm', ledgers, PATIENT) }, gateway: PATIENCE };
    await using gateway = await startGateway(file, { args: ['--warm'] });
    const started = ledgers.of('calm').filter(({ what }) => what === 'start');
    assert.equal(started.length, 1);
    await using sdk = await connectSdk1(gateway.endpoint());
    await sdk.client.callTool({ name: 'calm__fine' });
    const called = ledgers.of('calm').filter(({ what }) => what !== 'start');
    assert.deepEqual(called, [{ what: 'call fine', pid: started[0]?.pid }]);
    assert.equal(ledgers.count('calm', 'start'), 1);
  });
});

/** Starts a gateway that waits for an upstream before it listens. */
async function startWaiting(dir: string, workers: number): Promise<Child> {
  const config = join(dir, 'config.json');
  const slow = { ...hangs, env: marker(), timeouts: { start: '5m' } };
  const gateway = { listen: '127.0.0.1:0', operator: '127.0.0.1:0', stateDir: join(dir, 'state'), workers };
  await writeFile(config, JSON.stringify({ mcpServers: { slow }, gateway }));
  const child = await Child.start(process.execPath, [MAIN, 'run', '--warm', '--config', config]);
  await child.waitForLine((line) => (line.includes('"phase":"starting"') ? line : undefined));
  return child;
}

for (const workers of [1, 2]) {
  // N-05
  test(`run --warm ends at SIGTERM while it waits for an upstream (workers: ${workers})`, TIMEOUT, async () => {
    await inFolder(async (dir) => {
      await using child = await startWaiting(dir, workers);
      assert.deepEqual(await child.stop(PATIENCE_MS), { code: 0, signal: null });
    });
  });
}

// N-08
test('SIGHUP and SIGUSR2 during run --warm have their effect after it', TIMEOUT, async () => {
  await inFolder(async (dir) => {
    const [config, gate] = [join(dir, 'config.json'), join(dir, 'gate')];
    const slow = hostileStdio('gated-start', new Ledgers(dir), PATIENT, { GATE: gate });
    const gateway = { listen: '127.0.0.1:0', operator: false, stateDir: join(dir, 'state') };
    await writeFile(config, JSON.stringify({ mcpServers: { slow }, gateway }));
    await using child = await Child.start(process.execPath, [MAIN, 'run', '--warm', '--config', config]);
    await child.waitForLine((line) => (line.includes('"phase":"starting"') ? line : undefined));
    child.kill('SIGHUP');
    child.kill('SIGUSR2');
    await writeFile(gate, '');
    await child.waitForLine((line) => (line.includes('sealing keys rotated') ? line : undefined));
    await child.waitForLine((line) => (/"cause":"signal".*config is unchanged/.test(line) ? line : undefined));
    assert.doesNotMatch(child.logs(), /has no effect/);
  });
});

test('a second signal ends a start that does not end', TIMEOUT, async () => {
  await inFolder(async (dir) => {
    await using child = await startWaiting(dir, 2);
    const stopped = await workersOf(child);
    for (const pid of stopped) process.kill(pid, 'SIGSTOP');
    child.kill('SIGTERM');
    // The gateway may receive the first one late, and the next one then comes too soon.
    const again = setInterval(() => child.kill('SIGTERM'), SECOND_SIGNAL_MS);
    try {
      assert.deepEqual(await child.ended, { code: 130, signal: null });
    } finally {
      clearInterval(again);
      for (const pid of stopped) process.kill(pid, 'SIGKILL');
    }
  });
});
