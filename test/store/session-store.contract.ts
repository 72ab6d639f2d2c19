import assert from 'node:assert/strict';
import { randomUUID } from 'node:crypto';
import { test } from 'node:test';
import { LIMITS } from '../../src/limits.ts';
import type { SessionChange, SessionRef, SessionStore } from '../../src/store/session-store.ts';

const OPTIONS = { timeout: 120_000 };
const HOUR = 3_600_000;

/** The contract of every session store. `open` may return a shared store, whose principals are unique to the test. */
export function sessionStoreContract(name: string, open: () => Promise<SessionStore>): void {
  const newSession = async (store: SessionStore, principal: string = randomUUID()): Promise<SessionRef> => ({
    principal,
    serial: await store.nextSerial(principal),
    expiresMs: Date.now() + HOUR,
  });
  const subscribe = (store: SessionStore, session: SessionRef, uri: string) =>
    store.change(session, { kind: 'subscribe', uri });

  test(`${name}: the serial numbers of a principal follow each other`, OPTIONS, async () => {
    await using store = await open();
    const [one, two] = [randomUUID(), randomUUID()];
    const first = await store.nextSerial(one);
    await store.nextSerial(two);
    assert.equal(await store.nextSerial(one), first + 1);
    assert.ok(Number.isSafeInteger(first));
  });

  test(`${name}: a session without changes has no record and has not ended`, OPTIONS, async () => {
    await using store = await open();
    for (const principal of [randomUUID(), '', '__proto__', 'constructor']) {
      const session = { principal, serial: 1, expiresMs: Date.now() + HOUR };
      assert.equal(await store.load(session), undefined);
      assert.equal(await store.isEnded(session), false);
    }
  });

  test(`${name}: a record has the last level and the URIs that are subscribed to`, OPTIONS, async () => {
    await using store = await open();
    const [one, two] = [await newSession(store), await newSession(store)];
    await store.change(one, { kind: 'level', level: 'error' });
    await store.change(one, { kind: 'level', level: 'warning' });
    for (const uri of ['a', 'ü\n"\ud800', 'b', 'a']) assert.equal(await subscribe(store, one, uri), undefined);
    await store.change(one, { kind: 'unsubscribe', uri: 'b' });
    await store.change(one, { kind: 'unsubscribe', uri: 'never' });
    await subscribe(store, two, 'b');
    assert.deepEqual(await store.load(one), { subscriptions: ['a', 'ü\n"\ud800'], logLevel: 'warning' });
    assert.deepEqual(await store.load(two), { subscriptions: ['b'] });
    await store.change(two, { kind: 'unsubscribe', uri: 'b' });
    assert.equal(await store.load(two), undefined);
  });

  test(`${name}: a session that has unsubscribed from everything can be ended`, OPTIONS, async () => {
    await using store = await open();
    const session = await newSession(store);
    await subscribe(store, session, 'a');
    await store.change(session, { kind: 'unsubscribe', uri: 'a' });
    assert.equal(await store.end(session), true);
    assert.equal(await store.isEnded(session), true);
  });

  test(`${name}: an attachment is loaded as it was stored last`, OPTIONS, async () => {
    await using store = await open();
    const session = await newSession(store);
    const attach = (upstream: string, text: string) => store.change(session, { kind: 'attach', upstream, text });
    for (const [upstream, text] of [
      ['up', 'one'],
      ['__proto__', 'ü\ud800'],
      ['up', 'two'],
    ] as const) {
      assert.equal(await attach(upstream, text), undefined);
    }
    await subscribe(store, session, 'a');
    await store.change(session, { kind: 'unsubscribe', uri: 'a' });
    const { attachments = [], subscriptions } = (await store.load(session)) ?? {};
    assert.deepEqual(
      new Map(attachments.map(({ upstream, text }) => [upstream, text])),
      new Map([
        ['up', 'two'],
        ['__proto__', 'ü\ud800'],
      ]),
    );
    assert.deepEqual(subscriptions, []);
    await store.end(session);
    assert.equal(await store.load(session), undefined);
  });

  test(`${name}: limit attachmentBytes refuses, and leaves room for subscriptions`, OPTIONS, async () => {
    await using store = await open();
    const principal = randomUUID();
    const session = await newSession(store, principal);
    const attach = (upstream: string, text: string) => store.change(session, { kind: 'attach', upstream, text });
    const long = 'x'.repeat(LIMITS.attachmentBytes);
    assert.equal(await attach('up', `${long}x`), 'attachmentBytes');
    let limit: string | undefined;
    for (let n = 0; limit === undefined; n++) limit = await attach(`up${n}`, long);
    assert.equal(limit, 'sessionRecordBytesPerPrincipal');
    assert.equal(await attach('up0', 'short'), undefined, 'one that takes less is stored');
    const other = await newSession(store, principal);
    for (let n = 0; n < 100; n++) assert.equal(await subscribe(store, other, `${n}`.padEnd(4_000, 'y')), undefined);
  });

  /** Opens sessions of a principal and leaves them behind, until a session has lost what it had. No change may be refused. */
  const leaveUntil = async (
    store: SessionStore,
    principal: string,
    change: SessionChange,
    hasLost: () => Promise<boolean>,
  ): Promise<SessionRef> => {
    for (let n = 0; n < 1_000; n++) {
      const left = await newSession(store, principal);
      assert.equal(await store.change(left, change), undefined);
      if (await hasLost()) return left;
    }
    throw new assert.AssertionError({ message: 'nothing has made room' });
  };
  const ATTACH = { kind: 'attach', upstream: 'up', text: 'x'.repeat(LIMITS.attachmentBytes) } as const;
  const USE = { kind: 'use', upstream: 'u'.repeat(100_000) } as const;

  test(`${name}: limit sessionRecordBytesPerPrincipal: the oldest sessions make room`, OPTIONS, async () => {
    await using store = await open();
    const principal = randomUUID();
    const [other, subscribed, attached] = [
      await newSession(store),
      await newSession(store, principal),
      await newSession(store, principal),
    ];
    const level = { kind: 'level', level: 'error' } as const;
    await store.change(other, level);
    await subscribe(store, subscribed, 'a');
    await store.change(attached, { ...ATTACH, text: 'x' });
    const [first, second, third] = [
      await newSession(store, principal),
      await newSession(store, principal),
      await newSession(store, principal),
    ];
    for (const session of [first, second, third]) await store.change(session, USE);
    await subscribe(store, first, 'a');
    await leaveUntil(store, principal, USE, async () => (await store.load(second)) === undefined);
    assert.deepEqual(await store.load(first), { subscriptions: ['a'], upstreams: [USE.upstream] });
    assert.deepEqual(await store.load(third), { subscriptions: [], upstreams: [USE.upstream] });
    await store.change(first, { kind: 'unsubscribe', uri: 'a' });
    const latest = await leaveUntil(store, principal, USE, async () => (await store.load(first)) === undefined);
    assert.equal(await store.change(latest, level), undefined);
    assert.deepEqual(await store.load(latest), { subscriptions: [], logLevel: 'error', upstreams: [USE.upstream] });
    assert.deepEqual(await store.load(subscribed), { subscriptions: ['a'] });
    assert.equal((await store.load(attached))?.attachments?.length, 1);
    assert.deepEqual(await store.load(other), { subscriptions: [], logLevel: 'error' });
  });

  test(`${name}: limit sessionRecordBytesPerPrincipal: later attachments replace older`, OPTIONS, async () => {
    await using store = await open();
    const principal = randomUUID();
    const first = await newSession(store, principal);
    await subscribe(store, first, 'a');
    await store.change(first, ATTACH);
    const [second, other] = [await newSession(store, principal), await newSession(store)];
    for (const session of [second, other]) await store.change(session, ATTACH);
    // The first one got its last attachment later than the second one.
    await store.change(first, { ...ATTACH, upstream: 'another' });
    await leaveUntil(store, principal, ATTACH, async () => (await store.load(second)) === undefined);
    assert.equal((await store.load(first))?.attachments?.length, 2);
    await leaveUntil(store, principal, ATTACH, async () => (await store.load(first))?.attachments === undefined);
    assert.deepEqual(await store.load(first), { subscriptions: ['a'] });
    assert.equal((await store.load(other))?.attachments?.length, 1);
  });

  test(`${name}: sessions with attachments make room when no other can`, OPTIONS, async () => {
    await using store = await open();
    const principal = randomUUID();
    const attach = { ...ATTACH, text: 'x' };
    const subscribed = await newSession(store, principal);
    await subscribe(store, subscribed, 'a');
    const first = await newSession(store, principal);
    for (const session of [subscribed, first]) await store.change(session, attach);
    for (let n = 0; (await store.load(first)) !== undefined; n++) {
      assert.ok(n < 1_000, 'nothing has made room');
      const left = await newSession(store, principal);
      for (const change of [attach, USE]) assert.equal(await store.change(left, change), undefined);
    }
    assert.deepEqual(await store.load(subscribed), { subscriptions: ['a'] });
  });

  test(`${name}: attachments have a part of the room of their own`, OPTIONS, async () => {
    await using store = await open();
    const principal = randomUUID();
    const [attached, first, second] = [
      await newSession(store, principal),
      await newSession(store, principal),
      await newSession(store, principal),
    ];
    await store.change(attached, ATTACH);
    for (const session of [first, second]) await store.change(session, USE);
    await leaveUntil(store, principal, USE, async () => (await store.load(first)) === undefined);
    const later = await newSession(store, principal);
    assert.equal(await store.change(later, ATTACH), undefined);
    await leaveUntil(store, principal, USE, async () => (await store.load(second)) === undefined);
    for (const session of [attached, later]) assert.equal((await store.load(session))?.attachments?.length, 1);
  });

  test(`${name}: a record that was loaded does not change`, OPTIONS, async () => {
    await using store = await open();
    const session = await newSession(store);
    await subscribe(store, session, 'a');
    const record = await store.load(session);
    await subscribe(store, session, 'b');
    assert.deepEqual(record, { subscriptions: ['a'] });
  });

  test(`${name}: of many changes at once the last counts`, OPTIONS, async () => {
    await using store = await open();
    const session = await newSession(store);
    await Promise.all(
      Array.from({ length: 51 }, (_, i) =>
        store.change(session, { kind: i % 2 === 0 ? 'subscribe' : 'unsubscribe', uri: 'a' }),
      ),
    );
    assert.deepEqual(await store.load(session), { subscriptions: ['a'] });
  });

  test(`${name}: a session that has ended stays ended, and has no record`, OPTIONS, async () => {
    await using store = await open();
    const principal = randomUUID();
    const [one, other] = [await newSession(store, principal), await newSession(store, principal)];
    await subscribe(store, one, 'a');
    await subscribe(store, other, 'a');
    assert.equal(await store.end(one), true);
    await subscribe(store, one, 'b');
    assert.equal(await store.end(one), true);
    assert.equal(await store.isEnded(one), true);
    assert.equal(await store.load(one), undefined);
    assert.equal(await store.isEnded(other), false);
    assert.deepEqual(await store.load(other), { subscriptions: ['a'] });
  });

  test(`${name}: an end wins over a change at the same time`, OPTIONS, async () => {
    await using store = await open();
    const [one, two] = [await newSession(store), await newSession(store)];
    await Promise.all([subscribe(store, one, 'a'), store.end(one)]);
    await Promise.all([store.end(two), subscribe(store, two, 'a')]);
    for (const each of [one, two]) {
      assert.equal(await store.isEnded(each), true);
      assert.equal(await store.load(each), undefined);
    }
  });

  test(`${name}: sessions of two principals with one serial number are two sessions`, OPTIONS, async () => {
    await using store = await open();
    const one = await newSession(store);
    const two = { ...one, principal: randomUUID() };
    await subscribe(store, one, 'a');
    await store.end(two);
    assert.equal(await store.isEnded(one), false);
    assert.deepEqual(await store.load(one), { subscriptions: ['a'] });
  });

  test(`${name}: a record is gone once the id has expired`, OPTIONS, async () => {
    await using store = await open();
    const session = { ...(await newSession(store)), expiresMs: Date.now() - 1 };
    await subscribe(store, session, 'a');
    assert.equal(await store.load(session), undefined);
  });

  test(`${name}: limit subscriptionsPerSession and limit subscriptionUriBytes refuse`, OPTIONS, async () => {
    await using store = await open();
    const session = await newSession(store);
    const long = `é${'x'.repeat(4_094)}`;
    assert.equal(await subscribe(store, session, long), undefined);
    assert.equal(await subscribe(store, session, `${long}x`), 'subscriptionUriBytes');
    for (let i = 1; i < 1_000; i++) assert.equal(await subscribe(store, session, `u${i}`), undefined);
    assert.equal(await subscribe(store, session, 'more'), 'subscriptionsPerSession');
    assert.equal(await subscribe(store, session, 'u1'), undefined, 'it is subscribed to already');
    assert.equal((await store.load(session))?.subscriptions.length, 1_000);
    await store.change(session, { kind: 'unsubscribe', uri: 'u1' });
    assert.equal(await subscribe(store, session, 'more'), undefined);
  });
}
