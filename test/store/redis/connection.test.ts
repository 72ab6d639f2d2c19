import assert from 'node:assert/strict';
import { test } from 'node:test';
import { RedisConnection, type RedisTimes, scriptOf, type FailureReason } from '../../../src/store/redis/connection.ts';
import { PATIENCE_MS } from '../../support/patience.ts';
import { TcpRelay } from '../../support/tcp-relay.ts';
import { tcpSockets } from '../../support/tcp-table.ts';
import { redisConfig, RedisServer, sharedRedis, startCluster } from '../../support/redis.ts';
import { waitUntil } from '../../support/wait-until.ts';
import { freePort } from '../../support/free-port.ts';

const OPTIONS = { timeout: 120_000 };
const redis = sharedRedis();

const isUnavailable = { name: 'GatewayError', code: 'store-unavailable' };

/** @param times the longest times; those of the gateway if a timeout is the subject. */
async function open(
  server: RedisServer,
  failures: FailureReason[] = [],
  times: RedisTimes = { commandMs: PATIENCE_MS },
): Promise<RedisConnection> {
  const events = { onCommandFailed: (reason: FailureReason) => failures.push(reason) };
  return await RedisConnection.open(redisConfig(server.url), events, { startMs: PATIENCE_MS, ...times });
}

test('a script runs although Redis has forgotten it', OPTIONS, async () => {
  await using connection = await open(await redis);
  const script = scriptOf('return {KEYS[1], ARGV[1]}');
  for (let n = 0; n < 2; n++) {
    assert.deepEqual(await connection.run(script, ['a'], ['ü']), ['a', 'ü']);
    await connection.command('SCRIPT', 'FLUSH');
  }
});

test('an error of a script is not taken for a failure of Redis', OPTIONS, async () => {
  const failures: FailureReason[] = [];
  await using connection = await open(await redis, failures);
  for (let n = 0; n < 7; n++) {
    await assert.rejects(connection.run(scriptOf('return redis.call("GET")'), ['a'], []), { name: 'ReplyError' });
  }
  assert.equal(connection.failure, undefined);
  assert.deepEqual(failures, []);
});

// REL-28
test('commands end soon while Redis is stopped, then at once, and work after it', OPTIONS, async () => {
  await using server = await RedisServer.start();
  const failures: FailureReason[] = [];
  await using connection = await open(server, failures, {});
  server.pause();
  for (let n = 0; n < 5; n++) await assert.rejects(connection.command('PING'), isUnavailable);
  assert.match(connection.failure ?? '', /^Redis cannot be used: no answer within 250 ms$/);
  assert.deepEqual(new Set(failures), new Set(['timeout']));
  const count = failures.length;
  await assert.rejects(connection.command('PING'), isUnavailable);
  assert.equal(failures.length, count, 'the command was not sent');
  server.resume();
  await waitUntil(() =>
    connection.command('PING').then(
      () => true,
      () => false,
    ),
  );
  assert.equal(connection.failure, undefined);
});

// R12
test('an answer that has come is read, although the event loop was late', OPTIONS, async () => {
  const failures: FailureReason[] = [];
  const commandMs = 100;
  const server = await redis;
  await using connection = await open(server, failures, { commandMs });
  const hasAnswered = () => tcpSockets().some(({ remotePort, waiting }) => remotePort === server.port && waiting > 0);
  for (let n = 0; n < 8; n++) {
    const replying = connection.command('PING');
    // The command is on its way, and the loop stands for longer than it may take.
    await new Promise((resolve) => setImmediate(resolve));
    const untilMs = performance.now() + 2 * commandMs;
    while (performance.now() < untilMs || !hasAnswered());
    assert.equal(await replying, 'PONG');
  }
  assert.deepEqual(failures, []);
});

test('a patient connection repeats commands without an answer, not refused ones', OPTIONS, async () => {
  await using server = await RedisServer.start();
  const failures: FailureReason[] = [];
  const onCommandFailed = (reason: FailureReason): void => {
    failures.push(reason);
    server.resume();
  };
  await using connection = await RedisConnection.open(redisConfig(server.url), { onCommandFailed });
  connection.bePatient();
  server.pause();
  assert.equal(await connection.command('PING'), 'PONG');
  // Redis may need a while after it goes on.
  assert.deepEqual(new Set(failures), new Set(['timeout']));
  await assert.rejects(connection.command('GET'), { name: 'ReplyError' });
  connection.endPatience();
  server.pause();
  await assert.rejects(connection.command('PING'), isUnavailable);
});

// R12
test('a Redis that was killed is used again after its restart', OPTIONS, async () => {
  await using server = await RedisServer.start();
  const failures: FailureReason[] = [];
  await using connection = await open(server, failures);
  await server.kill();
  await assert.rejects(connection.command('PING'), isUnavailable);
  await server.restart();
  await waitUntil(() =>
    connection.command('PING').then(
      () => true,
      () => false,
    ),
  );
  assert.ok(failures.includes('connection'));
});

test('a full Redis refuses writes with a reason and answers reads', OPTIONS, async () => {
  await using server = await RedisServer.start('--maxmemory', '1mb', '--maxmemory-policy', 'noeviction');
  const failures: FailureReason[] = [];
  await using connection = await open(server, failures);
  await assert.rejects(
    connection.command('SET', 'a', 'x'.repeat(2_000_000)).then(() => connection.command('SET', 'b', 'x')),
    isUnavailable,
  );
  assert.equal(connection.failure, 'Redis is full (maxmemory) and refuses writes');
  assert.deepEqual(failures, ['full']);
  await connection.command('GET', 'b');
});

test('messages arrive, also after the connection was lost', OPTIONS, async () => {
  await using server = await RedisServer.start();
  await using connection = await open(server);
  const received: string[] = [];
  let restored = 0;
  await connection.subscribe('news', { onText: (text) => received.push(text), onMissed: () => restored++ });
  await connection.command('PUBLISH', 'news', 'one');
  await waitUntil(() => received.length === 1);
  await server.kill();
  await server.restart();
  await waitUntil(() => restored > 0);
  await waitUntil(async () => {
    await connection.command('PUBLISH', 'news', 'two').catch(() => undefined);
    return received.includes('two');
  });
});

test('a connection for messages that has died in silence is noticed', OPTIONS, async () => {
  await using relay = await TcpRelay.open((await redis).port);
  const config = redisConfig(`redis://127.0.0.1:${relay.port}`);
  await using connection = await RedisConnection.open(config, { onCommandFailed: () => undefined });
  let missed = 0;
  await connection.subscribe('news', { onText: () => undefined, onMissed: () => missed++ });
  const before = relay.connections;
  relay.pause();
  // The one for commands is made again too, when it is used.
  await waitUntil(() => relay.connections > before);
  assert.equal(missed, 0);
  relay.resume();
  await waitUntil(() => missed > 0);
});

test('in a cluster messages are missed when the channels move to another connection', OPTIONS, async () => {
  await using cluster = await startCluster();
  await using connection = await RedisConnection.open(redisConfig(cluster.url), { onCommandFailed: () => undefined });
  const received: string[] = [];
  let missed = 0;
  await connection.subscribe('news', { onText: (text) => received.push(text), onMissed: () => missed++ });
  for (const node of cluster.nodes) {
    await using direct = await open(node);
    await direct.command('CLIENT', 'KILL', 'TYPE', 'pubsub');
  }
  await waitUntil(() => missed > 0);
  await connection.command('PUBLISH', 'news', 'one');
  await waitUntil(() => received.length > 0);
  assert.equal(missed, 1);
});

test('a script that uses an entry of a slot under way to another node is unavailable', OPTIONS, async () => {
  await using cluster = await startCluster();
  await using connection = await RedisConnection.open(redisConfig(cluster.url), { onCommandFailed: () => undefined });
  await connection.command('SET', '{a}1', 'x');
  const slot = String(await connection.command('CLUSTER', 'KEYSLOT', '{a}1'));
  const [nodes, ids]: [RedisConnection[], string[]] = [[], []];
  await using stack = new AsyncDisposableStack();
  for (const node of cluster.nodes) {
    const direct = stack.use(await open(node));
    const hasSlot = (await direct.command('CLUSTER', 'COUNTKEYSINSLOT', slot)) === 1;
    nodes[hasSlot ? 'unshift' : 'push'](direct);
    ids[hasSlot ? 'unshift' : 'push'](String(await direct.command('CLUSTER', 'MYID')));
  }
  await nodes[1]?.command('CLUSTER', 'SETSLOT', slot, 'IMPORTING', ids[0] ?? '');
  await nodes[0]?.command('CLUSTER', 'SETSLOT', slot, 'MIGRATING', ids[1] ?? '');
  // It is not among the keys of the script, as entries whose names it reads from another one.
  const script = scriptOf('return redis.call("GET", KEYS[1] .. "2")');
  await assert.rejects(connection.run(script, ['{a}1'], []), isUnavailable);
});

test('a start with a cluster whose nodes announce an unreachable address ends', OPTIONS, async () => {
  const options = ['--cluster-enabled', 'yes', '--cluster-announce-ip', '127.0.0.9', '--cluster-announce-port', '1'];
  await using server = await RedisServer.start(...options);
  const config = redisConfig(`redis+cluster://127.0.0.1:${server.port}`);
  // The time is the subject.
  const opening = RedisConnection.open(config, { onCommandFailed: () => undefined }, { startMs: 500, commandMs: 200 });
  await assert.rejects(opening, { name: 'StartError', message: /^Redis cannot be used at 127\.0\.0\.1:\d+ \(gateway/ });
});

test('a connection that is lost again while its channels are restored ends nothing', OPTIONS, async () => {
  await using relay = await TcpRelay.open((await redis).port);
  const config = redisConfig(`redis://127.0.0.1:${relay.port}`);
  await using connection = await RedisConnection.open(
    config,
    { onCommandFailed: () => undefined },
    { commandMs: 1_000 },
  );
  let missed = 0;
  await connection.subscribe('news', { onText: () => undefined, onMissed: () => missed++ });
  relay.cut();
  const asked = Promise.withResolvers<number>();
  relay.onClientBytes = (bytes) => {
    if (!bytes.toString().toLowerCase().includes('subscribe')) return;
    relay.onClientBytes = undefined;
    // The answer does not come.
    relay.pause();
    asked.resolve(performance.now());
  };
  relay.restore();
  const askedMs = await asked.promise;
  // An error that nobody handles would end the process then.
  await waitUntil(() => performance.now() > askedMs + 1_500);
  relay.resume();
  await waitUntil(() => missed > 0);
});

test('a start without Redis fails in words that name the setting', OPTIONS, async () => {
  const url = `redis://127.0.0.1:${await freePort()}`;
  await assert.rejects(RedisConnection.open(redisConfig(url), { onCommandFailed: () => undefined }, { startMs: 500 }), {
    name: 'StartError',
    message: /^Redis cannot be used at 127\.0\.0\.1:\d+ \(gateway\.redis\.url\): connect ECONNREFUSED/,
  });
});

test('a database that Redis does not have is not replaced by another one', OPTIONS, async () => {
  const { url } = await redis;
  const opening = RedisConnection.open(
    redisConfig(`${url}/20`),
    { onCommandFailed: () => undefined },
    { startMs: 1_000 },
  );
  const message = /^Redis cannot be used at 127\.0\.0\.1:\d+ \(gateway\.redis\.url\): ERR DB index is out of range$/;
  await assert.rejects(opening, { name: 'StartError', message });
});

test('a database that is refused to a new connection is not replaced by another one', OPTIONS, async () => {
  await using server = await RedisServer.start();
  await using relay = await TcpRelay.open(server.port);
  await using admin = await open(server);
  const events = { onCommandFailed: () => undefined };
  const config = redisConfig(`redis://127.0.0.1:${relay.port}/5`);
  await using connection = await RedisConnection.open(config, events, { startMs: PATIENCE_MS });
  await connection.command('SET', 'a', 'of database 5');
  await admin.command('ACL', 'SETUSER', 'default', '-select');
  relay.cut();
  relay.restore();
  await waitUntil(() => relay.connections > 0);
  for (let n = 0; n < 20; n++) await assert.rejects(connection.command('GET', 'a'), isUnavailable);
  await admin.command('ACL', 'SETUSER', 'default', '+select');
  await waitUntil(() =>
    connection.command('GET', 'a').then(
      (got) => got === 'of database 5',
      () => false,
    ),
  );
});

test('the address of this machine toward Redis is known', OPTIONS, async () => {
  await using connection = await open(await redis);
  assert.equal(connection.localHost, '127.0.0.1');
});
