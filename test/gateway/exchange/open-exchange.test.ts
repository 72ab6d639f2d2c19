import assert from 'node:assert/strict';
import { test } from 'node:test';
import { setImmediate as nextTurn } from 'node:timers/promises';
import { GatewayParts } from '../../support/gateway-parts.ts';
import { memoryUpstream } from '../../support/memory-upstream.ts';

test('what a cancelled exchange would have waited for may fail unheard', async (t) => {
  await using at = new GatewayParts({ up: { memory: memoryUpstream({}) } });
  const { session } = at.session();
  const { exchange } = at.exchange(session, session, { params: {} });
  const unheard: unknown[] = [];
  const onUnheard = (thrown: unknown) => unheard.push(thrown);
  process.on('unhandledRejection', onUnheard);
  t.after(() => process.off('unhandledRejection', onUnheard));
  exchange.cancel('gone');
  const failing = new Promise((_, reject) => setImmediate(() => reject(new Error('failed'))));
  await assert.rejects(exchange.unlessCancelled(failing), { code: 'cancelled' });
  await nextTurn();
  await nextTurn();
  assert.deepEqual(unheard, []);
});
