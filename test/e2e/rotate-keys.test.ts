import assert from 'node:assert/strict';
import { execFile } from 'node:child_process';
import { join } from 'node:path';
import { test } from 'node:test';
import { promisify } from 'node:util';
import { initialize, post, rpc } from '../downstream/client.ts';
import { type RunningGateway, startGateway } from '../support/gateway.ts';
import { waitUntil } from '../support/wait-until.ts';
import { MAIN } from '../support/program.ts';

const TIMEOUT = { timeout: 120_000 };
const LABEL = join(import.meta.dirname, '../fixtures/servers/label-stdio.ts');
const UPSTREAMS = { up: { command: process.execPath, args: [LABEL] } };

/** Runs `linkspan rotate-keys` for a gateway, and returns what it prints. */
async function rotate(gateway: RunningGateway, ...args: readonly string[]): Promise<string> {
  const command = [MAIN, 'rotate-keys', '--config', gateway.configFile, ...args];
  return (await promisify(execFile)(process.execPath, command)).stdout;
}

/** Returns the number of the key that sealed a session id: a JWE names it in its head. */
function keyOf(sessionId: string): unknown {
  return JSON.parse(Buffer.from(sessionId.split('.', 1)[0] ?? '', 'base64url').toString()).kid;
}

async function statusOf(gateway: RunningGateway, session: string): Promise<number> {
  return (await post(gateway.endpoint(), rpc(1, 'ping'), session)).status;
}

// SEC-30
test('a key rotation seals new sessions with another key, and keeps the old', TIMEOUT, async () => {
  await using gateway = await startGateway({ mcpServers: UPSTREAMS });
  const before = await initialize(gateway.endpoint());
  assert.match(await rotate(gateway), /^A new key seals .* Older ones are valid until 20\d\d-/);
  const between = await initialize(gateway.endpoint());
  gateway.kill('SIGUSR2');
  let rotations = 0;
  await gateway.waitForLog((line) => {
    if (line.includes('sealing keys rotated')) rotations++;
    return rotations === 2 ? true : undefined;
  });
  const sessions = [before, between, await initialize(gateway.endpoint())];
  assert.equal(new Set(sessions.map(keyOf)).size, 3);
  for (const session of sessions) assert.equal(await statusOf(gateway, session), 200);
  await assert.rejects(rotate(gateway, '--grace', 'soon'), /--grace: expected a duration such as/);
});

// SEC-30
test('no request of a session fails while keys rotate', TIMEOUT, async () => {
  await using gateway = await startGateway({ mcpServers: UPSTREAMS });
  const session = await initialize(gateway.endpoint());
  const statuses: number[] = [];
  const rotated = new AbortController();
  const requests = [1, 2, 3, 4].map(async () => {
    while (!rotated.signal.aborted) statuses.push(await statusOf(gateway, session));
  });
  for (let count = 0; count < 3; count++) await rotate(gateway);
  rotated.abort();
  await Promise.all(requests);
  assert.deepEqual([...new Set(statuses)], [200]);
});

// SEC-30
test('a rotation without grace ends all sessions', TIMEOUT, async () => {
  await using gateway = await startGateway({ mcpServers: UPSTREAMS });
  const before = await initialize(gateway.endpoint());
  assert.match(await rotate(gateway, '--grace', '0s'), /sessions have ended/);
  assert.equal(await statusOf(gateway, before), 404);
  assert.equal(await statusOf(gateway, await initialize(gateway.endpoint())), 200);
});

// SEC-30
test('a session in use ends with the grace of its key', TIMEOUT, async () => {
  await using gateway = await startGateway({ mcpServers: UPSTREAMS });
  const before = await initialize(gateway.endpoint());
  await rotate(gateway, '--grace', '1s');
  const after = await initialize(gateway.endpoint());
  await waitUntil(async () => (await statusOf(gateway, before)) === 404);
  assert.equal(await statusOf(gateway, after), 200);
});
