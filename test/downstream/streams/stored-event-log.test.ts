import assert from 'node:assert/strict';
import { randomUUID } from 'node:crypto';
import { test } from 'node:test';
import { ByteBudget } from '../../../src/downstream/memory/byte-budget.ts';
import type { EventLog, StreamEvent } from '../../../src/downstream/streams/event-log.ts';
import { memoryEventLogs } from '../../../src/downstream/streams/memory-event-log.ts';
import { storedEventLogs } from '../../../src/downstream/streams/stored-event-log.ts';
import { GatewayError } from '../../../src/errors.ts';
import { LIMITS } from '../../../src/limits.ts';
import type { StoredStream } from '../../../src/store/event-store.ts';
import type { RedisEventStoreParts } from '../../../src/store/redis/event-store.ts';
import { RedisSessionStore } from '../../../src/store/redis/session-store.ts';
import { openRedis, redisConfig, RedisServer, sharedRedis } from '../../support/redis.ts';
import { PATIENCE_MS } from '../../support/patience.ts';
import { waitUntil } from '../../support/wait-until.ts';
import { eventLogContract, eventSession } from './event-log.contract.ts';
import { EventProcess } from './event-process.ts';

const OPTIONS = { timeout: 120_000 };
const redis = sharedRedis();

const start = async (limits?: Partial<RedisEventStoreParts['limits']>) =>
  await EventProcess.start(redisConfig((await redis).url), limits);

function streamEvent(seq: number, text = `data: ${seq}\n\n`): StreamEvent {
  return { seq, text, bytes: text.length, atMs: 0 };
}

/** Appends events, and resolves with the acknowledgement of the last one. */
async function append(log: EventLog, stream: string, seqs: readonly number[], text?: string) {
  const appended = seqs.map(async (seq) => await log.append(stream, streamEvent(seq, text)));
  return (await Promise.all(appended)).at(-1);
}

async function textsOf(log: EventLog, stream: string): Promise<string[]> {
  return log.takeAfter(stream, 0).map(({ text }) => text);
}

const shared = await start();
eventLogContract('redis', () => (session, onRemoved) => {
  // Commands of one connection run in order, so the claim comes before each write.
  shared.claim(session.ref).catch(() => undefined);
  return shared.logs(session, onRemoved);
});

// REL-19
test('another process recovers a stream, with all events and its end', OPTIONS, async () => {
  const config = redisConfig((await redis).url);
  const [one, two] = [await EventProcess.start(config), await EventProcess.start(config)];
  const session = eventSession();
  const log = await one.open(session);
  log.open('post', false);
  log.open('get', true);
  assert.equal(await append(log, 'post', [1, 2, 3], 'ü\ud800\n'), true);
  log.finish('post', 0, 3);
  assert.equal(await append(log, 'get', [1]), true);
  await append(log, 'get', [2]);
  log.close();

  const other = await two.open(session);
  assert.deepEqual(await other.recover('post'), { isEndless: false, isFinished: true, seq: 3, isFollowed: false });
  assert.deepEqual(await textsOf(other, 'post'), Array(3).fill('ü\ud800\n'));
  assert.deepEqual(await other.recover('get'), { isEndless: true, isFinished: false, seq: 2, isFollowed: false });
  await append(other, 'get', [3]);
  assert.equal((await one.store.read(session.ref, 'get'))?.lastAdded, 3);
  assert.equal(await other.recover('never'), undefined);
  const stranger = await two.open(eventSession());
  assert.equal(await stranger.recover('post'), undefined, 'a stream of another session');
  assert.deepEqual(two.errors, []);
});

// N-96
test('a stream without room in memory is stored to its end', OPTIONS, async () => {
  const config = redisConfig((await redis).url);
  const one = await EventProcess.start(config, undefined, { events: 100, bytes: 0 });
  const session = eventSession();
  const removed: string[] = [];
  await one.claim(session.ref);
  const log = one.logs(session, (stream) => removed.push(stream));
  log.open('first', false);
  assert.deepEqual(removed.splice(0), ['first']);
  assert.equal(await append(log, 'first', [1, 2]), true);
  log.finish('first', 0, 2);
  assert.deepEqual(removed, ['first']);
  assert.equal(await log.recover('first'), undefined, 'there is no room for it here');

  const other = await (await EventProcess.start(config)).open(session);
  assert.deepEqual(await other.recover('first'), { isEndless: false, isFinished: true, seq: 2, isFollowed: false });
  assert.equal((await textsOf(other, 'first')).length, 2);
});

test('a log that is closed while it recovers a stream opens nothing', async () => {
  const reading = Promise.withResolvers<StoredStream>();
  const budget = new ByteBudget({ totalBytes: 1_000_000, principalBytes: 1_000_000 }, () => undefined);
  const log = storedEventLogs({
    openInMemory: memoryEventLogs({ events: 100, bytes: 100_000 }, budget),
    store: {
      writerOf: () => undefined,
      write: async () => new Set(),
      read: () => reading.promise,
      take: async () => undefined,
    },
    onLimit: () => undefined,
    onRefused: () => undefined,
    onError: () => undefined,
    waitMs: PATIENCE_MS,
  })(eventSession(), () => undefined);
  const recovered = log.recover('a');
  log.close();
  reading.resolve({ isEndless: false, isWritten: false, lastAdded: 1, last: 1, events: [{ seq: 1, text: 'a' }] });
  assert.equal(await recovered, undefined);
  assert.equal(budget.bytes, 0);
});

test('the answer and the end of its stream are one write', OPTIONS, async () => {
  const one = await start();
  const log = await one.open(eventSession());
  log.open('a', false);
  const acknowledged = log.append('a', streamEvent(1));
  log.finish('a', 0, 1);
  assert.equal(await acknowledged, true);
  assert.deepEqual(
    one.writes.map((changes) => changes.map(({ kind }) => kind)),
    [['open', 'add', 'finish']],
  );
});

test('a stream that no client can resume costs Redis nothing', OPTIONS, async () => {
  const one = await start();
  const log = await one.open(eventSession());
  log.open('a', false);
  log.finish('a', 0, 1);
  log.open('b', false);
  await append(log, 'b', [2]);
  assert.deepEqual(
    one.writes.flat().map(({ stream }) => stream),
    ['b', 'b'],
  );
});

// REL-27
test('a process whose stream another one has taken stores no event, and is told', OPTIONS, async () => {
  const config = redisConfig((await redis).url);
  const [one, two] = [await EventProcess.start(config), await EventProcess.start(config)];
  const session = eventSession();
  const log = await one.open(session);
  log.open('a', false);
  await append(log, 'a', [1]);
  const other = await two.open(session);
  assert.deepEqual(await other.recover('a'), { isEndless: false, isFinished: false, seq: 1, isFollowed: false });
  assert.equal(await append(log, 'a', [2, 3]), false);
  log.finish('a', 0, 3);
  assert.deepEqual(one.refused, [session.ref]);
  assert.equal(await append(log, 'a', [4]), false);
  assert.equal(await one.store.take(session.ref, 'a', one.name), undefined, 'it does not have the session');
  assert.equal(await append(other, 'a', [2], 'end'), true);
  other.finish('a', 0, 2);
  await append(other, 'a', [3]);
  assert.deepEqual((await two.store.read(session.ref, 'a'))?.events.at(1), { seq: 2, text: 'end' });
});

test('a process that has given a session away goes on with its streams', OPTIONS, async () => {
  const config = redisConfig((await redis).url);
  const [one, two] = [await EventProcess.start(config), await EventProcess.start(config)];
  two.alive.add(one.name);
  const session = eventSession();
  const log = await one.open(session);
  log.open('a', false);
  await append(log, 'a', [1]);
  const other = await two.open(session);
  assert.deepEqual(await other.recover('a'), { isEndless: false, isFinished: false, seq: 1, isFollowed: true });
  assert.deepEqual(await other.follow('a'), { events: [], state: 'running' });
  assert.equal(await append(log, 'a', [2, 3]), true);
  log.open('b', false);
  assert.equal(await append(log, 'b', [1]), true);
  assert.equal(await one.store.read(session.ref, 'b'), undefined, 'a new stream needs the session');
  const next = await other.follow('a');
  assert.deepEqual([next?.state, next?.events.map(({ seq }) => seq)], ['running', [2, 3]]);
  await append(log, 'a', [4]);
  two.alive.clear();
  const orphaned = await other.follow('a');
  assert.deepEqual([orphaned?.state, orphaned?.events.map(({ seq }) => seq)], ['orphaned', [4]]);
  assert.equal(await append(log, 'a', [5]), false);
  assert.equal(await append(other, 'a', [5]), true);
});

// SEC-11
test('Redis has no event in readable form, and none can be moved', OPTIONS, async () => {
  const one = await start();
  const session = eventSession();
  const log = await one.open(session);
  for (const stream of ['a', 'b']) log.open(stream, false);
  await append(log, 'a', [1], 'canary');
  await append(log, 'b', [1], 'other');
  const { index } = one.keys.events(session.ref);
  const [stored] = [await one.connection.command('LRANGE', `${index}:a`, 0, -1)].flat();
  assert.doesNotMatch(String(stored), /canary/);
  await one.connection.command('RPUSH', `${index}:b`, String(stored).replace(/^1:/, '2:'), String(stored));
  assert.deepEqual((await one.store.read(session.ref, 'b'))?.events, [{ seq: 1, text: 'other' }]);
});

// R12
test('while Redis is stopped no event waits long, and later all of them are stored', OPTIONS, async () => {
  await using server = await RedisServer.start();
  const one = await EventProcess.start(redisConfig(server.url));
  const session = eventSession();
  const log = await one.open(session);
  log.open('a', false);
  await append(log, 'a', [1]);
  server.pause();
  const before = one.writes.length;
  for (const seq of [2, 3, 4, 5, 6, 7, 8]) assert.equal(await append(log, 'a', [seq]), true);
  assert.ok(one.writes.length - before <= 2, 'only the first of them has waited');
  log.finish('a', 0, 8);
  server.resume();
  await waitUntil(async () => (await one.store.read(session.ref, 'a').catch(() => undefined))?.last === 8);
  const seqs = (await one.store.read(session.ref, 'a'))?.events.map(({ seq }) => seq);
  assert.deepEqual(seqs, [1, 2, 3, 4, 5, 6, 7, 8], 'each of them once, in order');
  assert.deepEqual(one.errors, []);
});

// R12
test('a client that resumes a stream waits for Redis for a bounded time', OPTIONS, async () => {
  const config = redisConfig((await redis).url);
  const [one, two] = [await EventProcess.start(config), await EventProcess.start(config)];
  const session = eventSession();
  const log = await one.open(session);
  log.open('a', false);
  await append(log, 'a', [1]);
  const gate = Promise.withResolvers<void>();
  two.beforeWrite = () => gate.promise;
  const other = await two.open(session, 50);
  other.open('b', false);
  void other.append('b', streamEvent(1));
  await assert.rejects(other.recover('a'), { code: 'store-unavailable' });
  gate.resolve();
  await waitUntil(() =>
    other.recover('a').then(
      (found) => found !== undefined,
      () => false,
    ),
  );
});

test('a process that has joined again stores the streams that it has opened meanwhile', OPTIONS, async () => {
  const one = await start();
  const session = eventSession();
  const log = await one.open(session);
  log.open('before', false);
  await append(log, 'before', [1]);
  log.open('meanwhile', false);
  one.fence = `${one.name}/2`;
  await one.claim(session.ref);
  for (const stream of ['before', 'meanwhile']) {
    assert.equal(await append(log, stream, [2]), true);
    assert.equal((await one.store.read(session.ref, stream))?.lastAdded, 2);
  }
});

test('events that come during a failing write are written after those of that write', OPTIONS, async () => {
  const one = await start();
  const session = eventSession();
  const log = await one.open(session);
  log.open('a', false);
  await append(log, 'a', [1]);
  const failing = Promise.withResolvers<void>();
  one.beforeWrite = () => failing.promise;
  const first = append(log, 'a', [2]);
  await waitUntil(() => one.writes.length === 2);
  const second = append(log, 'a', [3]);
  failing.reject(new GatewayError('store-unavailable'));
  assert.deepEqual(await Promise.all([first, second]), [true, true]);
  one.beforeWrite = async () => undefined;
  await waitUntil(async () => (await one.store.read(session.ref, 'a'))?.lastAdded === 3);
  assert.deepEqual(
    (await one.store.read(session.ref, 'a'))?.events.map(({ seq }) => seq),
    [1, 2, 3],
  );
});

// SEC-12
test('the end of a session removes its events', OPTIONS, async () => {
  const config = redisConfig((await redis).url);
  const one = await EventProcess.start(config);
  const { connection, keys, box } = await openRedis(config);
  const sessions = new RedisSessionStore({
    connection,
    keys,
    box,
    fenceOf: () => undefined,
    onFenced: async () => undefined,
    revokedText: () => '',
    onLimit: () => undefined,
  });
  const principal = randomUUID();
  const [ended, stays] = [eventSession(principal), eventSession(principal)];
  for (const session of [ended, stays]) {
    const log = await one.open(session);
    log.open('a', false);
    await append(log, 'a', [1]);
  }
  await sessions.end(ended.ref);
  assert.equal(await one.store.read(ended.ref, 'a'), undefined);
  assert.equal((await one.store.read(stays.ref, 'a'))?.lastAdded, 1);
  const { index } = keys.events(ended.ref);
  assert.deepEqual(await connection.command('KEYS', `${index.replaceAll(/[{}]/g, '?')}*`), []);
});

// REL-19
test('a stream whose entry has expired is stored again with its next event', OPTIONS, async () => {
  const config = redisConfig((await redis).url);
  const [one, two] = [await EventProcess.start(config), await EventProcess.start(config)];
  const session = eventSession();
  const log = await one.open(session);
  log.open('get', true);
  await append(log, 'get', [1, 2]);
  const { index } = one.keys.events(session.ref);
  await one.connection.command('PEXPIRE', index, 1);
  await waitUntil(async () => (await one.store.read(session.ref, 'get')) === undefined);
  await append(log, 'get', [3]);
  await append(log, 'get', [4, 5]);

  const other = await two.open(session);
  assert.deepEqual(await other.recover('get'), { isEndless: true, isFinished: false, seq: 5, isFollowed: false });
  assert.deepEqual(await textsOf(other, 'get'), ['data: 3\n\n', 'data: 4\n\n', 'data: 5\n\n']);
  await two.connection.command('PEXPIRE', index, 1);
  await waitUntil(async () => (await one.store.read(session.ref, 'get')) === undefined);
  await append(log, 'get', [6]);
  assert.equal(
    await one.store.read(session.ref, 'get'),
    undefined,
    'a process that has lost the session opens nothing',
  );
  await append(other, 'get', [6]);
  assert.equal((await one.store.read(session.ref, 'get'))?.lastAdded, 6);
  assert.deepEqual([one.errors, two.errors], [[], []]);
});

// REL-19
test('the answer of a stream whose events made room for others is stored', OPTIONS, async () => {
  const config = redisConfig((await redis).url);
  const one = await EventProcess.start(config, { principalBytes: 6_000 });
  const principal = randomUUID();
  const [first, second] = [eventSession(principal), eventSession(principal)];
  const [early, late] = [await one.open(first), await one.open(second)];
  early.open('a', false);
  late.open('b', false);
  await append(early, 'a', [1], 'x'.repeat(1_500));
  await append(late, 'b', [1, 2], 'x'.repeat(1_500));
  assert.equal(await one.store.read(first.ref, 'a'), undefined);
  const answered = append(early, 'a', [2]);
  early.finish('a', 0, 2);
  await answered;
  const other = await (await EventProcess.start(config)).open(first);
  assert.deepEqual(await other.recover('a'), { isEndless: false, isFinished: true, seq: 2, isFollowed: false });
  assert.deepEqual(await textsOf(other, 'a'), ['data: 2\n\n']);
  await one.connection.command('DEL', one.keys.events(first.ref).index);
  await append(early, 'a', [3]);
  assert.equal(await one.store.read(first.ref, 'a'), undefined, 'a stream that has ended does not begin again');
});

test('limit storedEventBytes: a larger event is read in this process alone', OPTIONS, async () => {
  const config = redisConfig((await redis).url);
  const [one, two] = [await EventProcess.start(config), await EventProcess.start(config)];
  const session = eventSession();
  const log = await one.open(session);
  log.open('a', false);
  await append(log, 'a', [1]);
  const large = 'x'.repeat(LIMITS.storedEventBytes + 1);
  assert.equal(log.append('a', streamEvent(2, large)), undefined);
  log.finish('a', 0, 2);
  await append(log, 'a', []);
  assert.deepEqual(one.limits, ['storedEventBytes']);
  assert.deepEqual((await textsOf(log, 'a')).length, 2);
  await waitUntil(async () => (await two.store.read(session.ref, 'a'))?.last === 2);
  const other = await two.open(session);
  const lost = { isEndless: false, isFinished: false, seq: 2, isFollowed: false };
  assert.deepEqual(await other.recover('a'), { ...lost, seq: 1 }, 'its last event is lost');
});

test('limit unstoredEventBytes: streams that Redis lacks events of are removed there', OPTIONS, async () => {
  await using server = await RedisServer.start();
  const one = await EventProcess.start(redisConfig(server.url));
  const session = eventSession();
  const log = await one.open(session);
  for (const stream of ['a', 'b']) log.open(stream, false);
  await append(log, 'a', [1]);
  await append(log, 'b', [1]);
  server.pause();
  const large = 'x'.repeat(LIMITS.storedEventBytes);
  for (let seq = 2; seq < 2 + LIMITS.unstoredEventBytes / LIMITS.storedEventBytes; seq++) {
    assert.equal(await append(log, 'a', [seq], large), true);
  }
  assert.ok(one.limits.includes('unstoredEventBytes'));
  server.resume();
  await waitUntil(async () => {
    // A stream that stays shows that the waiting changes were written.
    await append(log, 'b', [2]);
    return (await one.store.read(session.ref, 'b').catch(() => undefined))?.lastAdded === 2;
  });
  assert.equal(await one.store.read(session.ref, 'a'), undefined);
});

test('limit unstoredEventBytes: the principal that has most gives its streams up', OPTIONS, async () => {
  const one = await start();
  const [many, few] = [eventSession(), eventSession()];
  const [large, small] = [await one.open(many), await one.open(few)];
  for (const log of [large, small]) {
    log.open('a', false);
    await append(log, 'a', [1]);
  }
  one.beforeWrite = () => Promise.reject(new GatewayError('store-unavailable'));
  const text = 'x'.repeat(LIMITS.storedEventBytes);
  const count = LIMITS.unstoredEventBytes / LIMITS.storedEventBytes;
  for (let seq = 2; seq < 1 + count; seq++) assert.equal(await append(large, 'a', [seq], text), true);
  assert.deepEqual(one.limits, []);
  assert.equal(await append(small, 'a', [2], text), true);
  assert.deepEqual(one.limits, ['unstoredEventBytes']);
  one.beforeWrite = async () => undefined;
  await waitUntil(async () => (await one.store.read(few.ref, 'a'))?.lastAdded === 2);
  await waitUntil(async () => (await one.store.read(many.ref, 'a')) === undefined);
});
