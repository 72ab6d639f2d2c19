import assert from 'node:assert/strict';
import { test } from 'node:test';
import { IdentityKeys } from '../../src/credentials/identity-keys.ts';
import { MemoryKeyStore } from '../../src/store/memory/key-store.ts';

const MINUTE_MS = 60_000;
const DAY_MS = 86_400_000;

test('keys that are known stay in use while the store cannot be read', async () => {
  const store = new MemoryKeyStore();
  const state = { isDown: true, reads: 0, nowMs: 0 };
  const keys = new IdentityKeys(() => state.nowMs);
  keys.begin();
  keys.use({
    add: async (nowMs, graceMs) => await store.add(nowMs, graceMs),
    read: async () => {
      state.reads++;
      if (state.isDown) throw new Error('the store is down');
      return await store.read();
    },
  });
  const signing = async (laterMs = 0) => await keys.signing(Date.now() + laterMs, MINUTE_MS);
  await assert.rejects(signing(), /the store is down/);
  state.isDown = false;
  const first = await signing();

  state.isDown = true;
  state.nowMs += DAY_MS;
  const { reads } = state;
  for (let n = 0; n < 5; n++) assert.equal((await signing()).kid, first.kid);
  assert.deepEqual((await keys.jwks(0))?.keys, [first.publicJwk]);
  assert.equal(state.reads, reads + 1, 'the store is left alone for a while');

  state.isDown = false;
  await store.add(Date.now(), DAY_MS);
  state.nowMs += 2_000;
  const second = await signing(10 * MINUTE_MS);
  assert.notEqual(second.kid, first.kid);
  assert.equal((await keys.jwks(0))?.keys.length, 2);
});

test('a new key is published for six minutes before it signs', async () => {
  const store = new MemoryKeyStore();
  const keys = new IdentityKeys(() => NaN);
  keys.begin();
  keys.use(store);
  const kidAt = async (nowMs: number) => (await keys.signing(nowMs, MINUTE_MS)).kid;
  const now = Date.now();
  const first = await kidAt(now);
  await store.add(now, DAY_MS);
  assert.deepEqual([await kidAt(now), await kidAt(now + 6 * MINUTE_MS - 1)], [first, first]);
  const published = (await keys.jwks(now))?.keys.map(({ kid }) => kid);
  const second = await kidAt(now + 6 * MINUTE_MS);
  assert.deepEqual(published, [first, second]);
  // A token of the first key would end after it.
  await store.add(now + DAY_MS, 0);
  const third = await kidAt(now + DAY_MS);
  assert.ok(third !== first && third !== second, 'a rotation without grace holds at once');
  const left = (await keys.jwks(now + DAY_MS))?.keys.map(({ kid }) => kid);
  assert.deepEqual(left, [third], 'keys that have ended are published no more');
});
