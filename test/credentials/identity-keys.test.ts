import assert from 'node:assert/strict';
import { test } from 'node:test';
import { IdentityKeys } from '../../src/credentials/identity-keys.ts';
import { MemoryKeyStore } from '../../src/store/memory/key-store.ts';

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
  await assert.rejects(keys.newest(), /the store is down/);
  state.isDown = false;
  const first = await keys.newest();

  state.isDown = true;
  state.nowMs += DAY_MS;
  const { reads } = state;
  for (let n = 0; n < 5; n++) assert.equal((await keys.newest()).kid, first.kid);
  assert.deepEqual((await keys.jwks(0))?.keys, [first.publicJwk]);
  assert.equal(state.reads, reads + 1, 'the store is left alone for a while');

  state.isDown = false;
  await store.add(Date.now(), DAY_MS);
  state.nowMs += 2_000;
  const second = await keys.newest();
  assert.notEqual(second.kid, first.kid);
  assert.equal((await keys.jwks(0))?.keys.length, 2);
});
