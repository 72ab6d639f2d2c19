import assert from 'node:assert/strict';
import { randomUUID } from 'node:crypto';
import { test } from 'node:test';
import type { RedisConfig } from '../../../src/config/values/config.ts';
import { LIMITS } from '../../../src/limits.ts';
import type { PlacementKey } from '../../../src/store/placement-table.ts';
import { redisPlacementTable } from '../../../src/store/redis/placement-table.ts';
import { RedisSessionStore } from '../../../src/store/redis/session-store.ts';
import type { SessionChange, SessionRef } from '../../../src/store/session-store.ts';
import { openRedis, redisConfig, RedisServer, sharedRedis } from '../../support/redis.ts';
import { waitUntil } from '../../support/wait-until.ts';
import { fencedSessionsContract, SessionProcess } from '../fenced-sessions.contract.ts';
import { sessionStoreContract } from '../session-store.contract.ts';

const OPTIONS = { timeout: 120_000 };
const HOUR = 3_600_000;
const redis = sharedRedis();

/** Opens one process. */
async function open(config: RedisConfig) {
  const access = await openRedis(config);
  const table = redisPlacementTable(access, 5_000);
  const limits: string[] = [];
  const revokedText = (key: PlacementKey) => table.revokedText(key);
  const onLimit = (limit: string) => limits.push(limit);
  const opened = new SessionProcess(
    table,
    (fencing) => new RedisSessionStore({ ...access, ...fencing, revokedText, onLimit }),
  );
  return Object.assign(opened, { limits });
}

sessionStoreContract('redis', async () => (await open(redisConfig((await redis).url))).claiming());
fencedSessionsContract('redis', async () => {
  const config = redisConfig((await redis).url);
  return [await open(config), await open(config)];
});

// R10
test('what a newer version has stored of a session is kept, and ignored', OPTIONS, async () => {
  const config = redisConfig((await redis).url);
  const opened = await open(config);
  const session = await opened.open();
  await opened.store.change(session, { kind: 'subscribe', uri: 'a' });
  const { connection, keys } = await openRedis(config);
  const { record } = keys.session(session);
  const newer = ['later', 'a text', 'z1234', '7:50:a sealed text'];
  await connection.command('HSET', record, ...newer);
  assert.deepEqual(await opened.store.load(session), { subscriptions: ['a'] });
  await opened.store.change(session, { kind: 'use', upstream: 'x' });
  await opened.store.change(session, { kind: 'unsubscribe', uri: 'a' });
  assert.deepEqual(await opened.store.load(session), { subscriptions: [], upstreams: ['x'] });
  assert.deepEqual(await connection.command('HMGET', record, 'later', 'z1234'), ['a text', '7:50:a sealed text']);
});

// R13
test('a Redis that has gone back in time gives out no serial number again', OPTIONS, async () => {
  await using server = await RedisServer.start();
  const { store } = await open(redisConfig(server.url));
  const principal = randomUUID();
  const first = await store.nextSerial(principal);
  await server.save();
  const last = await store.nextSerial(principal);
  assert.equal(last, first + 1);
  await server.kill();
  await server.restart();
  const next: number[] = [];
  await waitUntil(() =>
    store.nextSerial(principal).then(
      (serial) => next.push(serial) > 0,
      () => false,
    ),
  );
  const [after = 0] = next;
  assert.ok(after > last, `${after} after ${last}`);
  assert.equal(await store.nextSerial(principal), after + 1, 'ended ranges join again');
});

// R13
test('a promoted replica gives out no serial number that it has not heard of', OPTIONS, async () => {
  await using master = await RedisServer.start('--repl-diskless-sync-delay', '0');
  await using replica = await RedisServer.start('--replicaof', `127.0.0.1 ${master.port}`);
  const config = redisConfig(master.url);
  const { store } = await open(config);
  const principal = randomUUID();
  const first = await store.nextSerial(principal);
  const promoted = { ...redisConfig(replica.url), prefix: config.prefix };
  const { connection, keys } = await openRedis(promoted);
  const [entry] = keys.serial(principal);
  await waitUntil(async () => (await connection.command('GET', entry)) === String(first));
  await connection.command('REPLICAOF', 'NO', 'ONE');
  const last = await store.nextSerial(principal);
  const { store: other } = await open(promoted);
  const after = await other.nextSerial(principal);
  assert.ok(after > last, `${after} after ${last}`);
  assert.equal(await other.nextSerial(principal), after + 1);
});

// R10
test('numbers of an older version, which does not name its Redis, are counted on from', OPTIONS, async () => {
  const config = redisConfig((await redis).url);
  const { store } = await open(config);
  const { connection, keys } = await openRedis(config);
  const principal = randomUUID();
  const [entry, server] = keys.serial(principal);
  const late = (Date.now() + HOUR) * 1_000;
  await connection.command('SET', entry, String(late));
  assert.equal(await store.nextSerial(principal), late + 1);
  await connection.command('SET', entry, String(late + 5));
  assert.equal(await store.nextSerial(principal), late + 6);
  assert.match(String(await connection.command('GET', server)), /^[0-9a-f]{40}$/);
});

// R12
test('an end that cannot be written counts at once, and is written when Redis is back', OPTIONS, async () => {
  await using server = await RedisServer.start();
  const config = redisConfig(server.url);
  const [one, two] = [await open(config), await open(config)];
  const session = await one.open();
  server.pause();
  assert.equal(await one.store.end(session), false);
  assert.equal(await one.store.isEnded(session), true);
  await assert.rejects(one.store.change(session, { kind: 'level', level: 'error' }), { code: 'store-unavailable' });
  server.resume();
  await waitUntil(() => two.store.isEnded(session).catch(() => false));
  await one.store[Symbol.asyncDispose]();
});

test('limit unwrittenEnds: further ends are not kept', OPTIONS, async () => {
  await using server = await RedisServer.start();
  const { store, limits } = await open(redisConfig(server.url));
  await server.kill();
  const principal = randomUUID();
  const ref = (serial: number) => ({ principal, serial, expiresMs: Date.now() + HOUR });
  for (let n = 1; n <= LIMITS.unwrittenEnds; n++) await store.end(ref(n));
  assert.deepEqual(limits, []);
  await store.end(ref(20_001));
  assert.deepEqual(limits, ['unwrittenEnds']);
  await store[Symbol.asyncDispose]();
});

test('limit endedRangesPerPrincipal joins the oldest ranges of that principal alone', OPTIONS, async () => {
  const { store, limits } = await open(redisConfig((await redis).url));
  const [one, other] = [randomUUID(), randomUUID()];
  const ref = (principal: string, serial: number) => ({ principal, serial, expiresMs: Date.now() + HOUR });
  await store.end(ref(other, 1));
  const most = LIMITS.endedRangesPerPrincipal;
  for (let n = 0; n < most; n++) await store.end(ref(one, 1 + 2 * n));
  assert.equal(await store.isEnded(ref(one, 2)), false);
  assert.deepEqual(limits, []);
  await store.end(ref(one, 1 + 2 * most));
  assert.deepEqual(limits, ['endedRangesPerPrincipal']);
  assert.equal(await store.isEnded(ref(one, 2)), true, 'it is between two old ones');
  assert.equal(await store.isEnded(ref(one, 2 * most)), false, 'it is between two new ones');
  assert.equal(await store.isEnded(ref(other, 2)), false);
});

test('consecutive ends take one range, in any order', OPTIONS, async () => {
  const config = redisConfig((await redis).url);
  const { store } = await open(config);
  const { connection, keys } = await openRedis(config);
  const principal = randomUUID();
  const ref = (serial: number) => ({ principal, serial, expiresMs: Date.now() + HOUR });
  for (const serial of [5, 3, 9, 4, 4, 8, 6, 7]) await store.end(ref(serial));
  for (let n = 1; n <= 12; n++) assert.equal(await store.isEnded(ref(n)), n >= 3 && n <= 9, `${n}`);
  assert.equal(await connection.command('ZCARD', keys.session(ref(1)).ended), 1);
});

test('limit sessionRecordBytesPerPrincipal counts the records that have not expired', OPTIONS, async () => {
  const opened = await open(redisConfig((await redis).url));
  const { store, limits } = opened;
  const principal = randomUUID();
  const long = (n: number) => `${n}`.padEnd(4_000, 'x');
  const small = await opened.open(principal);
  assert.equal(await store.change(small, { kind: 'subscribe', uri: long(0) }), undefined);
  let refused: string | undefined;
  let session = await opened.open(principal);
  for (let n = 0; refused === undefined; n++) {
    if (n % 900 === 899) session = await opened.open(principal);
    refused = await store.change(session, { kind: 'subscribe', uri: long(n) });
  }
  assert.equal(refused, 'sessionRecordBytesPerPrincipal');
  assert.deepEqual(limits, ['sessionRecordBytesPerPrincipal']);
  // A record that expires soon takes the place of another one.
  await store.end(small);
  const brief = { ...(await opened.open(principal)), expiresMs: Date.now() + 3_000 };
  assert.equal(await store.change(brief, { kind: 'subscribe', uri: long(0) }), undefined);
  const change = () => store.change(session, { kind: 'subscribe', uri: long(-1) });
  const full = await change();
  assert.ok(full === 'sessionRecordBytesPerPrincipal' || Date.now() >= brief.expiresMs);
  await waitUntil(() => change().then((limit) => limit === undefined));
});

const USE = { kind: 'use', upstream: 'u'.repeat(100_000) } as const;
const ATTACH = { kind: 'attach', upstream: 'up', text: 'x'.repeat(LIMITS.attachmentBytes) } as const;

test('processes that make room at once count what is stored', OPTIONS, async () => {
  const config = redisConfig((await redis).url);
  const processes = [await open(config), await open(config)];
  const principal = randomUUID();
  const kept: SessionRef[] = [];
  await Promise.all(
    processes.map(async (opened) => {
      for (let n = 0; n < 250; n++) {
        const session = await opened.open(principal);
        kept.push(session);
        assert.equal(await opened.store.change(session, n % 3 === 0 ? USE : ATTACH), undefined);
        if (n % 7 === 0) await opened.store.end(session);
      }
    }),
  );
  for (const { limits } of processes) assert.ok(limits.includes('sessionRecordBytesPerPrincipal'));
  const { connection, keys } = await openRedis(config);
  const { sizes } = keys.session({ principal, serial: 0 });
  const sizeOf = async (field: string | number) => Number(await connection.command('HGET', sizes, field));
  let [all, attachments] = [0, 0];
  for (const { serial } of kept) {
    const fields = [await connection.command('HGETALL', keys.session({ principal, serial }).record)].flat();
    const bytes = (kind: string) =>
      fields.reduce<number>((sum, each, n) => {
        const value = String(fields[n + 1]).split(':')[1];
        return n % 2 === 0 && String(each).startsWith(kind) ? sum + Number(value) : sum;
      }, 0);
    assert.equal(await sizeOf(serial), bytes('a') + bytes('x'));
    all += bytes('a') + bytes('x');
    attachments += bytes('a');
  }
  assert.deepEqual([await sizeOf('total'), await sizeOf('attached')], [all, attachments]);
  assert.ok(all <= LIMITS.sessionRecordBytesPerPrincipal && attachments <= LIMITS.sessionRecordBytesPerPrincipal / 2);
});

// R10
test('records of an older version make room too', OPTIONS, async () => {
  const config = redisConfig((await redis).url);
  const opened = await open(config);
  const { store, limits } = opened;
  const { connection, keys } = await openRedis(config);
  const principal = randomUUID();
  const subscribed = await opened.open(principal);
  await store.change(subscribed, { kind: 'subscribe', uri: 'a' });
  const first = await opened.open(principal);
  await store.change(first, USE);
  const { plain, attached, sizes } = keys.session(first);
  while (limits.length === 0) {
    await connection.command('DEL', plain, attached);
    const session = await opened.open(principal);
    assert.equal(await store.change(session, USE), undefined);
  }
  assert.deepEqual(await store.load(subscribed), { subscriptions: ['a'] });
  assert.equal(await store.load(first), undefined);
  for (const entry of [plain, sizes]) assert.ok(Number(await connection.command('PTTL', entry)) > 0, entry);
});

test('a session that has lost all that was stored of it leaves nothing', OPTIONS, async () => {
  const config = redisConfig((await redis).url);
  const opened = await open(config);
  const { store, limits } = opened;
  const { connection, keys } = await openRedis(config);
  const principal = randomUUID();
  const unsubscribed = await opened.open(principal);
  for (const kind of ['subscribe', 'unsubscribe'] as const) await store.change(unsubscribed, { kind, uri: 'a' });
  const detached = await opened.open(principal);
  await store.change(detached, ATTACH);
  while (limits.length === 0) await store.change(await opened.open(principal), ATTACH);
  for (const { serial } of [unsubscribed, detached]) {
    const { record, sizes, until, plain, attached } = keys.session({ principal, serial });
    assert.equal(await connection.command('EXISTS', record), 0);
    assert.deepEqual(await connection.command('HMGET', sizes, serial, `a${serial}`), [null, null]);
    for (const set of [until, plain, attached])
      assert.equal(await connection.command('ZSCORE', set, serial), null, set);
  }
});

// R10
test('a change that must pass by many entries of an older version does so in parts', OPTIONS, async () => {
  await using server = await RedisServer.start();
  const config = redisConfig(server.url);
  const opened = await open(config);
  const { store, limits } = opened;
  const { connection, keys } = await openRedis(config);
  const first = await opened.open();
  const { principal } = first;
  const { plain, attached, until, sizes } = keys.session(first);
  const leave = async (change: SessionChange) =>
    assert.equal(await store.change(await opened.open(principal), change), undefined);
  for (const change of [ATTACH, USE]) {
    const { length } = limits;
    while (limits.length === length) await leave(change);
  }
  // That version removes the record of an ended session, and does not know two of these entries. It leaves empty records in the third.
  await connection.command('HDEL', sizes, 'plain');
  const sets = [plain, attached, until];
  const soon = Date.now() + HOUR / 2;
  for (const [at, set] of sets.entries()) {
    const members = Array.from({ length: 2_000 }, (_, n) => [`${soon + n}`, `${at}000${n}`]);
    await connection.command('ZADD', set, ...members.flat());
  }
  using monitor = await server.monitor();
  for (const change of [ATTACH, USE]) await leave(change);
  for (const set of sets) assert.equal(await connection.command('ZCOUNT', set, soon, soon + 1_999), 0, set);
  await waitUntil(() => monitor.text().split('"ZCOUNT"').length > sets.length);
  const lengths = monitor
    .text()
    .split('"EVALSHA"')
    .map((script) => script.split(' lua] ').length);
  assert.ok(Math.max(...lengths) < 10_000, lengths.join(' '));
});

// SEC-11
test('Redis has no principal and no URI in readable form', OPTIONS, async () => {
  await using server = await RedisServer.start();
  const config = redisConfig(server.url);
  const opened = await open(config);
  const { store } = opened;
  const session = await opened.open('canary-principal');
  await store.change(session, { kind: 'subscribe', uri: 'file:///canary-uri' });
  await store.change(session, { kind: 'use', upstream: 'canary-upstream' });
  const { connection } = await openRedis(config);
  const names = await connection.command('KEYS', '*');
  assert.ok(Array.isArray(names) && names.length >= 5);
  const dump = [];
  for (const name of names) {
    dump.push(String(name));
    const type = await connection.command('TYPE', String(name));
    if (type === 'string') dump.push(await connection.command('GET', String(name)));
    if (type === 'hash') dump.push(await connection.command('HGETALL', String(name)));
    if (type === 'zset') dump.push(await connection.command('ZRANGE', String(name), 0, -1));
  }
  assert.doesNotMatch(JSON.stringify(dump), /canary/);
});
