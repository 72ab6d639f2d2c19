import assert from 'node:assert/strict';
import { test } from 'node:test';
import { NEXT_SERIAL } from '../../../src/store/redis/scripts/session-scripts.ts';
import { checkRedis } from '../../../src/store/redis/start-checks.ts';
import { openRedis, redisConfig, RedisServer, sharedRedis, startCluster } from '../../support/redis.ts';
import { TcpRelay } from '../../support/tcp-relay.ts';

const OPTIONS = { timeout: 120_000 };
const redis = sharedRedis();
const now = () => Date.now();

/** The rights that docs/replicas.md tells operators to give. */
const RULES = [
  '~linkspan:*',
  '&linkspan:*',
  '-@all',
  '+@read',
  '+@write',
  '+@scripting',
  '+@pubsub',
  '+@connection',
  '+info',
  '+time',
];

test('a Redis with the defaults of Debian is accepted', OPTIONS, async () => {
  const { connection, keys } = await openRedis(redisConfig((await redis).url));
  await checkRedis(connection, keys, now);
});

test('a Redis that is older than version 7 is refused', OPTIONS, async () => {
  await using relay = await TcpRelay.open((await redis).port, (bytes) =>
    Buffer.from(bytes.toString('latin1').replace(/redis_version:\d/, 'redis_version:6'), 'latin1'),
  );
  const { connection, keys } = await openRedis(redisConfig(`redis://127.0.0.1:${relay.port}`));
  const message = /^Redis 6[.\d]* is too old \(gateway\.redis\.url\): version 7 or newer is needed$/;
  await assert.rejects(checkRedis(connection, keys, now), { name: 'StartError', message });
});

// SEC-14
test('a Redis that would evict sessions is refused', OPTIONS, async () => {
  await using server = await RedisServer.start('--maxmemory-policy', 'allkeys-lru');
  const { connection, keys } = await openRedis(redisConfig(server.url));
  await assert.rejects(checkRedis(connection, keys, now), { name: 'StartError', message: /allkeys-lru.*noeviction/ });
});

test('a clock that differs by more than 30 s is refused', OPTIONS, async () => {
  const { connection, keys } = await openRedis(redisConfig((await redis).url));
  for (const [offMs, words] of [
    [40_000, /40 s ahead of/],
    [-40_000, /40 s behind/],
  ] as const) {
    const shifted = () => Date.now() + offMs;
    await assert.rejects(checkRedis(connection, keys, shifted), { name: 'StartError', message: words });
  }
  await checkRedis(connection, keys, () => Date.now() + 20_000);
});

test('the documented rights are enough in a cluster', OPTIONS, async () => {
  await using cluster = await startCluster();
  for (const { url } of cluster.nodes) {
    const { connection } = await openRedis(redisConfig(url));
    await connection.command('ACL', 'SETUSER', 'linkspan', 'on', '>pw', ...RULES, '+cluster|slots', '+cluster|info');
  }
  const url = cluster.url.replace('://', '://linkspan:pw@');
  const { connection, keys } = await openRedis(redisConfig(url, { prefix: 'linkspan' }));
  await checkRedis(connection, keys, now);
});

test('the documented rights are enough, and a missing one is named', OPTIONS, async () => {
  const { port, url } = await redis;
  const { connection: admin } = await openRedis(redisConfig(url));
  const as = (user: string) => redisConfig(`redis://${user}:pw@127.0.0.1:${port}`, { prefix: 'linkspan' });
  await admin.command('ACL', 'SETUSER', 'linkspan', 'on', '>pw', ...RULES);
  const allowed = await openRedis(as('linkspan'));
  await checkRedis(allowed.connection, allowed.keys, now);
  const serial = allowed.keys.serial('anna');
  await allowed.connection.run(NEXT_SERIAL, serial, []);
  assert.match(String(await admin.command('GET', serial[1])), /^[0-9a-f]{40}$/, 'scripts may use INFO');

  for (const [missing, words] of [
    ['-@scripting', /scripts/],
    ['-publish', /scripts and all commands/],
    ['-subscribe', /SUBSCRIBE to linkspan:revoked:\*/],
    ['-info', /INFO server/],
    ['resetkeys', /scripts and all commands/],
  ] as const) {
    await admin.command('ACL', 'SETUSER', 'other', 'reset', 'on', '>pw', ...RULES, missing);
    const refused = await openRedis(as('other'));
    await assert.rejects(
      checkRedis(refused.connection, refused.keys, now),
      { name: 'StartError', message: words },
      missing,
    );
  }
});
