import assert from 'node:assert/strict';
import { randomBytes } from 'node:crypto';
import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { test } from 'node:test';
import { initialize, post, rpc } from '../downstream/client.ts';
import { startGateway } from '../support/gateway.ts';
import { hostileStdio, Ledgers } from '../support/hostile.ts';
import { assertWithin } from '../support/promised-time.ts';
import { RedisServer } from '../support/redis.ts';
import { TcpRelay } from '../support/tcp-relay.ts';
import { waitUntil } from '../support/wait-until.ts';

/** The argument of the first check at the start, `INFO server`, which comes after the connection was found to work. */
const CHECK = '\r\nserver\r\n';

test('a replica starts although Redis is too slow for one of its checks', { timeout: 120_000 }, async () => {
  await using redis = await RedisServer.start();
  await using relay = await TcpRelay.open(redis.port);
  let checks = 0;
  relay.onClientBytes = (bytes) => {
    if (!bytes.includes(CHECK)) return;
    checks++;
    if (checks === 1) redis.pause();
    else redis.resume();
  };
  const url = `redis://127.0.0.1:${relay.port}`;
  const settings = { url, wrappingKeys: [randomBytes(32).toString('base64')] };
  await using gateway = await startGateway({ mcpServers: {}, gateway: { redis: settings } });
  assert.ok(checks > 1);
  assert.equal((await fetch(`${gateway.operatorUrl}/readyz`)).status, 200);
});

test('sessions of a replica with an unknown wrapping key are refused at once', { timeout: 120_000 }, async (t) => {
  await using redis = await RedisServer.start();
  const [old, next] = [randomBytes(32).toString('base64'), randomBytes(32).toString('base64')];
  const start = (...wrappingKeys: string[]) =>
    startGateway({ mcpServers: {}, gateway: { redis: { url: redis.url, wrappingKeys } } });
  await using older = await start(old);
  // The operator has left the first step out: the new key was to be added at the end everywhere.
  await using newer = await start(next, old);
  const session = await initialize(newer.endpoint());
  const line = await older.waitForLog((text) => (text.includes('encrypts with a wrapping key') ? text : undefined));
  assert.match(line, /Put a removed wrapping key back at the end/);
  // It waits for no lease.
  await assertWithin(t, 4_000, async () => {
    const beganMs = performance.now();
    const refused = await post(older.endpoint(), rpc(1, 'ping'), session);
    assert.equal(refused.status, 503, refused.text);
    assert.match(refused.text, /"code":"store-unavailable"/);
    return performance.now() - beganMs;
  });
  assert.equal((await post(newer.endpoint(), rpc(1, 'ping'), session)).status, 200);
  assert.equal(older.logs().split('encrypts with a wrapping key').length, 2, 'once');
});

// R10
test('a replica that does not serve yet gets no session of one that leaves', { timeout: 120_000 }, async () => {
  const dir = await mkdtemp(join(tmpdir(), 'linkspan-replica-start-'));
  try {
    const gate = join(dir, 'gate');
    const slow = hostileStdio('gated-start', new Ledgers(dir), { start: '5m', call: '5m' }, { GATE: gate });
    await using redis = await RedisServer.start();
    const gateway = { redis: { url: redis.url, wrappingKeys: [randomBytes(32).toString('base64')] } };
    await using leaving = await startGateway({ mcpServers: {}, gateway });
    await using other = await startGateway({ mcpServers: {}, gateway });
    const sessions = [await initialize(leaving.endpoint()), await initialize(leaving.endpoint())];
    const starting = startGateway({ mcpServers: { slow }, gateway }, { args: ['--warm'] });
    await waitUntil(async () => {
      const text = await (await fetch(`${leaving.operatorUrl}/metrics`)).text();
      return /^linkspan_replicas 3$/m.test(text);
    });
    leaving.kill('SIGTERM');
    await waitUntil(async () => (await fetch(`${leaving.operatorUrl}/readyz`)).status === 503);
    for (const url of [leaving.endpoint(), other.endpoint()]) {
      for (const session of sessions) {
        const got = await post(url, rpc(1, 'ping'), session);
        assert.equal(got.status, 200, got.text);
      }
    }
    await writeFile(gate, '');
    await using started = await starting;
    for (const session of sessions) {
      const got = await post(started.endpoint(), rpc(2, 'ping'), session);
      assert.equal(got.status, 200, got.text);
    }
  } finally {
    await rm(dir, { recursive: true, force: true });
  }
});
