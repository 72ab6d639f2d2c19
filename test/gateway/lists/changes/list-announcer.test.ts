import assert from 'node:assert/strict';
import { type TestContext, test } from 'node:test';
import { setImmediate as nextTurn } from 'node:timers/promises';
import { ListAnnouncer } from '../../../../src/gateway/lists/changes/list-announcer.ts';
import { COALESCE_MS, LEAST_GAP_MS } from '../../../../src/gateway/lists/changes/pace.ts';
import { GatewayParts } from '../../../support/gateway-parts.ts';
import { memoryUpstream } from '../../../support/memory-upstream.ts';
import { stopTime } from '../../../support/stopped-time.ts';

/** An announcer whose time passes as a test says. */
function announcing(t: TestContext, saved: () => Promise<void> | undefined = () => undefined) {
  const time = stopTime(t);
  const at = new GatewayParts({ up: { memory: memoryUpstream({}) } });
  t.after(() => at[Symbol.asyncDispose]());
  const pass = async (ms: number) => {
    time.pass(ms);
    for (let turn = 0; turn < 4; turn++) await nextTurn();
  };
  return { at, announcer: new ListAnnouncer(saved), pass };
}

/** Returns the kinds of the lists that a client has heard of, in order. */
function kindsOf({ stream }: ReturnType<GatewayParts['session' | 'group']>): readonly string[] {
  return stream.notifications.map(([method]) => method.split('/')[1] ?? '');
}

test('changes within a short time are announced once for each kind of list', async (t) => {
  const { at, announcer, pass } = announcing(t);
  const client = at.session();
  announcer.add(client.session, ['tools']);
  announcer.add(client.session, ['prompts', 'tools']);
  await pass(COALESCE_MS - 1);
  assert.deepEqual(kindsOf(client), []);
  await pass(1);
  assert.deepEqual(kindsOf(client), ['tools', 'prompts']);
});

test('a client hears of changes once a second at most, whatever others hear', async (t) => {
  const { at, announcer, pass } = announcing(t);
  const [client, other] = [at.session(), at.session()];
  announcer.add(client.session, ['tools']);
  await pass(COALESCE_MS);
  announcer.add(client.session, ['prompts']);
  announcer.add(other.session, ['prompts']);
  await pass(LEAST_GAP_MS - 1);
  assert.deepEqual([kindsOf(client), kindsOf(other)], [['tools'], ['prompts']]);
  await pass(1);
  assert.deepEqual(kindsOf(client), ['tools', 'prompts']);
});

test('a list that was answered meanwhile is announced to groups only', async (t) => {
  const { at, announcer, pass } = announcing(t);
  const [client, group] = [at.session(), at.group()];
  for (const holder of [client.session, group.group]) {
    announcer.add(holder, ['tools', 'prompts']);
    announcer.onListed(holder, 'tools');
  }
  await pass(COALESCE_MS);
  assert.deepEqual([kindsOf(client), kindsOf(group)], [['prompts'], ['tools', 'prompts']]);
  // An announcement of nothing does not count as one.
  const third = at.session();
  announcer.add(third.session, ['tools']);
  announcer.onListed(third.session, 'tools');
  await pass(COALESCE_MS);
  announcer.add(third.session, ['tools']);
  await pass(COALESCE_MS);
  assert.deepEqual(kindsOf(third), ['tools']);
});

test('a client that has read one of the two lists of resources hears of the other', async (t) => {
  const { at, announcer, pass } = announcing(t);
  const [one, both] = [at.session(), at.session()];
  for (const { session } of [one, both]) {
    announcer.add(session, ['resources']);
    announcer.onListed(session, 'resources');
  }
  announcer.onListed(both.session, 'resourceTemplates');
  await pass(COALESCE_MS);
  assert.deepEqual([kindsOf(one), kindsOf(both)], [['resources'], []]);
});

test('a client that waits for a list hears of the change after it', async (t) => {
  const { at, announcer, pass } = announcing(t);
  const client = at.session();
  client.session.awaitedLists++;
  announcer.add(client.session, ['tools']);
  await pass(COALESCE_MS);
  await pass(LEAST_GAP_MS - 1);
  client.session.awaitedLists--;
  assert.deepEqual(kindsOf(client), []);
  await pass(1);
  assert.deepEqual(kindsOf(client), ['tools']);
});

test('changes are announced when other processes can have the lists', async (t) => {
  const saved = Promise.withResolvers<void>();
  const { at, announcer, pass } = announcing(t, () => saved.promise);
  const [first, second] = [at.session(), at.session()];
  announcer.add(first.session, ['tools']);
  await pass(COALESCE_MS);
  announcer.add(second.session, ['tools']);
  await pass(COALESCE_MS);
  assert.deepEqual([kindsOf(first), kindsOf(second)], [[], []]);
  saved.resolve();
  await pass(0);
  assert.deepEqual([kindsOf(first), kindsOf(second)], [['tools'], ['tools']]);
});

test('a client that has gone, or wants no changes, gets none', async (t) => {
  const { at, announcer, pass } = announcing(t);
  const [gone, early] = [at.group(), at.session()];
  early.session.isInitialized = false;
  for (const holder of [gone.group, early.session]) announcer.add(holder, ['tools']);
  gone.group.close();
  await pass(COALESCE_MS);
  assert.deepEqual([kindsOf(gone), kindsOf(early)], [[], []]);
});
