import assert from 'node:assert/strict';
import { randomUUID } from 'node:crypto';
import { test } from 'node:test';
import type { OfferStore, StoredOfferKey } from '../../src/store/offer-store.ts';

const OPTIONS = { timeout: 120_000 };

/** The contract of every offer store. */
export function offerStoreContract(name: string, open: () => Promise<OfferStore & AsyncDisposable>): void {
  const key = (own: Partial<StoredOfferKey> = {}): StoredOfferKey => ({
    upstream: `u${randomUUID()}`,
    target: '["node"]',
    era: '',
    capabilityKey: '',
    audience: '',
    ...own,
  });

  test(`${name}: lists that were never written are unknown`, OPTIONS, async () => {
    await using store = await open();
    assert.equal(await store.read(key()), undefined);
    await store.remove(key());
  });

  test(`${name}: the last lists are read until they are removed`, OPTIONS, async () => {
    await using store = await open();
    const one = key();
    await store.write(one, 'first');
    await store.write(one, 'ü\n');
    assert.equal(await store.read(one), 'ü\n');
    await store.remove(one);
    assert.equal(await store.read(one), undefined);
  });

  test(`${name}: every part of the key tells lists apart`, OPTIONS, async () => {
    await using store = await open();
    const one = key();
    const keys = [
      one,
      { ...one, upstream: `${one.upstream}x` },
      { ...one, target: '["python"]' },
      { ...one, era: 'modern' },
      { ...one, era: 'legacy' },
      { ...one, capabilityKey: 'sampling' },
      { ...one, capabilityKey: '../../x' },
      { ...one, era: 'modern', capabilityKey: 'sampling' },
      { ...one, audience: 'anna' },
      { ...one, audience: '../../x' },
      { ...one, audience: 'sampling' },
      { ...one, capabilityKey: 'sampling', audience: 'anna' },
    ];
    for (const [i, each] of keys.entries()) await store.write(each, String(i));
    for (const [i, each] of keys.entries()) assert.equal(await store.read(each), String(i));
    await store.remove(one);
    for (const [i, each] of keys.entries()) {
      assert.equal(await store.read(each), i === 0 ? undefined : String(i));
    }
  });

  // N-04
  test(`${name}: an upstream that could not be listed is remembered until it is`, OPTIONS, async () => {
    await using store = await open();
    const one = key();
    await store.setFailed(one, true);
    assert.equal(await store.hasFailed(one), true);
    assert.equal(await store.hasFailed({ ...one, target: '["python"]' }), false);
    assert.equal(await store.read(one), undefined);
    await store.setFailed(one, false);
    await store.setFailed(one, false);
    assert.equal(await store.hasFailed(one), false);
  });

  // N-07
  test(`${name}: the time of the last listing is kept for each upstream`, OPTIONS, async () => {
    await using store = await open();
    const one = key();
    assert.equal(await store.listedAtMs(one), undefined);
    const beforeMs = Date.now() - 1_000;
    await store.setListed(one);
    assert.ok(((await store.listedAtMs(one)) ?? 0) >= beforeMs);
    assert.equal(await store.listedAtMs({ ...one, target: '["python"]' }), undefined);
  });
}
