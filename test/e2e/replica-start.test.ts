import assert from 'node:assert/strict';
import { randomBytes } from 'node:crypto';
import { test } from 'node:test';
import { startGateway } from '../support/gateway.ts';
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
