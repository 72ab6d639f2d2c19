import assert from 'node:assert/strict';
import type { ServerResponse } from 'node:http';
import { test } from 'node:test';
import { GatewayError } from '../../../src/errors.ts';
import { RawObject } from '../../../src/json/json.ts';
import { LIMITS } from '../../../src/limits.ts';
import { EMPTY_RESULT } from '../../../src/protocol/jsonrpc.ts';
import { UndeliveredMessages } from '../../../src/upstream/http/undelivered-messages.ts';
import { connectCaller, event, type Received, serve, stream } from '../../fixtures/servers/http-harness.ts';
import { PATIENCE_MS } from '../../support/patience.ts';

const OPTIONS = { timeout: 120_000 };
const CHANGED = 'notifications/roots/list_changed';
const QUESTION = '{"jsonrpc":"2.0","id":"q","method":"roots/list"}';
const CALL = { timeoutMs: PATIENCE_MS, maxMs: PATIENCE_MS, progress: false, context: undefined } as const;

const newOwn = () => ({ count: 0, bytes: 0 });

/** An upstream that asks during each call, and accepts no notification and no answer. */
async function slowUpstream() {
  return await serve((request: Received, response: ServerResponse) => {
    if (request.method !== 'POST') response.writeHead(405).end();
    else if (request.rpc === 'tools/call') stream(response, event(QUESTION));
  });
}

// N-29
test('limit undeliveredMessages: one connection may have half, and each a few', () => {
  const reached: string[] = [];
  const messages = new UndeliveredMessages((limit) => reached.push(limit));
  const [one, two, three] = [newOwn(), newOwn(), newOwn()];
  const half = LIMITS.undeliveredMessages / 2;
  for (let n = 0; n < half; n++) assert.ok(messages.take(one, 100) && messages.take(two, 100));
  assert.equal(messages.take(one, 100), false);
  for (let n = 0; n < 8; n++) assert.ok(messages.take(three, 100), `${n}`);
  assert.equal(messages.take(three, 100), false);
  messages.release(three, 100);
  assert.ok(messages.take(three, 100));
  assert.deepEqual(reached, ['undeliveredMessages', 'undeliveredMessages']);
});

// N-29
test('limit undeliveredBytes: one connection may have half, and each a few', () => {
  const reached: string[] = [];
  const messages = new UndeliveredMessages((limit) => reached.push(limit));
  const [one, two, three] = [newOwn(), newOwn(), newOwn()];
  const half = LIMITS.undeliveredBytes / 2;
  assert.ok(messages.take(one, half) && messages.take(two, half));
  assert.deepEqual([messages.take(one, 65_536), messages.take(three, 65_537)], [false, false]);
  assert.ok(messages.take(three, 65_536));
  messages.release(one, half);
  assert.ok(messages.take(three, half - 65_536));
  assert.deepEqual(reached, ['undeliveredBytes', 'undeliveredBytes']);
});

// N-29
test('notifications of one connection leave room for the answer of another', OPTIONS, async () => {
  await using upstream = await slowUpstream();
  const undelivered = new UndeliveredMessages();
  await using busy = await connectCaller(upstream.url, { undelivered });
  await using other = await connectCaller(upstream.url, { undelivered });
  for (let n = 0; n < LIMITS.undeliveredMessages; n++) busy.connection.notify(CHANGED);
  other.connection.call('tools/call', RawObject.EMPTY, CALL);
  (await other.asked.at(0)).answer(EMPTY_RESULT);
  await upstream.received.find(({ body }) => body.includes('"id":"q"'));
});

// N-29
test('a call whose question gets no answer fails at once', OPTIONS, async () => {
  await using upstream = await slowUpstream();
  await using busy = await connectCaller(upstream.url, {});
  const call = busy.connection.call('tools/call', RawObject.EMPTY, CALL);
  const question = await busy.asked.at(0);
  const params = RawObject.of({ pad: 'x'.repeat(LIMITS.undeliveredBytes / 2) });
  busy.connection.notify(CHANGED, params);
  question.answer({ kind: 'result', result: JSON.stringify({ pad: 'x'.repeat(10_000) }) });
  const failure = await call.answer.catch((thrown: unknown) => thrown);
  assert.ok(failure instanceof GatewayError, JSON.stringify(failure));
  assert.deepEqual([failure.code, failure.executed], ['overloaded', 'unknown']);
  assert.match(failure.message, /the answer to its question was not sent/);
});
