import assert from 'node:assert/strict';
import { test } from 'node:test';
import type { Isolation } from '../../src/config/values/upstream-config.ts';
import { setImmediate as nextTurn } from 'node:timers/promises';
import { GatewayParts } from '../support/gateway-parts.ts';
import { memoryUpstream } from '../support/memory-upstream.ts';
import { PATIENCE_MS } from '../support/patience.ts';

const principal = (key: string) => ({ principal: { key, label: key, scopes: [] } });

function onlyConnection(isolation: Isolation = 'principal') {
  const memory = memoryUpstream({});
  const at = new GatewayParts({ up: { memory, isolation, maxConnections: 1, queueMs: PATIENCE_MS / 2 } });
  return { memory, at, upstream: at.upstream('up') };
}

// REL-14
test('the end of the last session of a principal gives its connection to who waits', { timeout: 120_000 }, async () => {
  const { memory, at, upstream } = onlyConnection();
  await using _ = at;
  const ann = at.session(principal('ann')).session;
  const own = await upstream.link(ann);
  const waiting = upstream.link(at.session(principal('bob')).session);
  await nextTurn();
  upstream.releaseUser(ann);
  assert.notEqual(await waiting, own);
  assert.equal(memory.open.size, 1);
});

// REL-14
test(
  'the end of a call that outlived its session gives its connection to who waits',
  { timeout: 120_000 },
  async () => {
    const { memory, at, upstream } = onlyConnection();
    await using _ = at;
    const ann = at.session(principal('ann')).session;
    const own = await upstream.link(ann);
    upstream.beginCall(own);
    upstream.releaseUser(ann);
    const waiting = upstream.link(at.session(principal('bob')).session);
    await nextTurn();
    upstream.endCall(own);
    assert.notEqual(await waiting, own);
    assert.equal(memory.open.size, 1);
  },
);

for (const isolation of ['session', 'call'] as const) {
  test(`a session that has ended waits for no connection: isolation ${isolation}`, { timeout: 120_000 }, async () => {
    const { memory, at, upstream } = onlyConnection(isolation);
    await using _ = at;
    const [ann, bob, eve] = [at.session().session, at.session().session, at.session().session];
    const own = await upstream.link(ann);
    const given = upstream.link(bob);
    const waiting = upstream.link(eve);
    await nextTurn();
    bob.close();
    await assert.rejects(given);
    upstream.beginCall(own);
    upstream.releaseUser(ann);
    upstream.endCall(own);
    assert.ok((await waiting).users.has(eve));
    assert.equal(memory.starts, 2);
  });
}
