/** Tests API keys that commands change while the gateway runs, in a file and in Redis. */
import assert from 'node:assert/strict';
import { randomBytes } from 'node:crypto';
import { mkdir, mkdtemp, readFile, rename, rm, symlink, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, test } from 'node:test';
import { getEvents, initialize, post, rpc } from '../downstream/client.ts';
import { runCli } from '../support/cli.ts';
import { type OpenGateway, openGateway } from '../support/open-gateway.ts';
import { modernEvents } from '../support/modern-wire.ts';
import { RedisServer } from '../support/redis.ts';
import { waitUntil } from '../support/wait-until.ts';

const TIMEOUT = { timeout: 120_000 };
const CLI_MS = 60_000;

let dir = '';
before(async () => {
  dir = await mkdtemp(join(tmpdir(), 'linkspan-api-keys-'));
});
after(() => rm(dir, { recursive: true }));

const bearer = (key: string) => ({ authorization: `Bearer ${key}` });

/** Runs a `key` command that must succeed. Returns its output. */
async function keyCommand(...args: readonly string[]): Promise<string> {
  const { code, stdout, stderr } = await runCli(['key', ...args], dir, { PATH: process.env['PATH'] }, CLI_MS);
  assert.equal(code, 0, stderr);
  return stdout.trim();
}

async function statusOf(url: string, key: string): Promise<number> {
  const params = { protocolVersion: '2025-11-25', capabilities: {}, clientInfo: { name: 'test', version: '1' } };
  return (await post(url, rpc(0, 'initialize', params), undefined, bearer(key))).status;
}

/** Opens a session with a stream, a stream of 2024-11-05, and a subscription stream. */
async function openStreams(url: string, key: string) {
  const headers = bearer(key);
  const session = await initialize(url, undefined, headers);
  const get = await getEvents(url, session, headers);
  const sse = await getEvents(url.replace(/\/mcp$/, '/sse'), undefined, headers);
  const listen = await modernEvents(
    url,
    'subscriptions/listen',
    { notifications: { toolsListChanged: true } },
    { headers },
  );
  await listen.until(({ seen }) => seen.length > 0);
  const streams = [get, sse, listen];
  return {
    session,
    allEnded: () => Promise.all(streams.map((stream) => stream.ended())),
    areOpen: () => streams.every((stream) => !stream.isEnded),
    close: () => streams.forEach((stream) => stream.close()),
  };
}

test('a key works after its creation; its revocation ends all that it has opened', TIMEOUT, async () => {
  const file = join(dir, 'one.json');
  const ann = await keyCommand('create', 'ann', '--groups', 'sales', '--file', file);
  assert.match(ann, /^lsk_[\w-]{43}$/);
  assert.ok(!(await readFile(file, 'utf8')).includes(ann));
  await using gateway = await openGateway({}, { auth: { keyFile: file } });
  const { url } = gateway;
  const bob = await keyCommand('create', 'bob', '--file', file);
  await waitUntil(async () => (await statusOf(url, bob)) === 200);

  const [ofAnn, ofBob] = [await openStreams(url, ann), await openStreams(url, bob)];
  assert.equal((await post(url, rpc(1, 'ping'), ofAnn.session, bearer(ann))).status, 200);
  await keyCommand('revoke', 'ann', '--file', file);
  await ofAnn.allEnded();
  const refused = await post(url, rpc(2, 'ping'), ofAnn.session, bearer(ann));
  assert.equal(refused.status, 401);
  assert.match(refused.headers['www-authenticate'] ?? '', /^Bearer error="invalid_token"/);
  assert.ok(ofBob.areOpen());
  assert.equal((await post(url, rpc(2, 'ping'), ofBob.session, bearer(bob))).status, 200);
  ofBob.close();
  const again = await keyCommand('create', 'ann', '--file', file);
  await waitUntil(async () => (await statusOf(url, again)) === 200);
  const revived = await post(url, rpc(3, 'ping'), ofAnn.session, bearer(again));
  assert.equal(revived.status, 404, 'the session of the revoked key has ended for good');
  assert.ok(!gateway.lines.join('').includes(ann));
});

test('two keys of one name overlap while one is rotated, and the session goes on', TIMEOUT, async () => {
  const file = join(dir, 'rotated.json');
  const old = await keyCommand('create', 'ci', '--owner', 'Ada', '--file', file);
  await using gateway = await openGateway({}, { auth: { keyFile: file } });
  const { url } = gateway;
  const { session, allEnded } = await openStreams(url, old);
  const fresh = await keyCommand('rotate', 'ci', '--grace', '2s', '--file', file);
  await waitUntil(async () => (await statusOf(url, fresh)) === 200);
  // The streams of the old key end when it expires; a session belongs to the name.
  await allEnded();
  await waitUntil(async () => (await statusOf(url, old)) === 401);
  assert.equal((await post(url, rpc(1, 'ping'), session, bearer(fresh))).status, 200);
});

/** Resolves when the metric of the last reading has this value. */
async function untilRead(gateway: OpenGateway, value: 0 | 1): Promise<void> {
  const line = new RegExp(`^linkspan_api_key_last_read_successful ${value}$`, 'm');
  await waitUntil(async () => line.test(await gateway.metrics()));
}

test('a broken or missing key file leaves the last good keys in use, and says so', TIMEOUT, async () => {
  const file = join(dir, 'broken.json');
  const key = await keyCommand('create', 'ann', '--file', file);
  const good = await readFile(file);
  await using gateway = await openGateway({}, { auth: { keyFile: file } });
  for (const breakIt of [() => writeFile(file, '{"version":1,"keys":[{'), () => rm(file)]) {
    await breakIt();
    await untilRead(gateway, 0);
    assert.equal(await statusOf(gateway.url, key), 200);
    await writeFile(file, good, { mode: 0o600 });
    await untilRead(gateway, 1);
  }
  await waitUntil(() => gateway.lines.join('').includes('API keys cannot be read; the last good ones stay valid'));
  assert.match(await gateway.metrics(), /^linkspan_api_key_reads_total\{outcome="rejected"\} [1-9]/m);
});

test('a ConfigMap that is swapped by its symbolic link is read', TIMEOUT, async () => {
  const volume = join(dir, 'volume');
  for (const version of ['v1', 'v2']) await mkdir(join(volume, version), { recursive: true });
  const ann = await keyCommand('create', 'ann', '--file', join(volume, 'v1', 'keys.json'));
  const bob = await keyCommand('create', 'bob', '--file', join(volume, 'v2', 'keys.json'));
  await symlink('v1', join(volume, '..data'));
  await symlink('..data/keys.json', join(volume, 'keys.json'));
  await using gateway = await openGateway({}, { auth: { keyFile: join(volume, 'keys.json') } });
  assert.deepEqual([await statusOf(gateway.url, ann), await statusOf(gateway.url, bob)], [200, 401]);
  await symlink('v2', join(volume, '..next'));
  await rename(join(volume, '..next'), join(volume, '..data'));
  await waitUntil(async () => (await statusOf(gateway.url, bob)) === 200);
  assert.equal(await statusOf(gateway.url, ann), 401);
});

// SEC-14
test('a start with a key file that others can read, or none, is refused', TIMEOUT, async () => {
  const open = join(dir, 'open.json');
  await writeFile(open, '{"version":1,"keys":[]}', { mode: 0o644 });
  const start = (keyFile: string) => openGateway({}, { auth: { keyFile } });
  await assert.rejects(start(open), { name: 'StartError', message: /by other users \(mode 0644\).*chmod 600/ });
  await assert.rejects(start(join(dir, 'none.json')), { name: 'StartError', message: /does not exist/ });
});

test('a gateway with a key file that has no keys refuses every client', TIMEOUT, async () => {
  const file = join(dir, 'empty.json');
  await writeFile(file, '{"version":1,"keys":[]}', { mode: 0o600 });
  await using gateway = await openGateway({}, { auth: { keyFile: file } });
  assert.equal((await post(gateway.url, rpc(1, 'ping'))).status, 401);
  assert.equal(await statusOf(gateway.url, 'any'), 401);
});

// SEC-11
test('a wrapping key is replaced in three steps, each a start', TIMEOUT, async () => {
  await using redis = await RedisServer.start();
  const [old = '', next = ''] = [1, 2].map(() => randomBytes(32).toString('base64'));
  const auth = { keysInRedis: true };
  const start = (wrappingKeys: readonly string[]) =>
    openGateway({}, { auth, redis: { url: redis.url, wrappingKeys, internal: '127.0.0.1:0' } });
  const config = join(dir, 'wrapping.json');
  const first = { mcpServers: {}, gateway: { auth, redis: { url: redis.url, wrappingKeys: [old] } } };
  await writeFile(config, JSON.stringify(first));
  const ann = await keyCommand('create', 'ann', '--config', config);
  let session: string | undefined;
  for (const wrappingKeys of [[old], [old, next], [next, old], [next]]) {
    await using gateway = await start(wrappingKeys);
    assert.equal(await statusOf(gateway.url, ann), 200);
    session ??= await initialize(gateway.url, undefined, bearer(ann));
    assert.equal((await post(gateway.url, rpc(1, 'ping'), session, bearer(ann))).status, 200);
  }
  await assert.rejects(start([old]), /Put a removed wrapping key back at the end of the list/);
  await assert.rejects(keyCommand('list', '--config', config), /Put a removed wrapping key back/);
});

test('a key in Redis works on every replica, and is revoked on every replica', TIMEOUT, async () => {
  await using redis = await RedisServer.start();
  const shared = { url: redis.url, wrappingKeys: [randomBytes(32).toString('base64')], internal: '127.0.0.1:0' };
  const auth = { keysInRedis: true };
  const config = join(dir, 'redis.json');
  await writeFile(config, JSON.stringify({ mcpServers: {}, gateway: { auth, redis: shared } }));
  const ann = await keyCommand('create', 'ann', '--config', config);
  await using one = await openGateway({}, { auth, redis: shared });
  await using two = await openGateway({}, { auth, redis: shared });
  const [first, second] = [await openStreams(one.url, ann), await openStreams(two.url, ann)];
  // A request for a session of the other replica is passed on.
  assert.equal((await post(two.url, rpc(1, 'ping'), first.session, bearer(ann))).status, 200);
  const bob = await keyCommand('create', 'bob', '--config', config);
  await waitUntil(async () => (await statusOf(one.url, bob)) === 200 && (await statusOf(two.url, bob)) === 200);

  await keyCommand('revoke', 'ann', '--config', config);
  await Promise.all([first.allEnded(), second.allEnded()]);
  for (const { url } of [one, two]) {
    await waitUntil(async () => (await post(url, rpc(2, 'ping'), first.session, bearer(ann))).status === 401);
  }
  redis.pause();
  try {
    await untilRead(one, 0);
    assert.equal((await post(one.url, rpc(3, 'tools/list'), undefined, bearer(ann))).status, 401);
    const known = await post(one.url, rpc(3, 'ping'), 'no-session', bearer(bob));
    assert.notEqual(known.status, 401, 'known keys stay valid while Redis is away');
  } finally {
    redis.resume();
  }
  await untilRead(one, 1);
});
