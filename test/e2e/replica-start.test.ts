import assert from 'node:assert/strict';
import { randomBytes } from 'node:crypto';
import { test } from 'node:test';
import { initialize, post, rpc } from '../downstream/client.ts';
import { startGateway } from '../support/gateway.ts';
import { assertWithin } from '../support/promised-time.ts';
import { RedisServer } from '../support/redis.ts';
import { TcpRelay } from '../support/tcp-relay.ts';

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
