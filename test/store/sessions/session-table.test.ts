import assert from 'node:assert/strict';
import { test } from 'node:test';
import { LIMITS, type LimitName } from '../../../src/limits.ts';
import type { SessionChange, SessionRef } from '../../../src/store/session-store.ts';
import type { SessionEntry } from '../../../src/store/sessions/session-entry.ts';
import { SessionTable } from '../../../src/store/sessions/session-table.ts';

const OPTIONS = { timeout: 120_000 };
const T0 = 1_800_000_000_000;
const DAY = 24 * 3_600_000;

function testTable() {
  const reached: LimitName[] = [];
  const table = new SessionTable((limit) => reached.push(limit), T0);
  const newSession = (principal: string, nowMs: number = T0): SessionRef => ({
    principal,
    serial: table.nextSerial(principal, nowMs),
    expiresMs: nowMs + DAY,
  });
  return { table, reached, newSession };
}

/** Ends every second session of a principal, the costliest pattern. Returns the sessions that remain. */
function endEverySecond(testing: ReturnType<typeof testTable>, principal: string, count: number): SessionRef[] {
  const left: SessionRef[] = [];
  for (let i = 0; i < count; i++) {
    testing.table.end(testing.newSession(principal), T0);
    left.push(testing.newSession(principal));
  }
  return left;
}

const rangesIn = (table: SessionTable): number =>
  [...table.entries()].reduce((sum, entry) => sum + ('ended' in entry ? entry.ended.length : 0), 0);

// N-65
test('opening and ending sessions in a loop takes the same room however long it lasts', OPTIONS, () => {
  const { table, reached, newSession } = testTable();
  for (let i = 0; i < 100_000; i++) table.end(newSession('loop'), T0);
  assert.equal(rangesIn(table), 1);
  assert.deepEqual(reached, []);
});

// N-65
test('limit endedRangesPerPrincipal: the oldest sessions end, and none revives', OPTIONS, () => {
  const testing = testTable();
  const other = testing.newSession('other');
  const oldest = testing.newSession('greedy');
  const left = endEverySecond(testing, 'greedy', LIMITS.endedRangesPerPrincipal + 1);
  assert.deepEqual(testing.reached, ['endedRangesPerPrincipal']);
  assert.ok(rangesIn(testing.table) <= LIMITS.endedRangesPerPrincipal);
  const ended = left.map((session) => testing.table.isEnded(session));
  assert.ok(ended.includes(true));
  assert.equal(ended.lastIndexOf(true) + 1, ended.indexOf(false), 'the oldest of them');
  assert.equal(testing.table.isEnded(oldest), false, 'older than any that was ended');
  assert.equal(testing.table.isEnded(other), false);
  for (const { serial, ...session } of left) {
    assert.equal(testing.table.isEnded({ ...session, serial: serial - 1 }), true);
  }
});

// N-65
test('limit endedRanges: the principal with the most ranges is reduced', OPTIONS, () => {
  const testing = testTable();
  const principals = LIMITS.endedRanges / LIMITS.endedRangesPerPrincipal;
  for (let i = 0; i < principals; i++) endEverySecond(testing, `p${i}`, LIMITS.endedRangesPerPrincipal - 1);
  const modest = endEverySecond(testing, 'modest', principals);
  assert.deepEqual(testing.reached, []);
  modest.push(...endEverySecond(testing, 'modest', 1));
  assert.deepEqual(testing.reached, ['endedRanges']);
  assert.ok(rangesIn(testing.table) <= LIMITS.endedRanges);
  assert.ok(modest.every((session) => !testing.table.isEnded(session)));
});

test('limit endedRanges: many principals with few ranges do not reach it at every end', OPTIONS, () => {
  const testing = testTable();
  const [principals, each] = [LIMITS.sessionPrincipals, LIMITS.endedRanges / LIMITS.sessionPrincipals];
  for (let i = 0; i < principals; i++) endEverySecond(testing, `p${i}`, each);
  for (let i = 0; i < 1_000; i++) endEverySecond(testing, `p${i}`, 1);
  assert.deepEqual(testing.reached, ['endedRanges']);
  assert.ok(rangesIn(testing.table) <= LIMITS.endedRanges);
});

// N-65
test('limit sessionPrincipals: a new principal is refused when none makes room', OPTIONS, () => {
  const { table, reached, newSession } = testTable();
  const known = newSession('p0');
  for (let i = 0; i < LIMITS.sessionPrincipals; i++) table.end(i === 0 ? known : newSession(`p${i}`), T0);
  assert.throws(() => table.nextSerial('late', T0), { code: 'overloaded' });
  assert.deepEqual(reached, ['sessionPrincipals']);
  assert.equal(table.nextSerial('p0', T0), known.serial + 1);
  assert.ok(table.nextSerial('late', T0 + DAY) > known.serial);
});

// N-65
test('principals without ended sessions make room, and numbers stay unique', OPTIONS, () => {
  const { table, reached, newSession } = testTable();
  const first = newSession('p0');
  for (let i = 1; i < 3 * LIMITS.sessionPrincipals; i++) table.nextSerial(`p${i}`, T0);
  assert.deepEqual(reached, []);
  assert.ok(table.nextSerial('p0', T0) > first.serial);
});

// N-65
test('an end is removed when the id has expired', OPTIONS, () => {
  const { table, newSession } = testTable();
  const session = newSession('one');
  table.end(session, T0 + DAY / 2);
  table.removeExpired(T0 + DAY - 1);
  assert.equal(table.isEnded(session), true);
  table.removeExpired(T0 + DAY);
  assert.equal(table.isEnded(session), false);
  assert.deepEqual([...table.entries()], []);
});

function fillRecord(testing: ReturnType<typeof testTable>, session: SessionRef): LimitName | undefined {
  for (let i = 0; i < LIMITS.subscriptionsPerSession; i++) {
    const uri = `${i}:`.padEnd(LIMITS.subscriptionUriBytes, 'x');
    const outcome = testing.table.change(session, { kind: 'subscribe', uri }, T0);
    if (outcome.limit !== undefined) return outcome.limit;
  }
  return undefined;
}

// N-23
test('limit sessionRecordBytesPerPrincipal refuses until a session ends', OPTIONS, () => {
  const testing = testTable();
  const first = testing.newSession('greedy');
  assert.equal(fillRecord(testing, first), undefined);
  const second = testing.newSession('greedy');
  assert.equal(fillRecord(testing, second), 'sessionRecordBytesPerPrincipal');
  assert.deepEqual(testing.reached, ['sessionRecordBytesPerPrincipal']);
  assert.equal(fillRecord(testing, testing.newSession('other')), undefined);
  testing.table.end(first, T0);
  assert.equal(fillRecord(testing, second), undefined);
});

// N-23
test('limit sessionRecordBytes refuses until records expire', OPTIONS, () => {
  const testing = testTable();
  const outcomes = Array.from({ length: 9 }, (_, i) => fillRecord(testing, testing.newSession(`p${i}`)));
  assert.deepEqual(
    outcomes.slice(0, 8),
    Array.from({ length: 8 }, () => undefined),
  );
  assert.equal(outcomes[8], 'sessionRecordBytes');
  const late = testing.newSession('late', T0 + DAY);
  const change = { kind: 'subscribe', uri: 'x'.repeat(LIMITS.subscriptionUriBytes) } as const;
  assert.equal(testing.table.change(late, change, T0 + DAY).limit, undefined);
});

/** Returns a function that makes changes, none of which may be refused, and one that returns the table of their journal. */
function journaling(table: SessionTable) {
  const journal: SessionEntry[] = [];
  return {
    change: (session: SessionRef, one: SessionChange) => {
      const { entries, limit } = table.change(session, one, T0);
      assert.equal(limit, undefined);
      journal.push(...entries);
    },
    replayed: () => {
      const other = new SessionTable(() => undefined, T0);
      for (const entry of journal) other.apply(entry);
      return other;
    },
  };
}

test('limit sessionRecordBytesPerPrincipal: later attachments take the room of older', OPTIONS, () => {
  const { table, reached, newSession } = testTable();
  const { change, replayed } = journaling(table);
  const attach = (session: SessionRef, upstream: string) =>
    change(session, { kind: 'attach', upstream, text: 'x'.repeat(LIMITS.attachmentBytes) });
  const other = newSession('other');
  attach(other, 'up');
  const [first, second, third] = [newSession('p'), newSession('p'), newSession('p')];
  for (const session of [first, second, third]) attach(session, 'up');
  change(first, { kind: 'level', level: 'info' });
  // The first one got its last attachment later than the second one.
  attach(first, 'another');
  let latest = first;
  while (reached.length < 2) {
    latest = newSession('p');
    attach(latest, 'up');
  }
  for (const one of [table, replayed()]) {
    const attached = [first, second, third, latest, other].map((session) => one.load(session, T0)?.attachments?.length);
    assert.deepEqual(attached, [2, undefined, undefined, 1, 1]);
    assert.equal(one.load(first, T0)?.logLevel, 'info');
  }
  attach(newSession('p'), 'up');
  assert.deepEqual(table.load(first, T0), { logLevel: 'info', subscriptions: [] });
  assert.deepEqual(new Set(reached), new Set(['sessionRecordBytesPerPrincipal']));
});

test('limit sessionRecordBytesPerPrincipal: the oldest sessions make room', OPTIONS, () => {
  const { table, reached, newSession } = testTable();
  const { change, replayed } = journaling(table);
  const subscribed = newSession('p');
  change(subscribed, { kind: 'subscribe', uri: 'file:///a' });
  const [first, other] = [newSession('p'), newSession('other')];
  for (const session of [first, other]) change(session, { kind: 'level', level: 'info' });
  let latest = first;
  while (reached.length < 3) {
    latest = newSession('p');
    change(latest, { kind: 'use', upstream: 'up' });
    change(latest, { kind: 'level', level: 'debug' });
  }
  for (const one of [table, replayed()]) {
    assert.deepEqual(one.load(subscribed, T0)?.subscriptions, ['file:///a']);
    assert.equal(one.load(first, T0), undefined);
    assert.equal(one.load(latest, T0)?.logLevel, 'debug');
    assert.equal(one.load(other, T0)?.logLevel, 'info');
  }
});

test('limit sessionRecordBytesPerPrincipal: attachments have a part of their own', OPTIONS, () => {
  const { table, newSession } = testTable();
  const attach = (session: SessionRef, text: string) =>
    table.change(session, { kind: 'attach', upstream: 'up', text }, T0);
  const live = newSession('p');
  attach(live, 'x'.repeat(400));
  const left = (n: number) => {
    for (let i = 0; i < n; i++) {
      const session = newSession('p');
      table.change(session, { kind: 'use', upstream: 'remote' }, T0);
      table.change(session, { kind: 'level', level: 'info' }, T0);
    }
  };
  left(15_000);
  const later = newSession('p');
  assert.equal(attach(later, 'y'.repeat(400)).limit, undefined);
  left(15_000);
  assert.equal(attach(newSession('p'), 'z'.repeat(400)).limit, undefined);
  for (const session of [live, later]) assert.equal(table.load(session, T0)?.attachments?.length, 1);
});

test('limit sessionRecordBytes: a principal without sessions gets room of others', OPTIONS, () => {
  const { table, reached, newSession } = testTable();
  const { change, replayed } = journaling(table);
  const use = { kind: 'use', upstream: 'u'.repeat(1_000_000) } as const;
  const [subscribed, first] = [newSession('p0'), newSession('p0')];
  change(subscribed, { kind: 'subscribe', uri: 'file:///a' });
  change(first, use);
  for (let n = 1; reached.length === 0; n++) change(newSession(`p${n}`), use);
  const latest = newSession('latest');
  change(latest, { kind: 'level', level: 'info' });
  const attached = newSession('attached');
  change(attached, { kind: 'attach', upstream: 'up', text: 'x' });
  assert.deepEqual(new Set(reached), new Set(['sessionRecordBytes']));
  for (const one of [table, replayed()]) {
    assert.deepEqual(one.load(subscribed, T0)?.subscriptions, ['file:///a']);
    assert.equal(one.load(first, T0), undefined);
    assert.equal(one.load(latest, T0)?.logLevel, 'info');
    assert.equal(one.load(attached, T0)?.attachments?.length, 1);
  }
});
