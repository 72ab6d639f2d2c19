import assert from 'node:assert/strict';
import { test } from 'node:test';
import type { KeyStore } from '../../src/store/key-store.ts';

const OPTIONS = { timeout: 120_000 };
const DAY = 24 * 3_600_000;

/** The contract of every key store. */
export function keyStoreContract(name: string, open: () => Promise<KeyStore & AsyncDisposable>): void {
  test(`${name}: a new store has one key that does not end`, OPTIONS, async () => {
    await using store = await open();
    const [key, ...others] = await store.read();
    assert.deepEqual(others, []);
    assert.equal(Buffer.from(key?.key ?? '', 'base64url').length, 32);
    assert.equal(key?.until, undefined);
    assert.deepEqual(await store.read(), [key]);
  });

  test(`${name}: an added key comes last, and older ones end after the grace period`, OPTIONS, async () => {
    await using store = await open();
    const [first] = await store.read();
    const nowMs = Date.now();
    await store.add(nowMs, 1_000);
    await store.add(nowMs + 10, 5_000);
    const keys = await store.read();
    assert.deepEqual(
      keys.map(({ until }) => until),
      [nowMs + 1_000, nowMs + 5_010, undefined],
    );
    assert.equal(keys[0]?.kid, first?.kid);
    assert.equal(new Set(keys.map(({ kid }) => kid)).size, 3);
    await store.add(nowMs + 2 * DAY, 1_000);
    assert.equal((await store.read()).length, 2, 'keys that open nothing any more are removed');
  });

  // SEC-30
  test(`${name}: without a grace period, older keys ended long ago`, OPTIONS, async () => {
    await using store = await open();
    const nowMs = Date.now();
    await store.add(nowMs, 0);
    const [old, fresh] = await store.read();
    assert.ok(old?.until !== undefined && old.until < nowMs - DAY / 24, `${old?.until}`);
    assert.equal(fresh?.until, undefined);
    await store.add(nowMs, 1_000);
    assert.equal((await store.read()).length, 3, 'the old key is known for a while');
  });
}
