import assert from 'node:assert/strict';
import { test } from 'node:test';
import { pino } from 'pino';
import { readInput } from '../../src/downstream/classify.ts';
import { Peer } from '../../src/downstream/peer.ts';
import type { LimitName } from '../../src/limits.ts';
import { LOCAL } from '../../src/policy/principal.ts';
import { Waitlist } from '../fixtures/servers/http-harness.ts';
import { testCore } from '../support/core.ts';
import { memoryUpstream } from '../support/memory-upstream.ts';
import { modernText } from '../support/modern-wire.ts';
import { rpc } from './client.ts';
import { holdingUpstream } from './posts.ts';

const OPTIONS = { timeout: 120_000 };
const READY = '{"jsonrpc":"2.0","method":"notifications/initialized"}';
const call = (id: number, name: string) => rpc(id, 'tools/call', { name, arguments: {} });

function hello(id = 0, protocolVersion: unknown = '2025-11-25'): string {
  return rpc(id, 'initialize', { protocolVersion, capabilities: {}, clientInfo: { name: 'test', version: '1' } });
}

interface Sent {
  readonly id?: unknown;
  readonly method?: unknown;
  readonly result?: unknown;
  readonly error?: unknown;
}

/** A client on two streams of messages, in front of a core with one upstream. */
async function peering(upstream = holdingUpstream()) {
  const gateway = await testCore({ up: { memory: upstream.memory } });
  const sent = new Waitlist<Sent | readonly Sent[]>();
  const limits: LimitName[] = [];
  const refused: string[] = [];
  const ended = Promise.withResolvers<void>();
  const peer = new Peer({
    front: gateway.core.gateway,
    principal: LOCAL,
    view: '',
    sink: {
      send: (text) => {
        sent.push(JSON.parse(text));
        return true;
      },
    },
    log: pino({ level: 'silent' }),
    refusals: { record: ({ error, view, principal }) => refused.push(`${error.code} ${view} ${principal?.key}`) },
    onLimit: (limit) => limits.push(limit),
    onEnd: () => ended.resolve(),
  });
  return {
    ...upstream,
    gateway,
    peer,
    sent,
    limits,
    refused,
    ended: ended.promise,
    receive: (text: string) => peer.receive(readInput(text)),
    /** Resolves with the response to this request. */
    answer: (id: number) => sent.find((message) => 'id' in message && message.id === id && !('method' in message)),
    [Symbol.asyncDispose]: async () => {
      await peer.close();
      await gateway[Symbol.asyncDispose]();
    },
  };
}

test('requests after initialize are answered, also those that came before its answer', OPTIONS, async () => {
  await using to = await peering();
  const received = [hello(), READY, call(1, 'up__echo')].map((text) => to.receive(text));
  await Promise.all(received);
  assert.deepEqual(
    to.sent.items.map((message) => 'id' in message && message.id),
    [0, 1],
  );
  assert.partialDeepStrictEqual(await to.answer(1), { result: { content: [{ text: 'fine' }] } });
});

test('before initialize only ping is answered', OPTIONS, async () => {
  await using to = await peering();
  for (const text of [rpc(1, 'ping'), rpc(2, 'tools/list'), READY]) await to.receive(text);
  assert.deepEqual(to.sent.items[0], { jsonrpc: '2.0', id: 1, result: {} });
  assert.partialDeepStrictEqual(to.sent.items[1], { id: 2, error: { data: { code: 'invalid-request' } } });
  assert.equal(to.sent.items.length, 2);
});

// L-013
test('a ping is answered while initialize waits for the lists of an upstream', OPTIONS, async () => {
  const gate = Promise.withResolvers<void>();
  const memory = memoryUpstream({ start: () => gate.promise });
  await using to = await peering({ ...holdingUpstream(), memory });
  const opening = to.receive(hello());
  await memory.until(() => (memory.starts > 0 ? true : undefined));
  await to.receive(rpc(1, 'ping'));
  assert.deepEqual(to.sent.items, [{ jsonrpc: '2.0', id: 1, result: {} }]);
  gate.resolve();
  await opening;
  assert.ok('result' in (await to.answer(0)));
});

test('a client whose initialize is refused may send it again', OPTIONS, async () => {
  await using to = await peering();
  await to.receive(rpc(0, 'initialize', {}));
  assert.ok('error' in (await to.answer(0)));
  await to.receive(hello(1));
  assert.ok('result' in (await to.answer(1)));
});

test('a second initialize does not open a second session', OPTIONS, async () => {
  await using to = await peering();
  await to.receive(hello());
  await to.receive(hello(1));
  assert.ok('error' in (await to.answer(1)));
});

test('a batch gets one array of answers at 2025-03-26, and an error later', OPTIONS, async () => {
  for (const { revision, isTaken } of [
    { revision: '2025-03-26', isTaken: true },
    { revision: '2025-11-25', isTaken: false },
  ]) {
    await using to = await peering();
    await to.receive(hello(0, revision));
    await to.receive(`[${rpc(1, 'ping')},{"a":1},${READY}]`);
    const answers = to.sent.items.at(-1);
    assert.equal(Array.isArray(answers), isTaken, revision);
    if (Array.isArray(answers))
      assert.deepEqual(
        answers.map((one: Sent) => 'result' in one),
        [true, false],
      );
  }
});

// L-014
test('an id that is in flight is refused, in whatever way it is written', OPTIONS, async () => {
  await using to = await peering();
  await to.receive(hello());
  const first = to.receive(call(7, 'up__hold'));
  await to.holding(1);
  for (const id of ['7', '7.0']) await to.receive(rpc(7, 'tools/list').replace('7', id));
  const refused = { id: 7, error: { code: -32_600, data: { code: 'invalid-request' } } };
  assert.partialDeepStrictEqual(to.sent.items.slice(1), [refused, refused]);
  await to.receive(rpc('7', 'ping'));
  to.release();
  await first;
  await to.receive(rpc(7, 'ping'));
  assert.deepEqual(
    to.sent.items.slice(3).map((message) => ['id' in message && message.id, 'result' in message]),
    [
      ['7', true],
      [7, true],
      [7, true],
    ],
  );
});

test('a modern request is answered without a session', OPTIONS, async () => {
  await using to = await peering();
  await to.receive(modernText('tools/call', { name: 'up__echo', arguments: {} }, { id: 7 }));
  assert.partialDeepStrictEqual(await to.answer(7), { result: { resultType: 'complete' } });
});

test('a modern request with the id of one in flight is refused', OPTIONS, async () => {
  await using to = await peering();
  const first = to.receive(modernText('tools/call', { name: 'up__hold', arguments: {} }, { id: 7 }));
  await to.holding(1);
  await to.receive(modernText('tools/list', {}, { id: 7 }));
  assert.partialDeepStrictEqual(to.sent.items, [{ id: 7, error: { data: { code: 'invalid-request' } } }]);
  to.release();
  await first;
  assert.partialDeepStrictEqual(to.sent.items.at(-1), { id: 7, result: { resultType: 'complete' } });
});

test('a cancelled modern request gets no answer', OPTIONS, async () => {
  await using to = await peering();
  const first = to.receive(modernText('tools/call', { name: 'up__hold', arguments: {} }, { id: 7 }));
  await to.holding(1);
  await to.receive('{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":7}}');
  await first;
  assert.deepEqual(to.sent.items, []);
});

//
test('drain ends a listen stream with its answer and cancelled, calls continue', OPTIONS, async () => {
  await using to = await peering();
  const listen = to.receive(
    modernText('subscriptions/listen', { notifications: { toolsListChanged: true } }, { id: 1 }),
  );
  const held = to.receive(modernText('tools/call', { name: 'up__hold', arguments: {} }, { id: 2 }));
  await to.holding(1);
  await to.sent.find((message) => 'method' in message);
  to.peer.drain();
  await listen;
  const [acknowledged, answered, cancelled] = to.sent.items;
  assert.ok(acknowledged !== undefined && 'method' in acknowledged);
  assert.ok(answered !== undefined && 'result' in answered);
  assert.deepEqual(cancelled, { jsonrpc: '2.0', method: 'notifications/cancelled', params: { requestId: 1 } });
  to.release();
  await held;
  assert.ok('result' in (await to.answer(2)));
});

test('close ends the session and cancels its calls', OPTIONS, async () => {
  await using to = await peering();
  await to.receive(hello());
  const held = to.receive(call(1, 'up__hold'));
  await to.holding(1);
  await to.peer.close();
  await held;
  await to.ended;
  assert.equal(to.memory.open.size, 0);
});

test('a peer that closes while initialize is being answered leaves no session', OPTIONS, async () => {
  await using to = await peering();
  const opening = to.receive(hello());
  await to.peer.close();
  await opening;
  await to.receive(rpc(1, 'tools/list'));
  assert.partialDeepStrictEqual(await to.answer(1), { error: { data: { code: 'invalid-request' } } });
});

test('an item of a batch that exceeds a bound is counted', OPTIONS, async () => {
  await using to = await peering();
  await to.receive(hello(0, '2025-03-26'));
  await to.receive(`[${rpc('x'.repeat(2_000), 'ping')}]`);
  assert.deepEqual(to.limits, ['requestIdChars']);
});

// SEC-44
test('each message that is refused before it reaches the gateway is recorded', OPTIONS, async () => {
  await using to = await peering();
  await to.receive(call(1, 'up__echo'));
  await to.receive(modernText('tools/call', { name: 'up__echo' }, { id: 2 }).replace('2026-07-28', '2099-01-01'));
  await to.receive(`[${call(3, 'up__echo')}]`);
  await to.receive(hello(4, '2025-03-26'));
  await to.receive(`[${rpc(5, 'ping')},1]`);
  const invalid = 'invalid-request  local';
  assert.deepEqual(to.refused, [invalid, 'unsupported-revision  local', invalid, invalid]);
});
