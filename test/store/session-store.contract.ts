import assert from 'node:assert/strict';
import { randomUUID } from 'node:crypto';
import { test } from 'node:test';
import type { SessionStore } from '../../src/store/session-store.ts';

const OPTIONS = { timeout: 20_000 };
const HOUR = 3_600_000;

/** What every store promises. `open` gives one that may be shared with others, but whose ids are nobody else's. */
export function sessionStoreContract(name: string, open: () => Promise<SessionStore>): void {
  const id = () => randomUUID();

  test(`${name}: a session nobody has saved is unknown, and has not ended`, OPTIONS, async () => {
    await using store = await open();
    for (const unknown of [id(), '', '__proto__', 'constructor']) {
      assert.equal(await store.load(unknown), undefined);
      assert.equal(await store.isEnded(unknown), false);
    }
  });

  test(`${name}: what was saved last is loaded`, OPTIONS, async () => {
    await using store = await open();
    const [one, two] = [id(), id()];
    await store.save(one, { subscriptions: ['files+file:///a', 'ü\n"'], logLevel: 'warning' });
    await store.save(two, { subscriptions: [] });
    assert.deepEqual(await store.load(one), { subscriptions: ['files+file:///a', 'ü\n"'], logLevel: 'warning' });
    assert.deepEqual(await store.load(two), { subscriptions: [] });
    await store.save(one, { subscriptions: ['b'] });
    assert.deepEqual(await store.load(one), { subscriptions: ['b'] });
    assert.equal(await store.isEnded(one), false);
  });

  test(`${name}: what is changed after it was saved is not saved`, OPTIONS, async () => {
    await using store = await open();
    const one = id();
    const subscriptions = ['a'];
    await store.save(one, { subscriptions });
    subscriptions.push('b');
    assert.deepEqual(await store.load(one), { subscriptions: ['a'] });
  });

  test(`${name}: of many changes at once the last asked for counts`, OPTIONS, async () => {
    await using store = await open();
    const one = id();
    await Promise.all(Array.from({ length: 50 }, (_, i) => store.save(one, { subscriptions: [String(i)] })));
    assert.deepEqual(await store.load(one), { subscriptions: ['49'] });
  });

  test(`${name}: a session that has ended stays so, whatever is saved`, OPTIONS, async () => {
    await using store = await open();
    const [one, other] = [id(), id()];
    await store.save(one, { subscriptions: ['a'] });
    await store.save(other, { subscriptions: ['a'] });
    await store.end(one, Date.now() + HOUR);
    await store.save(one, { subscriptions: ['b'] });
    await store.end(one, Date.now() + HOUR);
    assert.equal(await store.isEnded(one), true);
    assert.equal(await store.load(one), undefined);
    assert.equal(await store.isEnded(other), false);
    assert.deepEqual(await store.load(other), { subscriptions: ['a'] });
  });

  test(`${name}: an end that was asked for before a change wins over it, and after it too`, OPTIONS, async () => {
    await using store = await open();
    const [one, two] = [id(), id()];
    const until = Date.now() + HOUR;
    await Promise.all([store.save(one, { subscriptions: ['a'] }), store.end(one, until)]);
    await Promise.all([store.end(two, until), store.save(two, { subscriptions: ['a'] })]);
    for (const each of [one, two]) {
      assert.equal(await store.isEnded(each), true);
      assert.equal(await store.load(each), undefined);
    }
  });

  test(`${name}: an end need not be remembered once the id has expired by itself`, OPTIONS, async () => {
    await using store = await open();
    const one = id();
    await store.end(one, Date.now() - 1);
    assert.equal(await store.isEnded(one), false);
    assert.equal(await store.load(one), undefined);
  });
}
