import assert from 'node:assert/strict';
import { hash } from 'node:crypto';
import { mkdir, mkdtemp, readdir, rename, rm, stat, truncate, utimes, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { test } from 'node:test';
import { LIMITS, type LimitName } from '../../../src/limits.ts';
import { diskOfferStore } from '../../../src/store/disk/offer-store.ts';
import { openState } from '../../../src/store/open-state.ts';
import { offerStoreContract } from '../offer-store.contract.ts';

const OPTIONS = { timeout: 120_000 };
const KEY = { upstream: 'up', target: '["node"]', era: '', capabilityKey: '', audience: '' };

async function testStore() {
  const path = await mkdtemp(join(tmpdir(), 'linkspan-offers-'));
  const reached: LimitName[] = [];
  const store = diskOfferStore(path, { onLimit: (limit) => reached.push(limit) });
  const files = () => readdir(join(path, 'offers'));
  return { path, store, reached, files, [Symbol.asyncDispose]: () => rm(path, { recursive: true }) };
}

offerStoreContract('disk', async () => {
  const { store, [Symbol.asyncDispose]: dispose } = await testStore();
  return Object.assign(store, { [Symbol.asyncDispose]: dispose });
});

test('lists survive the process, in one file that only this user can read', OPTIONS, async () => {
  await using dir = await testStore();
  await dir.store.write(KEY, 'text');
  const [file = '', ...others] = await dir.files();
  assert.deepEqual(others, []);
  assert.equal((await stat(join(dir.path, 'offers', file))).mode & 0o777, 0o600);
  assert.equal(await diskOfferStore(dir.path).read(KEY), 'text');
});

test('lists for all principals name none, as in the files of earlier versions', OPTIONS, async () => {
  await using dir = await testStore();
  await dir.store.write({ ...KEY, era: 'legacy', capabilityKey: 'c' }, 'text');
  await dir.store.write({ ...KEY, era: 'legacy', audience: 'anna@example.com' }, 'text');
  const digest = (text: string, chars: number) => hash('sha256', text).slice(0, chars);
  const stem = `up-${digest(KEY.target, 12)}.legacy`;
  assert.deepEqual((await dir.files()).toSorted(), [
    `${stem}.a-${digest('anna@example.com', 16)}.json`,
    `${stem}.c-${digest('c', 16)}.json`,
  ]);
});

test('lists of another principal are unknown, even in a file of the same name', OPTIONS, async () => {
  await using dir = await testStore();
  await dir.store.write({ ...KEY, audience: 'bob' }, 'lists of bob');
  const [ofBob = ''] = await dir.files();
  await dir.store.write({ ...KEY, audience: 'anna' }, 'lists of anna');
  const ofAnna = (await dir.files()).find((file) => file !== ofBob) ?? '';
  await rename(join(dir.path, 'offers', ofAnna), join(dir.path, 'offers', ofBob));
  assert.equal(await dir.store.read({ ...KEY, audience: 'bob' }), undefined);
});

test('limit storedOffersPerUpstream: lists of principals count, those for all stay', OPTIONS, async () => {
  await using dir = await testStore();
  const common = { ...KEY, upstream: 'up.c-a-' };
  await dir.store.write(common, 'common');
  for (let i = 0; i <= LIMITS.storedOffersPerUpstream; i++) {
    await dir.store.write({ ...common, audience: `user${i}` }, 'text');
  }
  assert.deepEqual(dir.reached, ['storedOffersPerUpstream']);
  assert.equal(await dir.store.read(common), 'common');
});

test('lists that cannot be read are unknown', OPTIONS, async () => {
  await using dir = await testStore();
  await dir.store.write(KEY, 'text');
  const [file = ''] = await dir.files();
  await rm(join(dir.path, 'offers', file));
  await mkdir(join(dir.path, 'offers', file));
  assert.equal(await dir.store.read(KEY), undefined);
});

test('in a directory that cannot be read nothing is known, and nothing fails', OPTIONS, async () => {
  await using dir = await testStore();
  const file = join(dir.path, 'file');
  await writeFile(file, '');
  const store = diskOfferStore(join(file, 'state'));
  assert.equal(await store.read(KEY), undefined);
  assert.equal(await store.hasFailed(KEY), false);
  assert.equal(await store.listedAtMs(KEY), undefined);
});

test('limit storedOfferBytes: larger lists are not kept, and older ones are removed', OPTIONS, async () => {
  await using dir = await testStore();
  await dir.store.write(KEY, 'x'.repeat(LIMITS.storedOfferBytes));
  assert.deepEqual(dir.reached, []);
  const [file = ''] = await dir.files();
  await truncate(join(dir.path, 'offers', file), LIMITS.storedOfferBytes + 1);
  assert.equal(await dir.store.read(KEY), undefined);
  await dir.store.write(KEY, `ü${'x'.repeat(LIMITS.storedOfferBytes - 1)}`);
  assert.deepEqual(dir.reached, ['storedOfferBytes']);
  assert.deepEqual(await dir.files(), []);
});

test('limit storedOffersPerUpstream: the oldest lists for capabilities are removed', OPTIONS, async () => {
  await using dir = await testStore();
  const everyone = [KEY, { ...KEY, era: 'modern' }, { ...KEY, upstream: 'up-2', capabilityKey: 'x' }];
  for (const key of everyone) await dir.store.write(key, 'everyone');
  for (const name of await dir.files()) await utimes(join(dir.path, 'offers', name), 1, 1);
  const keys = Array.from({ length: LIMITS.storedOffersPerUpstream }, (_, i) => ({ ...KEY, capabilityKey: `c${i}` }));
  for (const [i, key] of keys.entries()) {
    await dir.store.write(key, 'text');
    for (const name of await dir.files()) {
      const path = join(dir.path, 'offers', name);
      if ((await stat(path)).mtimeMs > 1e12) await utimes(path, 1_000 + i, 1_000 + i);
    }
  }
  assert.deepEqual(dir.reached, []);
  await dir.store.write({ ...KEY, capabilityKey: 'more' }, 'text');
  assert.deepEqual(dir.reached, ['storedOffersPerUpstream']);
  assert.deepEqual(await Promise.all(keys.slice(0, 2).map((key) => dir.store.read(key))), [undefined, 'text']);
  for (const key of everyone) assert.equal(await dir.store.read(key), 'everyone');
});

// N-67
test('a process that does not own the directory reads lists and writes none', OPTIONS, async () => {
  await using dir = await testStore();
  const ignore = () => undefined;
  const events = { onWriteFailed: ignore, onFailing: ignore, onRecovered: ignore, onLimit: ignore, onRefused: ignore };
  await using owner = await openState(dir.path, { mayOwn: true, events });
  await owner.offers.write(KEY, 'of the owner');
  for (const mayOwn of [true, false]) {
    await using other = await openState(dir.path, { mayOwn, events });
    assert.notEqual(other.notice, undefined);
    assert.equal(await other.offers.read(KEY), 'of the owner');
    await other.offers.write(KEY, 'of another');
    await other.offers.remove(KEY);
  }
  assert.equal(await owner.offers.read(KEY), 'of the owner');
});

test('a process that never owns the directory keeps lists in it while nobody does', OPTIONS, async () => {
  await using dir = await testStore();
  const ignore = () => undefined;
  const events = { onWriteFailed: ignore, onFailing: ignore, onRecovered: ignore, onLimit: ignore, onRefused: ignore };
  await using state = await openState(dir.path, { mayOwn: false, events });
  await state.offers.write(KEY, 'text');
  await using owner = await openState(dir.path, { mayOwn: true, events });
  assert.equal(owner.notice, undefined);
  assert.equal(await owner.offers.read(KEY), 'text');
});

test('files of an upstream that nobody has used for 30 days are removed', OPTIONS, async () => {
  await using dir = await testStore();
  const old = new Date(Date.now() - 31 * 24 * 3_600_000);
  const fileAll = async (key: typeof KEY) => {
    await dir.store.write(key, 'text');
    await dir.store.write({ ...key, audience: 'anna' }, 'text');
    await dir.store.setFailed(key, true);
  };
  const [gone, known, recent] = ['gone', 'known', 'recent'].map((upstream) => ({ ...KEY, upstream }));
  assert.ok(gone !== undefined && known !== undefined && recent !== undefined);
  await Promise.all([gone, known, recent].map(fileAll));
  await writeFile(join(dir.path, 'offers', 'foreign.json'), '');
  for (const name of await dir.files()) {
    if (!name.startsWith('recent') || name.endsWith('.failed')) await utimes(join(dir.path, 'offers', name), old, old);
  }
  const later = diskOfferStore(dir.path);
  // The upstream is in the config, but cannot be listed.
  assert.equal(await later.hasFailed(known), true);
  await later.setListed({ ...KEY, upstream: 'listed' });
  const counts = Map.groupBy(await dir.files(), (name) => /^[a-z]+/.exec(name)?.[0]);
  assert.deepEqual(Object.fromEntries([...counts].map(([name, files]) => [name, files.length])), {
    foreign: 1,
    known: 3,
    listed: 1,
    recent: 3,
  });
  assert.equal(await later.read(gone), undefined);
  assert.equal(await later.read(known), 'text');
});
