import assert from 'node:assert/strict';
import { test } from 'node:test';
import { setImmediate as nextTurn } from 'node:timers/promises';
import { GatewayError } from '../../../src/errors.ts';
import { RawObject } from '../../../src/json/json.ts';
import { LIMITS } from '../../../src/limits.ts';
import type { Notification } from '../../../src/protocol/jsonrpc.ts';
import { LATEST_MODERN } from '../../../src/protocol/revisions.ts';
import type { CallOptions } from '../../../src/upstream/rpc/call.ts';
import { type ServerRequest, Connection } from '../../../src/upstream/rpc/connection.ts';
import type { Outgoing } from '../../../src/upstream/rpc/transport.ts';
import { memoryUpstream, type Peer, result, type Script } from '../../support/memory-upstream.ts';
import { PATIENCE_MS } from '../../support/patience.ts';
import { until } from '../../support/stdio.ts';
import { stopTime } from '../../support/stopped-time.ts';

const OPTIONS: CallOptions<string> = {
  timeoutMs: PATIENCE_MS,
  maxMs: 2 * PATIENCE_MS,
  progress: false,
  context: undefined,
};

async function connect(script: Script) {
  const upstream = memoryUpstream(script);
  const asks: ServerRequest<string>[] = [];
  const notifications: { notification: Notification; about: string | undefined }[] = [];
  const closed: GatewayError[] = [];
  const reached: string[] = [];
  const connection = await Connection.open<string>(
    'up',
    upstream.start,
    {
      onServerRequest: (ask) => asks.push(ask),
      onNotification: (notification, about) => notifications.push({ notification, about }),
      onClose: (error) => closed.push(error),
      onLimit: (limit) => reached.push(limit),
    },
    AbortSignal.timeout(PATIENCE_MS),
    { audience: '' },
  );
  const [peer] = upstream.peers;
  assert.ok(peer);
  return { connection, peer, asks, notifications, closed, reached };
}

const HASTY = { ...OPTIONS, timeoutMs: 1_000 };

/** Waits until the upstream has received this number of messages. */
function received(peer: Peer, count: number): Promise<void> {
  return until(() => peer.received.length >= count, `the upstream has received ${count} messages`);
}

// SEC-26
test('answers are matched to calls by our own ids, in any order', async () => {
  const requests: string[] = [];
  const { connection, peer } = await connect({ request: (_peer, request) => void requests.push(request.id) });
  const first = connection.call('a', undefined, OPTIONS);
  const second = connection.call('b', undefined, OPTIONS);
  await received(peer, 2);
  peer.send(`{"jsonrpc":"2.0","id":${second.id},"result":{"n":2}}`);
  peer.send(`{"jsonrpc":"2.0","id":${first.id},"result":{"n":1}}`);
  assert.deepEqual(requests, [String(first.id), String(second.id)]);
  assert.partialDeepStrictEqual(await first.answer, { kind: 'result', result: '{"n":1}' });
  assert.partialDeepStrictEqual(await second.answer, { kind: 'result', result: '{"n":2}' });
});

test('a request that cannot be serialised throws, and is not in flight', async () => {
  const requests: string[] = [];
  const { connection } = await connect({ request: (_peer, request) => void requests.push(request.id) });
  connection.setModern(LATEST_MODERN, RawObject.of({ name: 'gateway', version: '1' }));
  const params = RawObject.parse('{"name":"x","_meta":{"a":1,"a":2}}');
  assert.throws(() => connection.call('tools/call', params, OPTIONS), /appears twice/);
  assert.equal(connection.inFlight, 0);
  await connection.close();
  assert.deepEqual(requests, []);
});

// R5
test('repeated and unknown answers have no effect', async () => {
  const { connection, peer } = await connect({
    request: (peer, request) => {
      peer.send(`{"jsonrpc":"2.0","id":"x${request.id}","result":{"wrong":"text"}}`);
      peer.send(`{"jsonrpc":"2.0","id":${Number(request.id) ^ 1},"result":{"wrong":"id"}}`);
      peer.send(result(request, { right: true }));
      peer.send(result(request, { second: true }));
    },
  });
  const call = connection.call('a', undefined, OPTIONS);
  assert.partialDeepStrictEqual(await call.answer, { result: '{"right":true}' });
  assert.equal(connection.inFlight, 0);
  assert.equal(peer.received.length, 1);
});

// L-015
test('a call without an answer times out, and is cancelled at the upstream', async (t) => {
  const time = stopTime(t);
  const { connection, peer } = await connect({ request: () => undefined });
  const call = connection.call('tools/call', undefined, HASTY);
  time.pass(HASTY.timeoutMs);
  await assert.rejects(call.answer, {
    code: 'upstream-timeout',
    message: /"up" did not answer tools\/call within .* \(timeouts\.call\)$/,
  });
  await received(peer, 2);
  const [, cancelled] = peer.received;
  assert.partialDeepStrictEqual(cancelled, { kind: 'notification', method: 'notifications/cancelled' });
  assert.ok(cancelled?.kind === 'notification' && cancelled.params?.raw('requestId') === String(call.id));
});

test('an answer that came while this process stood still is read before the timeout', async (t) => {
  const time = stopTime(t);
  const { connection, peer } = await connect({ request: () => undefined });
  const call = connection.call('tools/call', undefined, HASTY);
  await received(peer, 1);
  time.pass(HASTY.timeoutMs);
  peer.send(`{"jsonrpc":"2.0","id":${call.id},"result":{}}`);
  assert.partialDeepStrictEqual(await call.answer, { kind: 'result', result: '{}' });
  await nextTurn();
  assert.equal(peer.received.length, 1, 'nothing is cancelled');
});

// L-015
test('each call ends after its own timeout, with many in flight', async (t) => {
  const time = stopTime(t);
  const { connection, peer } = await connect({ request: () => undefined });
  const patient = connection.call('tools/call', undefined, OPTIONS);
  const endless = connection.call('tools/call', undefined, { ...OPTIONS, timeoutMs: Infinity, maxMs: Infinity });
  const hasty = connection.call('tools/call', undefined, HASTY);
  const limited = connection.call('tools/call', undefined, { ...OPTIONS, maxMs: HASTY.timeoutMs });
  time.pass(HASTY.timeoutMs);
  await assert.rejects(hasty.answer, { code: 'upstream-timeout', message: /\(timeouts\.call\)$/ });
  await assert.rejects(limited.answer, { code: 'upstream-timeout', message: /\(timeouts\.max\)$/ });
  assert.equal(connection.inFlight, 2);
  peer.send(`{"jsonrpc":"2.0","id":${patient.id},"result":{}}`);
  peer.send(`{"jsonrpc":"2.0","id":${endless.id},"result":{}}`);
  assert.equal((await patient.answer).kind, 'result');
  assert.equal((await endless.answer).kind, 'result');
  const late = connection.call('tools/call', undefined, HASTY);
  time.pass(HASTY.timeoutMs);
  await assert.rejects(late.answer, { code: 'upstream-timeout' });
});

// L-015
test('progress extends the timeout, up to the longest time of a call', async (t) => {
  const time = stopTime(t);
  const { connection, peer } = await connect({ request: () => undefined });
  const limits = { ...OPTIONS, timeoutMs: 300, maxMs: 3_000, progress: true };
  const inFlight = connection.call('tools/call', undefined, limits);
  const tooLong = connection.call('tools/call', undefined, { ...limits, maxMs: 600 });
  for (let passedMs = 200; passedMs <= 600; passedMs += 200) {
    time.pass(200);
    for (const { id: token } of [inFlight, tooLong]) {
      peer.send(`{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":${token},"progress":1}}`);
    }
  }
  await assert.rejects(tooLong.answer, { code: 'upstream-timeout' });
  assert.equal(connection.inFlight, 1);
  await connection.close();
  await assert.rejects(inFlight.answer, { code: 'upstream-lost' });
});

// L-006
test('initialize is never cancelled', async (t) => {
  const time = stopTime(t);
  const { connection, peer } = await connect({ isRaw: true, request: () => undefined });
  const silent = connection.call('initialize', RawObject.EMPTY, HASTY);
  time.pass(HASTY.timeoutMs);
  await assert.rejects(silent.answer, { code: 'upstream-timeout' });
  await new Promise((resolve) => setImmediate(resolve));
  assert.deepEqual(
    peer.received.map((message) => ('method' in message ? message.method : message.kind)),
    ['initialize'],
  );
});

// M-019
test('the upstream gets our token, and its progress is routed to its call', async () => {
  const { connection, peer, notifications } = await connect({ request: () => undefined });
  const params = RawObject.parse('{"name":"x","_meta":{"progressToken":"mine","other":1}}');
  connection.call('tools/call', params, { ...OPTIONS, progress: true, context: 'caller' });
  await received(peer, 1);
  const [request] = peer.received;
  assert.ok(request?.kind === 'request');
  assert.equal(request.params?.toString(), `{"name":"x","_meta":{"other":1,"progressToken":${request.id}}}`);
  for (const token of [request.id, '7']) {
    peer.send(`{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":${token},"progress":1}}`);
  }
  assert.equal(notifications.length, 1);
  assert.equal(notifications[0]?.about, 'caller');
  await connection.close();
});

// L-013
test('a ping is answered at once', async () => {
  const { peer } = await connect({});
  peer.send('{"jsonrpc":"2.0","id":"p","method":"ping"}');
  await received(peer, 1);
  assert.partialDeepStrictEqual(peer.received[0], { kind: 'result', id: '"p"', result: '{}' });
});

test('calls do not time out while the upstream waits for a client', async (t) => {
  const time = stopTime(t);
  const { connection, peer, asks } = await connect({ request: () => undefined });
  const call = connection.call('tools/call', undefined, HASTY);
  await received(peer, 1);
  peer.send('{"jsonrpc":"2.0","id":5,"method":"elicitation/create","params":{}}', call.id);
  time.pass(2 * HASTY.timeoutMs);
  assert.equal(connection.inFlight, 1);
  asks[0]?.answer({ kind: 'result', result: '{"action":"accept"}' });
  peer.send(`{"jsonrpc":"2.0","id":${call.id},"result":{}}`);
  assert.equal((await call.answer).kind, 'result');
});

test('a call that is lost or cancelled takes its questions with it, and no others', async (t) => {
  const time = stopTime(t);
  const { connection, peer, asks } = await connect({ request: () => undefined });
  const [lost, cancelled, waiting] = ['lost', 'cancelled', 'waiting'].map((name) =>
    connection.call('tools/call', RawObject.of({ name }), HASTY),
  );
  assert.ok(lost && cancelled && waiting);
  await received(peer, 3);
  const withdrawn: number[] = [];
  for (const [n, { id }] of [lost, cancelled, waiting].entries()) {
    peer.send(`{"jsonrpc":"2.0","id":${n},"method":"elicitation/create","params":{}}`, id);
    asks[n]?.onWithdrawn(() => withdrawn.push(n));
  }
  peer.fail(String(lost.id), new GatewayError('upstream-lost', { upstream: 'up', message: 'the stream broke' }));
  cancelled.cancel('enough');
  assert.deepEqual(withdrawn, [0, 1]);
  time.pass(2 * HASTY.timeoutMs);
  assert.equal(connection.inFlight, 1);
  asks[2]?.answer({ kind: 'result', result: '{"action":"accept"}' });
  time.pass(2 * HASTY.timeoutMs);
  await assert.rejects(waiting.answer, { code: 'upstream-timeout' });
});

test('a question that its call has left behind stays open, and holds up no other call', async (t) => {
  const time = stopTime(t);
  const { connection, peer, asks } = await connect({ request: () => undefined });
  const answered = connection.call('tools/call', undefined, HASTY);
  const waiting = connection.call('tools/call', undefined, HASTY);
  await received(peer, 2);
  peer.send('{"jsonrpc":"2.0","id":5,"method":"elicitation/create","params":{}}', answered.id);
  peer.send(`{"jsonrpc":"2.0","id":${answered.id},"result":{}}`);
  time.pass(2 * HASTY.timeoutMs);
  await until(() => connection.inFlight === 0, 'the other call has ended');
  await assert.rejects(waiting.answer, { code: 'upstream-timeout' });
  asks[0]?.answer({ kind: 'result', result: '{"action":"accept"}' });
  await received(peer, 4);
  assert.deepEqual(peer.received.at(-1), { kind: 'result', id: '5', result: '{"action":"accept"}' });
});

test('a question of a task outlives the call that waits for the result of the task', async () => {
  const { connection, peer, asks } = await connect({ request: () => undefined });
  const call = connection.call('tasks/result', undefined, OPTIONS);
  await received(peer, 1);
  peer.send('{"jsonrpc":"2.0","id":5,"method":"elicitation/create","params":{}}', call.id);
  call.cancel('enough');
  asks[0]?.answer({ kind: 'result', result: '{"action":"accept"}' });
  await received(peer, 3);
  assert.deepEqual(peer.received.at(-1), { kind: 'result', id: '5', result: '{"action":"accept"}' });
});

test('a cancelled server request is withdrawn, and its late answer is not sent', async () => {
  const { peer, asks } = await connect({});
  peer.send('{"jsonrpc":"2.0","id":5,"method":"roots/list"}');
  const [ask] = asks;
  assert.ok(ask);
  let isWithdrawn = false;
  ask.onWithdrawn(() => (isWithdrawn = true));
  peer.send('{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":5}}');
  ask.answer({ kind: 'result', result: '{}' });
  await new Promise((resolve) => setImmediate(resolve));
  assert.equal(isWithdrawn, true);
  assert.deepEqual(peer.received, []);
});

test('two open server requests with one id are both answered, and both withdrawn', async () => {
  const { connection, peer, asks } = await connect({});
  const withdrawn: number[] = [];
  for (let n = 0; n < 4; n++) {
    peer.send('{"jsonrpc":"2.0","id":5,"method":"roots/list"}');
    asks[n]?.onWithdrawn(() => withdrawn.push(n));
  }
  for (const n of [0, 1, 0]) asks[n]?.answer({ kind: 'result', result: `{"n":${n}}` });
  peer.send('{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":5}}');
  await received(peer, 2);
  assert.deepEqual(
    peer.received.map((one) => one.kind === 'result' && one.result),
    ['{"n":0}', '{"n":1}'],
  );
  await connection.close();
  assert.deepEqual(withdrawn, [2, 3]);
});

// N-90
test('a server request may be cancelled by another spelling of its id', async () => {
  const { peer, asks } = await connect({});
  for (const id of ['5.0', '6e0']) peer.send(`{"jsonrpc":"2.0","id":${id},"method":"roots/list"}`);
  peer.send('{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":5}}');
  for (const ask of asks) ask.answer({ kind: 'result', result: '{}' });
  await received(peer, 1);
  assert.deepEqual(peer.received, [{ kind: 'result', id: '6', result: '{}' }]);
});

// R1
test('when the connection closes, all calls fail with the right value of executed', async () => {
  const { connection, peer, closed } = await connect({ request: (peer) => peer.crash('exited with code 1') });
  const call = connection.call('tools/call', undefined, OPTIONS);
  const error = await call.answer.then(
    () => undefined,
    (thrown: unknown) => thrown,
  );
  assert.ok(error instanceof GatewayError);
  assert.equal(error.row.executed, 'unknown');
  assert.equal(closed.length, 1);
  const late = connection.call('tools/call', undefined, OPTIONS);
  await assert.rejects(
    late.answer,
    (thrown: unknown) => thrown instanceof GatewayError && thrown.detail.executed === 'no',
  );
  assert.equal(peer.received.length, 1);
});

const [ANN, BOB] = [{ senderKey: 'ann' }, { senderKey: 'bob' }];

//
test('a call without an answer counts as abandoned until its answer comes', async (t) => {
  const time = stopTime(t);
  const { connection, peer } = await connect({ request: () => undefined });
  const [ann, bob] = [ANN, BOB].map((sender) => connection.call('tools/call', undefined, { ...OPTIONS, sender }));
  assert.ok(ann !== undefined && bob !== undefined);
  assert.equal(connection.hasAbandoned('question'), false);
  ann.cancel('enough');
  assert.equal(connection.hasAbandoned('question'), true);
  assert.equal(connection.hasAbandoned('question', 'ann'), false);
  assert.equal(connection.hasAbandoned('question', 'bob'), true);
  peer.send(`{"jsonrpc":"2.0","id":${ann.id},"result":{}}`);
  assert.equal(connection.hasAbandoned('question'), false);
  bob.abandon();
  assert.equal(connection.hasAbandoned('question', 'ann'), true);
  peer.send(`{"jsonrpc":"2.0","id":${bob.id},"result":{}}`);
  await bob.answer;
  assert.equal(connection.hasAbandoned('question'), false);
  bob.abandon();
  assert.equal(connection.hasAbandoned('question'), false, 'it has its answer');

  const lost = connection.call('tools/call', undefined, { ...OPTIONS, sender: ANN });
  peer.fail(String(lost.id), new GatewayError('upstream-lost'));
  const unsent = connection.call('tools/call', undefined, { ...OPTIONS, sender: BOB });
  peer.fail(String(unsent.id), new GatewayError('upstream-lost', { executed: 'no' }));
  assert.equal(connection.hasAbandoned('question', 'ann'), false);
  assert.equal(connection.hasAbandoned('question'), true);
  time.pass(59_999);
  assert.equal(connection.hasAbandoned('question'), true);
  time.pass(1);
  assert.equal(connection.hasAbandoned('question'), false);
});

//
test('limit abandonedCalls: beyond it, messages may be about an earlier call', async (t) => {
  const time = stopTime(t);
  const { connection, peer, reached } = await connect({ request: () => undefined });
  const cancelled = Array.from({ length: LIMITS.abandonedCalls + 1 }, () => {
    const call = connection.call('tools/call', undefined, { ...OPTIONS, sender: ANN });
    call.cancel('enough');
    return call;
  });
  assert.deepEqual(reached, ['abandonedCalls']);
  for (const { id } of cancelled) peer.send(`{"jsonrpc":"2.0","id":${id},"result":{}}`);
  assert.equal(connection.hasAbandoned('question', 'bob'), true);
  assert.equal(connection.hasAbandoned('question', 'ann'), false, 'it may be asked about its own calls');
  time.pass(60_000);
  assert.equal(connection.hasAbandoned('question'), false);
});

//
test('a call that is cancelled before it is sent is not cancelled at the upstream', async () => {
  const { start, peers } = memoryUpstream({ request: () => undefined });
  const events = { onServerRequest() {}, onNotification() {}, onClose() {} };
  const connection = await Connection.open<string>(
    'up',
    async (...args) => {
      const transport = await start(...args);
      const send = (message: Outgoing) => message.method !== 'tools/call' && transport.send(message);
      return { ...transport, send, forget: () => 'unsent' as const };
    },
    events,
    AbortSignal.timeout(PATIENCE_MS),
    { audience: '' },
  );
  connection.call('tools/call', undefined, { ...OPTIONS, sender: ANN }).cancel('enough');
  connection.notify('notifications/last');
  const [peer] = peers;
  assert.ok(peer);
  await received(peer, 1);
  assert.partialDeepStrictEqual(peer.received, [{ method: 'notifications/last' }]);
  assert.equal(connection.hasAbandoned('question', 'bob'), false, 'no late question can be about it');
  await connection.close();
});

//
test('only calls that may ask are those of a late question', async () => {
  const { connection } = await connect({ request: () => undefined });
  for (const method of ['completion/complete', 'tasks/result'])
    connection.call(method, undefined, { ...OPTIONS, sender: ANN }).cancel('enough');
  assert.equal(connection.hasAbandoned('question'), false);
  assert.equal(connection.hasAbandoned('log', 'ann'), false);
  assert.equal(connection.hasAbandoned('log', 'bob'), true);
});

test('limit answeredCallsWithProgress: progress of the oldest call is not passed on', async () => {
  const { connection, peer, notifications, reached } = await connect({});
  const ids: number[] = [];
  for (let n = 0; n <= LIMITS.answeredCallsWithProgress; n++) {
    const call = connection.call('tools/call', undefined, { ...OPTIONS, context: String(n), outlivesAnswer: true });
    ids.push(call.id);
    await call.answer;
  }
  for (const token of ids.slice(0, 2)) {
    peer.send(`{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":${token},"progress":1}}`);
  }
  assert.deepEqual(
    notifications.map(({ about }) => about),
    ['1'],
  );
  assert.deepEqual(reached, ['answeredCallsWithProgress']);
  await connection.close();
});

test('a fault in the handler of a server request is an internal error for the upstream', async () => {
  const upstream = memoryUpstream({});
  const faults: unknown[] = [];
  const fault = new TypeError('a fault');
  const connection = await Connection.open<string>(
    'up',
    upstream.start,
    {
      onServerRequest: (ask) => {
        if (ask.method === 'roots/list') ask.answer({ kind: 'result', result: '{"roots":[]}' });
        throw fault;
      },
      onNotification: () => undefined,
      onFault: (thrown) => faults.push(thrown),
      onClose: () => undefined,
    },
    AbortSignal.timeout(PATIENCE_MS),
    { audience: '' },
  );
  const [peer] = upstream.peers;
  assert.ok(peer);
  peer.send('{"jsonrpc":"2.0","id":1,"method":"sampling/createMessage"}');
  peer.send('{"jsonrpc":"2.0","id":2,"method":"roots/list"}');
  await received(peer, 2);
  assert.partialDeepStrictEqual(peer.received, [
    { kind: 'error', id: '1', error: { code: -32_603, message: 'Internal error' } },
    { kind: 'result', id: '2', result: '{"roots":[]}' },
  ]);
  assert.deepEqual(faults, [fault, fault]);
  assert.partialDeepStrictEqual(await connection.call('a', undefined, OPTIONS).answer, { kind: 'result' });
  await connection.close();
});

test('a fault in the handler of a notification leaves the connection in use', async () => {
  const upstream = memoryUpstream({});
  const faults: unknown[] = [];
  const fault = new TypeError('a fault');
  const connection = await Connection.open<string>(
    'up',
    upstream.start,
    {
      onServerRequest: () => undefined,
      onNotification: () => {
        throw fault;
      },
      onFault: (thrown) => faults.push(thrown),
      onClose: () => undefined,
    },
    AbortSignal.timeout(PATIENCE_MS),
    { audience: '' },
  );
  upstream.peers[0]?.send('{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}');
  assert.partialDeepStrictEqual(await connection.call('a', undefined, OPTIONS).answer, { kind: 'result' });
  assert.deepEqual(faults, [fault]);
  await connection.close();
});
