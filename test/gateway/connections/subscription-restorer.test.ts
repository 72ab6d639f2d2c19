import assert from 'node:assert/strict';
import { test } from 'node:test';
import { setImmediate as nextTurn } from 'node:timers/promises';
import { SubscriptionRestorer } from '../../../src/gateway/connections/subscription-restorer.ts';
import type { ConnectionHolder } from '../../../src/gateway/exchange/connection-holder.ts';
import { detach } from '../../../src/json/kept-text.ts';
import { Changes } from '../../support/changes.ts';
import { GatewayParts, type PartsUpstream } from '../../support/gateway-parts.ts';
import { memoryUpstream } from '../../support/memory-upstream.ts';
import { stopTime } from '../../support/stopped-time.ts';

/** Lets the pauses between the first attempts pass. */
async function pass(time: ReturnType<typeof stopTime>): Promise<void> {
  for (let second = 0; second < 10; second++) {
    time.pass(1_000);
    await nextTurn();
  }
}

/** A restorer whose first attempts to open a link fail. @param failures of all attempts together. */
function restoring(failures: number, upstream: Partial<PartsUpstream> = {}) {
  const at = new GatewayParts({ up: { memory: memoryUpstream({}), ...upstream } });
  const opened: ConnectionHolder[] = [];
  const changes = new Changes();
  const restorer = new SubscriptionRestorer({
    upstreams: at.upstreams,
    views: at.views,
    log: at.log,
    open: async (holder) => {
      opened.push(holder);
      changes.announce();
      if (opened.length <= failures) throw new Error('does not start');
      return await at.upstream('up').link(holder);
    },
  });
  const attempts = (count: number) => changes.until(() => opened.length >= count || undefined);
  return { at, restorer, opened, attempts };
}

function subscribe(holder: ConnectionHolder): void {
  holder.subscriptions.set(detach('up+file:///a'), { upstream: 'up', uri: detach('file:///a') });
}

test('a link for subscriptions is tried again until it opens, once at a time', async (t) => {
  const time = stopTime(t);
  const { at, restorer, opened, attempts } = restoring(2);
  await using _ = at;
  const { session } = at.session();
  subscribe(session);
  for (let n = 0; n < 3; n++) restorer.restore(session, 'up');
  await time.passUntil(attempts(3), 100);
  const link = await at.upstream('up').link(session);
  await pass(time);
  assert.deepEqual([opened.length, [...link.users]], [3, [session]]);
});

test('nobody opens a link for a holder that has closed or has no subscription left', async (t) => {
  const time = stopTime(t);
  for (const end of ['close', 'unsubscribe'] as const) {
    const { at, restorer, opened, attempts } = restoring(Infinity);
    await using _ = at;
    const { session } = at.session();
    restorer.restore(session, 'up');
    assert.equal(opened.length, 0, 'it has none yet');
    subscribe(session);
    await nextTurn();
    restorer.restore(session, 'up');
    await attempts(1);
    if (end === 'close') session.close();
    else session.subscriptions.clear();
    const { length } = opened;
    await pass(time);
    assert.equal(opened.length, length, end);
  }
});

test('subscriptions that no link can keep end for a group, and not for a session', async () => {
  const { at, restorer, opened } = restoring(0, { isolation: 'call' });
  await using _ = at;
  const [{ group }, { session }] = [at.group(), at.session()];
  for (const holder of [group, session]) {
    subscribe(holder);
    restorer.move(holder, 'up');
  }
  assert.deepEqual([group.subscriptions.size, session.subscriptions.size, opened.length], [0, 1, 0]);
  subscribe(group);
  await at.upstreams.remove('up', 0);
  restorer.move(group, 'up');
  assert.equal(group.subscriptions.size, 0);
});
