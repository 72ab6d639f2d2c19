import assert from 'node:assert/strict';
import { test } from 'node:test';
import type { Config } from '../../src/config/values/config.ts';
import type { ConnectionHolder, Link } from '../../src/gateway/exchange/connection-holder.ts';
import { ResourceUpdates } from '../../src/gateway/resource-updates.ts';
import { RawObject } from '../../src/json/json.ts';
import { detach } from '../../src/json/kept-text.ts';
import type { Principal } from '../../src/policy/principal.ts';
import { accessOf, ANYONE } from '../policy/policies.ts';
import { GatewayParts, type PartsUpstream } from '../support/gateway-parts.ts';
import { memoryUpstream } from '../support/memory-upstream.ts';
import { stopTime } from '../support/stopped-time.ts';

const TIMEOUT = { timeout: 120_000 };
const UPDATED = 'notifications/resources/updated';
const URI = 'file:///a';
/** The time within which an update waits for other connections. */
const WINDOW_MS = 25; // subject
const BOB: Principal = { key: 'bob', keyName: 'bob', label: 'bob', scopes: [] };

/** @param pending the end of a subscription to each resource that its upstream has not answered yet. */
function updating(
  upstreams: Readonly<Record<string, PartsUpstream>>,
  access?: Config['access'],
  pending?: Promise<unknown>,
) {
  const at = new GatewayParts(upstreams, {}, access && { access });
  const updates = new ResourceUpdates({
    siblingsOf: (holder) => at.holders.filter((other) => other !== holder && other.principal === holder.principal),
    pendingSubscription: () => pending,
    onMerged: () => undefined,
  });
  return { at, updates };
}

function subscribe(link: Link, uri: string, ...holders: ConnectionHolder[]): void {
  link.subscribers.set(detach(uri), new Set(holders));
  link.subscribedLengths.add(uri.length);
}

test('an update reaches each subscriber of the resource or its parent once', TIMEOUT, async () => {
  const access = accessOf({ all: { hints: {} }, less: { deny: [{ resources: [`${URI}/b`] }] } }, [
    { ...ANYONE, roles: ['all'] },
    { keys: ['bob'], roles: ['less'] },
  ]);
  const upstreams = {
    up: { memory: memoryUpstream({}), isolation: 'shared' },
    other: { memory: memoryUpstream({}) },
  } as const;
  const { at, updates } = updating(upstreams, access);
  await using _ = at;
  const [merged, own, elsewhere] = [at.session(), at.session({ view: 'up' }), at.session({ view: 'other' })];
  const [denied, unsubscribed] = [at.session({ principal: BOB }), at.session()];
  const link = await at.upstream('up').link(merged.session);
  subscribe(link, URI, merged.session, own.session, elsewhere.session, denied.session);
  subscribe(link, `${URI}/b`, merged.session);
  updates.onUpdated(link, `${URI}/b`, RawObject.of({ uri: `${URI}/b`, title: 'kept' }));
  assert.deepEqual(merged.stream.notifications, [[UPDATED, { uri: `up+${URI}/b`, title: 'kept' }]]);
  assert.deepEqual(own.stream.notifications, [[UPDATED, { uri: `${URI}/b`, title: 'kept' }]]);
  for (const { stream } of [elsewhere, denied, unsubscribed]) assert.deepEqual(stream.messages, []);
});

for (const { subscribed, changed, isAnnounced } of [
  { subscribed: 'file:///a/', changed: 'file:///a/b', isAnnounced: true },
  { subscribed: 'file:///a/', changed: 'file:///a', isAnnounced: false },
  { subscribed: 'file:///a', changed: 'file:///a/', isAnnounced: true },
  { subscribed: 'file:///a', changed: 'file:///a/b/c', isAnnounced: true },
  { subscribed: 'file:///a', changed: 'file:///ab', isAnnounced: false },
  { subscribed: 'file:///a/b', changed: 'file:///a', isAnnounced: false },
]) {
  test(`a change of ${changed} is ${isAnnounced ? '' : 'not '}one of ${subscribed}`, TIMEOUT, async () => {
    const { at, updates } = updating({ up: { memory: memoryUpstream({}) } });
    await using _ = at;
    const one = at.session({ view: 'up' });
    const link = await at.upstream('up').link(one.session);
    subscribe(link, subscribed, one.session);
    updates.onUpdated(link, changed, RawObject.of({ uri: changed }));
    assert.deepEqual(one.stream.notifications, isAnnounced ? [[UPDATED, { uri: changed }]] : []);
  });
}

test('an update that one of two sibling links reports waits for the other a while', TIMEOUT, async (t) => {
  const time = stopTime(t);
  const { at, updates } = updating({ up: { memory: memoryUpstream({}) } });
  await using _ = at;
  const [listener, sibling] = [at.group(), at.group({ capabilities: { elicitation: {} } })];
  const links: Link[] = [];
  for (const { group } of [listener, sibling]) {
    const link = await at.upstream('up').link(group);
    for (const uri of [URI, `${URI}2`]) subscribe(link, uri, listener.group);
    group.links.set('up', link);
    links.push(link);
  }
  const [first, second] = links;
  assert.ok(first !== undefined && second !== undefined && first !== second);
  const update = (link: Link, uri: string) => updates.onUpdated(link, uri, RawObject.of({ uri }));
  const updated = (uri: string) => [UPDATED, { uri: `up+${uri}` }];
  update(first, URI);
  assert.deepEqual(listener.stream.notifications, []);
  update(second, URI);
  assert.deepEqual(listener.stream.notifications, [updated(URI)]);
  update(first, `${URI}2`);
  // A report at the end of a window waits for all of the next one.
  for (let windows = 0; windows < 2; windows++) time.pass(WINDOW_MS);
  assert.deepEqual(listener.stream.notifications, [updated(URI), updated(`${URI}2`)]);
  subscribe(first, `${URI}3`, listener.group);
  update(first, `${URI}3`);
  assert.deepEqual(listener.stream.notifications.at(-1), updated(`${URI}3`), 'the sibling would not report it');
  assert.deepEqual(sibling.stream.messages, []);
});

test('an update before the answer to its subscription reaches the new subscriber', TIMEOUT, async () => {
  const pending = Promise.withResolvers<void>();
  const { at, updates } = updating({ up: { memory: memoryUpstream({}) } }, undefined, pending.promise);
  await using _ = at;
  const { session, stream } = at.session();
  const link = await at.upstream('up').link(session);
  for (const uri of [URI, URI]) updates.onUpdated(link, uri, RawObject.of({ uri }));
  subscribe(link, URI, session);
  pending.resolve();
  await stream.until(() => stream.messages[0]);
  assert.deepEqual(stream.notifications, [[UPDATED, { uri: `up+${URI}` }]]);
});
