import assert from 'node:assert/strict';
import { test } from 'node:test';
import { LinkSubscriptions } from '../../../src/gateway/connections/link-subscriptions.ts';
import { type Answer, EMPTY_RESULT } from '../../../src/protocol/jsonrpc.ts';
import { GatewayParts } from '../../support/gateway-parts.ts';
import { memoryUpstream } from '../../support/memory-upstream.ts';
import { stopTime } from '../../support/stopped-time.ts';
import { waitUntil } from '../../support/wait-until.ts';

const TIMEOUT = { timeout: 120_000 };
const URI = 'file:///a';
/** The longest that a subscription waits for an unsubscription. */
const UNSUBSCRIBE_MS = 10_000; // subject

/** A link of two sessions to an upstream that answers unsubscriptions when the test says so, with what was sent to it. */
async function holding() {
  const at = new GatewayParts({ up: { memory: memoryUpstream({}), isolation: 'shared' } });
  const [first, second] = [at.session().session, at.session().session];
  const link = await at.upstream('up').link(first);
  const sent: string[] = [];
  const held: PromiseWithResolvers<Answer>[] = [];
  const subscriptions = new LinkSubscriptions((_link, method, uri) => {
    sent.push(`${method.replace('resources/', '')} ${uri}`);
    if (method === 'resources/subscribe') return Promise.resolve(EMPTY_RESULT);
    const answer = Promise.withResolvers<Answer>();
    held.push(answer);
    return answer.promise;
  });
  return { first, second, link, sent, held, subscriptions, [Symbol.asyncDispose]: () => at[Symbol.asyncDispose]() };
}

for (const outcome of ['answered', 'failed'] as const) {
  test(`a subscription is sent only after an unsubscription on its way is ${outcome}`, TIMEOUT, async () => {
    await using at = await holding();
    const { first, second, link, sent, held, subscriptions } = at;
    await subscriptions.add(link, first, URI);
    const removing = subscriptions.remove(link, first, URI);
    const adding = [subscriptions.add(link, second, URI), subscriptions.add(link, first, URI)];
    await subscriptions.add(link, first, `${URI}2`);
    assert.deepEqual(sent, [`subscribe ${URI}`, `unsubscribe ${URI}`, `subscribe ${URI}2`]);
    assert.deepEqual([subscriptions.count(link), subscriptions.has(link, URI)], [2, true], 'it is pending');
    if (outcome === 'answered') held[0]?.resolve(EMPTY_RESULT);
    else held[0]?.reject(new Error('no answer'));
    const [removed] = await Promise.allSettled([removing]);
    assert.equal(removed.status, outcome === 'answered' ? 'fulfilled' : 'rejected');
    assert.deepEqual(await Promise.all(adding), [EMPTY_RESULT, undefined], 'asked for the one that came first');
    assert.deepEqual(sent.slice(3), [`subscribe ${URI}`], 'one for both');
    assert.deepEqual(link.subscribers.get(URI), new Set([second, first]));
  });
}

test('a subscription waits a bounded time for an unsubscription without an answer', TIMEOUT, async (t) => {
  await using at = await holding();
  const { first, link, sent, subscriptions } = at;
  await subscriptions.add(link, first, URI);
  const time = stopTime(t);
  void subscriptions.remove(link, first, URI);
  const adding = subscriptions.add(link, first, URI);
  time.pass(UNSUBSCRIBE_MS - 1);
  await new Promise(setImmediate);
  assert.equal(sent.length, 2);
  time.pass(1);
  assert.equal(await adding, EMPTY_RESULT);
  assert.deepEqual(sent, [`subscribe ${URI}`, `unsubscribe ${URI}`, `subscribe ${URI}`]);
});

test('a second holder subscribes after the unsubscription of one that closed meanwhile', TIMEOUT, async () => {
  await using at = await holding();
  const { first, second, link, sent, held, subscriptions } = at;
  const adding = [subscriptions.add(link, first, URI), subscriptions.add(link, second, URI)];
  first.close();
  await waitUntil(() => held.length === 1);
  await new Promise(setImmediate);
  assert.deepEqual(sent, [`subscribe ${URI}`, `unsubscribe ${URI}`]);
  held[0]?.resolve(EMPTY_RESULT);
  const [closed, kept] = await Promise.allSettled(adding);
  assert.deepEqual([closed?.status, kept?.status], ['rejected', 'fulfilled']);
  assert.deepEqual(sent.slice(2), [`subscribe ${URI}`]);
});
