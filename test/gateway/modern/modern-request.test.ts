import assert from 'node:assert/strict';
import { type TestContext, test } from 'node:test';
import { setImmediate as nextTurn } from 'node:timers/promises';
import { GatewayError, toAnswer, toGatewayError } from '../../../src/errors.ts';
import { OpenExchange } from '../../../src/gateway/exchange/open-exchange.ts';
import { ModernRequest } from '../../../src/gateway/modern/modern-request.ts';
import { RawObject } from '../../../src/json/json.ts';
import type { Answer } from '../../../src/protocol/jsonrpc.ts';
import { LATEST_MODERN } from '../../../src/protocol/revisions.ts';
import { GatewayParts, TestStream } from '../../support/gateway-parts.ts';
import { memoryUpstream } from '../../support/memory-upstream.ts';

const DONE: Answer = { kind: 'result', result: '{}' };

/** A client of a group, with requests whose answers are recorded. */
function requesting(t: TestContext) {
  const at = new GatewayParts({ up: { memory: memoryUpstream({}) } });
  t.after(() => at[Symbol.asyncDispose]());
  const { group, client } = at.group();
  const answers: Answer[] = [];
  // As `ModernRequests` does, without records.
  const host = {
    toFailure: (_request: ModernRequest, thrown: unknown) => toAnswer(toGatewayError(thrown), undefined),
    finish: (request: ModernRequest, answer: Answer) => {
      request.release();
      answers.push(answer);
    },
  };
  const begin = () => {
    const request = { kind: 'request', id: '1', method: 'tools/call', params: RawObject.EMPTY } as const;
    const sink = Object.assign(new TestStream(), { receivedMs: 0, answer: () => undefined });
    const caller = { ...client.caller, revision: LATEST_MODERN, logLevel: undefined, clientInfo: undefined };
    const one = new ModernRequest(host, request, caller, sink, undefined, undefined);
    return { one, exchange: () => new OpenExchange(client, group, request, sink) };
  };
  return {
    group,
    answers,
    begin,
    codes: () => answers.map((one) => (one.kind === 'error' ? String(Object(one.error.data).code) : one.kind)),
  };
}

test('a request is counted in its group until it is answered', async (t) => {
  const { group, begin, answers } = requesting(t);
  const { one, exchange } = begin();
  let released = 0;
  one.onRelease = () => released++;
  one.openIn(group);
  one.countIn(group);
  one.bindTo(exchange(), group);
  const counts = () => [group.openCount, group.inFlightCount, [...group.exchanges()].length, released];
  assert.deepEqual(counts(), [1, 1, 1, 0]);
  void one.follow(Promise.resolve(DONE));
  await nextTurn();
  assert.deepEqual([counts(), answers], [[0, 0, 0, 1], [DONE]]);
});

test('the failure of an exchange is the answer, also after a result of the upstream', async (t) => {
  const { group, begin, codes } = requesting(t);
  const failure = new GatewayError('missing-capability');
  for (const outcome of [Promise.resolve(DONE), Promise.reject(new GatewayError('cancelled'))]) {
    const { one, exchange } = begin();
    const bound = exchange();
    one.bindTo(bound, group);
    bound.failure = failure;
    void one.follow(outcome);
  }
  // An exchange that outlives its request has its own end.
  const parked = begin();
  const lasting = parked.exchange();
  parked.one.bind(lasting);
  lasting.failure = failure;
  void parked.one.follow(Promise.resolve(DONE));
  await nextTurn();
  assert.deepEqual(codes().toSorted(), ['missing-capability', 'missing-capability', 'result']);
});

test('a cancellation reaches what the request has by then, and what it gets later', (t) => {
  for (const isEarly of [true, false]) {
    const { begin } = requesting(t);
    const { one, exchange } = begin();
    const bound = exchange();
    const cancelled: unknown[] = [];
    const call = { cancel: (reason: string | undefined) => cancelled.push(reason), close: () => undefined };
    if (isEarly) one.cancel('enough');
    one.bind(bound);
    one.bindElsewhere(call);
    if (!isEarly) one.cancel('enough');
    assert.throws(() => bound.throwIfCancelled(), { code: 'cancelled', executed: 'no' });
    assert.deepEqual(cancelled, [isEarly ? 'the client has gone' : 'enough']);
  }
});

test('a cancellation leaves the exchange to another retry that waits for it', (t) => {
  const { begin } = requesting(t);
  const [first, second] = [begin(), begin()];
  const bound = first.exchange();
  first.one.bind(bound);
  bound.attach(bound.client, second.one.request, second.one.sink);
  second.one.bind(bound);
  second.one.cancel('enough');
  bound.throwIfCancelled();
  assert.equal(bound.request, first.one.request);
  first.one.cancel('enough');
  assert.throws(() => bound.throwIfCancelled(), { code: 'cancelled' });
});

test('a wait before the exchange ends with a cancellation, also an earlier one', async (t) => {
  const { begin } = requesting(t);
  const { one } = begin();
  assert.equal(await one.unlessCancelled(Promise.resolve(7)), 7);
  const { promise: never } = Promise.withResolvers<void>();
  const waiting = one.unlessCancelled(never);
  one.cancel(undefined);
  await assert.rejects(waiting, { code: 'cancelled', executed: 'no' });
  await assert.rejects(one.unlessCancelled(never), { code: 'cancelled', executed: 'no' });
});
