import assert from 'node:assert/strict';
import { hash } from 'node:crypto';
import { test } from 'node:test';
import { type ApiKeyStore, keyIdOf, type StoredKey } from '../../src/store/api-key-store.ts';
import { waitUntil } from '../support/wait-until.ts';

const OPTIONS = { timeout: 120_000 };

/** Returns a stored key. */
export function keyOf(name: string, own: Partial<StoredKey> = {}): StoredKey {
  return { name, sha256: hash('sha256', `the key of ${name}`), ...own };
}

/** The contract of every store of API keys. @param open returns a store of its own, and another process's view of it. */
export function apiKeyStoreContract(name: string, open: () => Promise<readonly [ApiKeyStore, ApiKeyStore]>): void {
  const FULL = keyOf('full', {
    owner: 'Ada Ö.',
    groups: ['sales', 'on call'],
    createdAt: '2026-11-23T05:00:00.000Z',
    expiresAt: '2027-01-01T00:00:00.000Z',
  });
  const byName = (keys: readonly StoredKey[]) => keys.toSorted((a, b) => a.name.localeCompare(b.name));

  test(`${name}: keys that were added are read by another process, with all members`, OPTIONS, async () => {
    const [store, other] = await open();
    await store.change(() => ({ add: [FULL, keyOf('plain')] }));
    assert.deepEqual(byName(await other.read()), [FULL, keyOf('plain')]);
    await other.change((keys) => {
      assert.equal(keys.length, 2);
      return { remove: [keyOf('plain')], add: [{ ...FULL, groups: ['sales'] }] };
    });
    assert.deepEqual(await store.read(), [{ ...FULL, groups: ['sales'] }]);
  });

  test(`${name}: a decision that throws changes nothing`, OPTIONS, async () => {
    const [store] = await open();
    await store.change(() => ({ add: [FULL] }));
    const refuse = () => {
      throw new Error('no');
    };
    await assert.rejects(store.change(refuse), /^Error: no$/);
    assert.deepEqual(await store.read(), [FULL]);
    await store.change(() => ({ add: [keyOf('later')] }));
  });

  test(`${name}: changes at the same time are all kept`, OPTIONS, async () => {
    const [store, other] = await open();
    const names = Array.from({ length: 12 }, (_, n) => `key ${n}`);
    await Promise.all(names.map((each, n) => (n % 2 === 0 ? store : other).change(() => ({ add: [keyOf(each)] }))));
    assert.deepEqual(new Set((await store.read()).map((key) => key.name)), new Set(names));
  });

  test(`${name}: a watch reports each change of another process`, OPTIONS, async () => {
    const [store, other] = await open();
    await store.change(() => ({ add: [FULL] }));
    let due = 0;
    using _watch = await store.watch(() => due++);
    for (const added of ['one', 'two']) {
      const before = due;
      await other.change(() => ({ add: [keyOf(added)] }));
      await waitUntil(() => due > before);
    }
  });

  test(`${name}: times of last use are kept for keys that are there`, OPTIONS, async () => {
    const [store, other] = await open();
    const [one, two] = [keyOf('one'), keyOf('two')];
    await store.change(() => ({ add: [one, two] }));
    const known = new Set([one, two].map(keyIdOf));
    await store.storeUses(new Map([[keyIdOf(one), 1_000]]), known);
    await store.storeUses(
      new Map([
        [keyIdOf(two), 2_000],
        ['0123456789ab', 3_000],
      ]),
      known,
    );
    assert.deepEqual(
      new Map(await other.lastUses()),
      new Map([
        [keyIdOf(one), 1_000],
        [keyIdOf(two), 2_000],
      ]),
    );
  });

  test(`${name}: the latest use of a key counts, though an earlier one is stored later`, OPTIONS, async () => {
    const [store, other] = await open();
    const key = keyOf('one');
    await store.change(() => ({ add: [key] }));
    for (const [each, usedMs] of [[store, 1_000] as const, [other, 3_000] as const, [store, 2_000] as const]) {
      await each.storeUses(new Map([[keyIdOf(key), usedMs]]), new Set([keyIdOf(key)]));
    }
    assert.equal((await other.lastUses()).get(keyIdOf(key)), 3_000);
  });

  test(`${name}: processes that store times of last use at once lose none`, OPTIONS, async () => {
    const stores = await open();
    const keys = Array.from({ length: 10 }, (_, n) => keyOf(`at once ${n}`));
    await stores[0].change(() => ({ add: keys }));
    const known = new Set(keys.map(keyIdOf));
    await Promise.all(
      keys.map((key, n) => stores[n % 2 === 0 ? 0 : 1].storeUses(new Map([[keyIdOf(key), 1_000 + n]]), known)),
    );
    const uses = await stores[0].lastUses();
    assert.deepEqual(
      keys.map((key) => uses.get(keyIdOf(key))),
      keys.map((_, n) => 1_000 + n),
    );
  });
}
