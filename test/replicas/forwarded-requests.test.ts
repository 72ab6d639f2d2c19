import assert from 'node:assert/strict';
import { test } from 'node:test';
import { pino } from 'pino';
import { LISTEN } from '../../src/downstream/modern-reply.ts';
import { createEndpoints, type EndpointsParts } from '../../src/downstream/http/app.ts';
import { createEdgeMemory } from '../../src/downstream/memory/edge-memory.ts';
import { memoryEventLogs } from '../../src/downstream/streams/memory-event-log.ts';
import { GatewayError, toAnswer } from '../../src/errors.ts';
import { MAX_HOPS } from '../../src/gateway/exchange/owners.ts';
import type { ModernCall, ModernCaller, Owner } from '../../src/gateway/front/front.ts';
import { RawObject } from '../../src/json/json.ts';
import type { Load } from '../../src/load/load.ts';
import type { Answer } from '../../src/protocol/jsonrpc.ts';
import { forwardedRequests } from '../../src/replicas/forwarded-requests.ts';
import { createMetrics } from '../../src/telemetry/metrics.ts';
import { getEvents, initialize, post, rpc } from '../downstream/client.ts';
import { ACCEPTING, configWith } from '../downstream/edge.ts';
import { HonestFront } from '../downstream/honest-front.ts';
import { waitUntil } from '../support/wait-until.ts';
import { ANNA, openPair } from './replica-pair.ts';

const TIMEOUT = { timeout: 120_000 };

/** Two replicas, of which one passes requests on to the endpoints of the other. */
async function forwarding(front: HonestFront, own: Partial<EndpointsParts> = {}) {
  const config = configWith({});
  const [log, metrics] = [pino({ level: 'silent' }), createMetrics('0')];
  const memory = createEdgeMemory(config, metrics);
  const openEventLog = memoryEventLogs({ events: 10, bytes: 10_000 }, memory.events);
  const endpoints = createEndpoints({ ...ACCEPTING, front, config, log, metrics, memory, openEventLog, ...own });
  const pair = await openPair(forwardedRequests({ front, endpoints, log, bodyBytes: () => 1_000 }), '');
  return { ...pair, endpoints };
}

const CALLER: ModernCaller = {
  principal: ANNA,
  view: '',
  revision: '2026-07-28',
  capabilities: RawObject.EMPTY,
  logLevel: undefined,
};
const DONE: Answer = { kind: 'result', result: '{}' };

/** Passes a modern request on. Resolves with its answer, or with the reason why nothing was done. */
async function pass(
  { owner }: { readonly owner: Owner },
  method: string,
  params = RawObject.EMPTY,
  caller = CALLER,
): Promise<Answer | GatewayError | undefined> {
  const { promise, resolve } = Promise.withResolvers<Answer | GatewayError | undefined>();
  const sink = { receivedMs: 0, send: () => true, answer: resolve };
  owner.handleModernRequest({ kind: 'request', id: '1', method, params }, caller, sink, resolve);
  return await promise;
}

/** A front that answers every modern request at once, and keeps its method. */
function modernFront(): { readonly front: HonestFront; readonly began: readonly string[] } {
  const front = new HonestFront();
  const began: string[] = [];
  front.handleModernRequest = ({ method }, _caller, sink) => {
    began.push(method);
    sink.answer(DONE);
    return NO_CALL;
  };
  return { front, began };
}

const NO_CALL: ModernCall = { cancel: () => undefined, close: () => undefined };

test('a forwarded request that needs a Redis out of reach gets the error of that', TIMEOUT, async () => {
  const front = new HonestFront();
  front.ownersFailure = new GatewayError('store-unavailable');
  await using pair = await forwarding(front);
  const got = await post(pair.url, rpc(1, 'ping'), 'session-1');
  assert.equal(got.status, 503);
  const { data } = JSON.parse(got.text).error;
  assert.deepEqual(data, { code: 'store-unavailable', executed: 'no', retryable: true });
});

test('a forwarded request whose credentials are over gets the challenge', TIMEOUT, async () => {
  const challenge = 'Bearer error="invalid_token"';
  await using pair = await forwarding(new HonestFront(), { challengeIfOver: () => challenge });
  const { status, headers } = await post(pair.url, rpc(1, 'ping'));
  assert.deepEqual([status, headers['www-authenticate']], [401, challenge]);
});

test('a subscription stream of another process is none of the requests in flight', TIMEOUT, async () => {
  const front = new HonestFront();
  front.handleModernRequest = (_request, _caller, sink) => ({ ...NO_CALL, close: () => sink.answer(DONE) });
  await using pair = await forwarding(front);
  const { mcp } = pair.endpoints;
  const answering = pass(pair, LISTEN);
  await waitUntil(() => mcp.listenCount === 1);
  assert.equal(mcp.forwarded.answeringCount, 0);
  mcp.drain();
  assert.deepEqual(await answering, DONE);
  await waitUntil(() => mcp.listenCount === 0);
  assert.equal(mcp.forwarded.answeringCount, 0);
});

// P-012
test('a forwarded request says about which item an external decision has allowed it', TIMEOUT, async () => {
  const front = new HonestFront();
  const asked: unknown[] = [];
  front.handleModernRequest = (_request, { allowedItem }, sink) => {
    asked.push(allowedItem);
    sink.answer(DONE);
    return NO_CALL;
  };
  await using pair = await forwarding(front);
  assert.deepEqual(await pass(pair, 'tools/call'), DONE);
  assert.deepEqual(await pass(pair, 'tools/call', RawObject.EMPTY, { ...CALLER, allowedItem: 'digest' }), DONE);
  assert.deepEqual(asked, [undefined, 'digest']);
});

const SHED = new GatewayError('overloaded', {
  message: 'too much',
  data: { retryAfterMs: 2_000, reason: 'loop-delay' },
});
const BUSY: Load = { isHigh: true, refusalOf: () => ({ error: SHED, retryAfterSeconds: 2 }) };

test('an overloaded process refuses forwarded calls, and goes on with what has begun', TIMEOUT, async () => {
  const { front, began } = modernFront();
  await using pair = await forwarding(front, { load: BUSY });
  assert.deepEqual(await pass(pair, 'tools/call'), toAnswer(SHED));
  assert.deepEqual(began, []);
  const retry = RawObject.of({ requestState: 'state' });
  for (const [method, params] of [['tools/call', retry], ['tasks/get'], [LISTEN]] as const) {
    assert.deepEqual(await pass(pair, method, params), DONE, method);
  }
  assert.deepEqual(began, ['tools/call', 'tasks/get', LISTEN]);
});

test('a forwarded request whose body is refused was not executed', TIMEOUT, async () => {
  const { front, began } = modernFront();
  await using pair = await forwarding(front);
  const refused = await pass(pair, 'tools/call', RawObject.of({ text: 'x'.repeat(1_100_000) }));
  assert.ok(refused instanceof GatewayError, JSON.stringify(refused));
  assert.deepEqual([refused.code, refused.executed], ['too-large', 'no']);

  const config = configWith({ limits: { bodyTotalBytes: 2_000_000 } });
  const memory = createEdgeMemory(config, createMetrics('0'));
  for (const other of ['bob', 'carol']) assert.ok(memory.bodies.reserve(other, 1_000_000));
  await using full = await forwarding(front, { memory });
  const crowded = await pass(full, 'tools/call', RawObject.of({ text: 'x'.repeat(500_000) }));
  assert.ok(crowded instanceof GatewayError, JSON.stringify(crowded));
  assert.deepEqual([crowded.code, crowded.executed], ['overloaded', 'no']);
  assert.deepEqual(began, []);
  assert.deepEqual([...pair.outcomes, ...full.outcomes], ['refused', 'refused']);
});

test('a forwarded request with a member that is not known was not executed', TIMEOUT, async () => {
  const { front, began } = modernFront();
  await using pair = await forwarding(front);
  // As unknown as a member of a later version.
  const caller = { ...CALLER, hops: MAX_HOPS + 5 };
  const refused = await pass(pair, 'tools/call', RawObject.EMPTY, caller);
  assert.ok(refused instanceof GatewayError);
  assert.deepEqual([refused.code, refused.executed], ['store-unavailable', 'no']);
  assert.deepEqual([began, pair.outcomes], [[], ['refused']]);
});

test('a stream that another process passes on is no answer that a drain waits for', TIMEOUT, async () => {
  const front = new HonestFront();
  await using pair = await forwarding(front);
  const { mcp } = pair.endpoints;
  const session = await initialize(pair.url);
  const stream = await getEvents(pair.url, session);
  assert.equal(mcp.forwarded.answeringCount, 0);
  const waiting = post(pair.url, rpc(1, 'wait'), session);
  await waitUntil(() => mcp.forwarded.answeringCount === 1);
  front.gate('gate').resolve();
  await waiting;
  await waitUntil(() => mcp.forwarded.answeringCount === 0);
  stream.close();
});
