import assert from 'node:assert/strict';
import { test } from 'node:test';
import { GatewayError } from '../../src/errors.ts';
import type { Session } from '../../src/gateway/clients/session.ts';
import { HolderLinks } from '../../src/gateway/connections/holder-links.ts';
import { OpenExchange } from '../../src/gateway/exchange/open-exchange.ts';
import { ResultTranslator } from '../../src/gateway/forward/result-translator.ts';
import { QuestionPolicy } from '../../src/gateway/questions/question-policy.ts';
import { SessionSubscriptions } from '../../src/gateway/session-subscriptions.ts';
import { RawObject } from '../../src/json/json.ts';
import { LOCAL } from '../../src/policy/principal.ts';
import { GatewayParts, TestStream } from '../support/gateway-parts.ts';
import { memoryUpstream, result } from '../support/memory-upstream.ts';

const TIMEOUT = { timeout: 120_000 };
const URI = 'up+file:///a';
const CAPABILITIES = { resources: { subscribe: true } };
const ignore = () => undefined;

/** The subscriptions of a session at the upstream `up`, with what was stored and what was sent, in order. */
function subscribing(answers: 'accepts' | 'refuses', save: () => Promise<void> = () => Promise.resolve()) {
  const log: string[] = [];
  const memory = memoryUpstream({
    capabilities: CAPABILITIES,
    request: (peer, request) => {
      log.push(`${request.method} ${request.params?.string('uri') ?? ''}`);
      if (answers === 'accepts') peer.send(result(request, {}));
      else peer.send(`{"jsonrpc":"2.0","id":${request.id},"error":{"code":-32002,"message":"No"}}`);
    },
  });
  const at = new GatewayParts({ up: { memory } });
  const links = new HolderLinks({
    upstreams: at.upstreams,
    views: at.views,
    stateLosses: at.stateLosses,
    log: at.log,
    siblingsOf: () => [],
    onReattached: ignore,
    beforeOpen: ignore,
    onOpen: ignore,
    onLimit: ignore,
  });
  const policy = new QuestionPolicy({ rulesOf: ignore, metrics: at.metrics, log: at.log });
  const subscriptions = new SessionSubscriptions({
    gate: at.gate,
    external: { ask: ignore, askAboutResource: ignore },
    links,
    sessions: {
      save: async (_session, change) => {
        log.push(`store ${change.kind}`);
        await save();
      },
    },
    translator: new ResultTranslator(RawObject.EMPTY, policy),
    audit: undefined,
  });
  const { session } = at.session();
  const client = session.clientOf(LOCAL);
  const requestOf = (method: string, uri: string) =>
    ({ kind: 'request', id: '1', method, params: RawObject.of({ uri }) }) as const;
  const exchangeOf = (method: string, uri: string) =>
    new OpenExchange<Session>(client, session, requestOf(method, uri), new TestStream());
  const subscribe = (uri = URI, exchange = exchangeOf('resources/subscribe', uri)) =>
    subscriptions.subscribe(exchange, client);
  const unsubscribe = (uri = URI) => subscriptions.unsubscribe(exchangeOf('resources/unsubscribe', uri), client);
  return { at, session, log, exchangeOf, subscribe, unsubscribe };
}

test('a subscription is stored before it is made, and until it has ended', TIMEOUT, async () => {
  const { at, session, log, subscribe, unsubscribe } = subscribing('accepts');
  await using _ = at;
  assert.equal((await subscribe()).kind, 'result');
  assert.deepEqual([...session.subscriptions.keys()], [URI]);
  assert.equal((await unsubscribe()).kind, 'result');
  assert.equal(session.subscriptions.size, 0);
  assert.deepEqual(log, [
    'store subscribe',
    'resources/subscribe file:///a',
    'resources/unsubscribe file:///a',
    'store unsubscribe',
  ]);
});

test('requests about one resource run in the order in which the client sends them', TIMEOUT, async () => {
  const { at, session, log, subscribe, unsubscribe } = subscribing('accepts');
  await using _ = at;
  const answers = await Promise.all([subscribe(), unsubscribe(), subscribe(), unsubscribe()]);
  assert.deepEqual(
    answers.map(({ kind }) => kind),
    ['result', 'result', 'result', 'result'],
  );
  assert.equal(session.subscriptions.size, 0);
  const once = [
    'store subscribe',
    'resources/subscribe file:///a',
    'resources/unsubscribe file:///a',
    'store unsubscribe',
  ];
  assert.deepEqual(log, [...once, ...once]);
});

test('a request that is cancelled while it waits for an earlier one does not run', TIMEOUT, async () => {
  const { at, session, log, exchangeOf, subscribe, unsubscribe } = subscribing('accepts');
  await using _ = at;
  const cancelled = exchangeOf('resources/subscribe', URI);
  const answers = Promise.allSettled([subscribe(), unsubscribe(), subscribe(URI, cancelled)]);
  cancelled.cancel('the session has ended');
  assert.deepEqual(
    (await answers).map(({ status }) => status),
    ['fulfilled', 'fulfilled', 'rejected'],
  );
  assert.equal(session.subscriptions.size, 0);
  assert.deepEqual(log.at(-1), 'store unsubscribe');
});

test('a subscription that its upstream refuses does not stay stored', TIMEOUT, async () => {
  const { at, log, subscribe } = subscribing('refuses');
  await using _ = at;
  assert.equal((await subscribe()).kind, 'error');
  assert.deepEqual(log, ['store subscribe', 'resources/subscribe file:///a', 'store unsubscribe']);
});

test('a subscription that cannot be stored is not made', TIMEOUT, async () => {
  const { at, log, subscribe } = subscribing('accepts', () => Promise.reject(new GatewayError('overloaded')));
  await using _ = at;
  await assert.rejects(subscribe(), { code: 'overloaded' });
  assert.deepEqual(log, ['store subscribe']);
});

test('a subscription to a resource of no upstream is refused, and nothing is stored', TIMEOUT, async () => {
  const { at, log, subscribe, unsubscribe } = subscribing('accepts');
  await using _ = at;
  for (const request of [subscribe, unsubscribe]) await assert.rejects(request('gone+file:///a'), GatewayError);
  assert.deepEqual(log, []);
});

test('the end of a subscription that waits for its upstream is only stored', TIMEOUT, async () => {
  const { at, session, log, unsubscribe } = subscribing('accepts');
  await using _ = at;
  session.unresolved = new Map([[URI, undefined]]);
  assert.equal((await unsubscribe()).kind, 'result');
  assert.deepEqual([log, session.unresolved.size], [['store unsubscribe'], 0]);
});
