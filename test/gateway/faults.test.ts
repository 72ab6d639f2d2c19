import assert from 'node:assert/strict';
import { test } from 'node:test';
import { GatewayError } from '../../src/errors.ts';
import type { Answer, Message } from '../../src/protocol/jsonrpc.ts';
import { testCore, toolCall, UPSTREAM } from '../support/core.ts';
import { upstreamStatuses } from '../../src/compose/upstream-status.ts';
import { memoryUpstream, result, type Script } from '../support/memory-upstream.ts';
import { stopTime } from '../support/stopped-time.ts';

const TIMEOUT = { timeout: 120_000 };
const ECHO = { name: 'echo', inputSchema: { type: 'object' } };
const DONE = { content: [{ type: 'text', text: 'done' }] };

/**
 * The errors of the HTTP transport after a 404: the first for the refused message, the second for others in flight,
 * which may have run.
 */
const REFUSED = () => new GatewayError('upstream-session-lost', { upstream: 'up' });
const FORGOTTEN = () =>
  new GatewayError('upstream-session-lost', { upstream: 'up', executed: 'unknown', retryable: false });

function failure(answer: Answer) {
  assert.ok(answer.kind === 'error', JSON.stringify(answer));
  const { data } = answer.error;
  assert.ok(typeof data === 'object' && data !== null);
  return { rpc: answer.error.code, message: answer.error.message, ...data };
}

/** An upstream that answers the first calls with `first` and the others as one should. */
function after(first: Script['request'], count = 1) {
  let calls = 0;
  return memoryUpstream({
    lists: { tools: [ECHO] },
    request: (peer, request) => {
      if (request.method === 'tools/call' && ++calls <= count) return first?.(peer, request);
      peer.send(result(request, request.method === 'tools/call' ? DONE : {}));
    },
  });
}

// REL-07
test('a call refused for a lost session is sent once more, in a new session', TIMEOUT, async () => {
  const memory = after((peer, { id }) => {
    peer.fail(id, REFUSED());
    peer.end(FORGOTTEN());
  });
  await using gateway = await testCore({ up: { memory } });
  const client = await gateway.connect();
  assert.deepEqual(await client.result('tools/call', toolCall('up__echo')), DONE);
  assert.equal(memory.requests('tools/call').length, 2);
});

// REL-07
test('a forgotten session that no client uses is opened again, and no problem', TIMEOUT, async (t) => {
  const time = stopTime(t);
  const memory = after(undefined, 0);
  const target = { kind: 'http', url: 'http://127.0.0.1:9/mcp', headers: {} } as const;
  await using gateway = await testCore({ up: { memory, target } });
  const client = await gateway.connect();
  await client.result('tools/list');
  const before = memory.requests('tools/list').length;
  time.pass(31_000);
  for (const peer of memory.open) peer.end(FORGOTTEN());
  assert.partialDeepStrictEqual(upstreamStatuses(gateway.core), [{ state: 'ready' }]);
  await time.passUntil(
    memory.until(() => memory.requests('tools/list')[before]),
    100,
  );
});

// REL-07
test('a call refused twice for a lost session is not sent a third time', TIMEOUT, async () => {
  const memory = after((peer, { id }) => {
    peer.fail(id, REFUSED());
    peer.end(FORGOTTEN());
  }, 100);
  await using gateway = await testCore({ up: { memory } });
  const client = await gateway.connect();
  const { answer } = await client.request('tools/call', toolCall('up__echo'));
  assert.partialDeepStrictEqual(failure(answer), { code: 'upstream-session-lost', executed: 'no' });
  assert.equal(memory.requests('tools/call').length, 2);
});

// G1
test('a call in flight when the session was lost is not sent again', TIMEOUT, async () => {
  const memory = after((peer) => peer.end(FORGOTTEN()));
  await using gateway = await testCore({ up: { memory } });
  const client = await gateway.connect();
  const { answer } = await client.request('tools/call', toolCall('up__echo'));
  assert.equal(memory.requests('tools/call').length, 1);
  assert.partialDeepStrictEqual(failure(answer), { executed: 'unknown', retryable: false });
});

// G1
test('one call refused for a lost session does not repeat another one', TIMEOUT, async () => {
  const memory = memoryUpstream({
    lists: { tools: [ECHO, { ...ECHO, name: 'slow' }] },
    request: (peer, request) => {
      const calls = memory.requests('tools/call').length;
      if (calls === 2) {
        peer.fail(request.id, REFUSED());
        peer.end(FORGOTTEN());
      } else if (calls > 2) peer.send(result(request, DONE));
    },
  });
  await using gateway = await testCore({ up: { memory } });
  const client = await gateway.connect();
  const slow = client.request('tools/call', toolCall('up__slow'));
  await memory.until(() => memory.requests('tools/call')[0]);
  await client.result('tools/call', toolCall('up__echo'));
  assert.partialDeepStrictEqual(failure((await slow).answer), { executed: 'unknown' });
  const names = memory.requests('tools/call').map(({ params }) => params?.string('name'));
  assert.deepEqual(names, ['slow', 'echo', 'echo']);
});

// R1 G6
test('a crash fails its call with executed "unknown", and the next call works', TIMEOUT, async () => {
  const memory = after((peer) => peer.crash());
  await using gateway = await testCore({ up: { memory } });
  const client = await gateway.connect();
  const { answer } = await client.request('tools/call', toolCall('up__echo'));
  assert.partialDeepStrictEqual(failure(answer), { code: 'upstream-lost', executed: 'unknown' });
  assert.equal(memory.requests('tools/call').length, 1);
  assert.deepEqual(await client.result('tools/call', toolCall('up__echo')), DONE);
});

// R2
test('a call without an answer fails at its deadline and is cancelled upstream', TIMEOUT, async (t) => {
  const time = stopTime(t);
  const memory = after(() => undefined);
  await using gateway = await testCore({ up: { memory } });
  const client = await gateway.connect();
  const asked = client.request('tools/call', toolCall('up__echo'));
  const call = await memory.until(() => memory.requests('tools/call')[0]);
  time.pass(UPSTREAM.timeouts.callMs);
  const { answer } = await asked;
  assert.partialDeepStrictEqual(failure(answer), { code: 'upstream-timeout', executed: 'unknown' });
  const cancelled = await memory.until(() =>
    memory.peers
      .flatMap(({ received }) => received)
      .find((message) => message.kind === 'notification' && message.method === 'notifications/cancelled'),
  );
  assert.ok(cancelled.kind === 'notification');
  assert.equal(cancelled.params?.raw('requestId'), call.id);
});

// REL-04
test('progress extends the deadline up to the maximum', TIMEOUT, async (t) => {
  const time = stopTime(t);
  const memory = after(() => undefined);
  await using gateway = await testCore({
    up: { memory, timeouts: { ...UPSTREAM.timeouts, callMs: 100, maxMs: 400 } },
  });
  const client = await gateway.connect();
  const received: Message[] = [];
  const asked = client.request('tools/call', toolCall('up__echo', {}, { progressToken: 1 }), {
    onMessage: (message) => received.push(message),
  });
  const { params } = await memory.until(() => memory.requests('tools/call')[0]);
  const token = params?.object('_meta')?.raw('progressToken');
  for (let progress = 1; progress <= 4; progress++) {
    time.pass(99);
    memory.peers[0]?.send(
      `{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":${token},"progress":${progress}}}`,
    );
    await client.until(() => received[progress - 1]);
  }
  time.pass(4);
  assert.partialDeepStrictEqual(failure((await asked).answer), { code: 'upstream-timeout' });
});

// M-028
test('an upstream that does not start affects only its own items', TIMEOUT, async () => {
  const dead = memoryUpstream({ start: () => Promise.reject(new GatewayError('upstream-unavailable')) });
  const memory = after(undefined, 0);
  await using gateway = await testCore({ dead: { memory: dead }, up: { memory } });
  const client = await gateway.connect();
  assert.partialDeepStrictEqual(await client.result('tools/list'), { tools: [{ name: 'up__echo' }] });
  assert.deepEqual(await client.result('tools/call', toolCall('up__echo')), DONE);
});

// R1
test('many sessions at an upstream that is down briefly do not keep it down', TIMEOUT, async () => {
  let isDown = false;
  const memory = memoryUpstream({
    lists: { tools: [ECHO] },
    start: () =>
      isDown ? Promise.reject(new GatewayError('upstream-unavailable', { message: 'down' })) : Promise.resolve(),
    request: (peer, request) => peer.send(result(request, DONE)),
  });
  await using gateway = await testCore({ up: { memory } });
  // The first client gets the process that read the lists.
  await (await gateway.connect()).result('tools/call', toolCall('up__echo'));
  const clients = await Promise.all(Array.from({ length: 8 }, () => gateway.connect()));
  isDown = true;
  const failed = await Promise.all(clients.map((client) => client.request('tools/call', toolCall('up__echo'))));
  assert.deepEqual(new Set(failed.map(({ answer }) => failure(answer).rpc)), new Set([-31010]));
  isDown = false;
  const { answer } = await gateway.connect().then((client) => client.request('tools/call', toolCall('up__echo')));
  assert.equal(answer.kind, 'result', JSON.stringify(answer));
});

// R1
test('an upstream that loses all sessions at once does not count as crash-looping', TIMEOUT, async () => {
  const memory = memoryUpstream({
    capabilities: { resources: { subscribe: true }, tools: {} },
    lists: { tools: [ECHO], resources: [{ uri: 'file:///a', name: 'a' }] },
  });
  await using gateway = await testCore({ up: { memory } });
  const clients = await Promise.all(Array.from({ length: 8 }, () => gateway.connect()));
  for (const client of clients) await client.result('resources/subscribe', { uri: 'up+file:///a' });
  for (const peer of memory.open) peer.end(FORGOTTEN());
  for (const client of clients) {
    const { answer } = await client.request('tools/call', toolCall('up__echo'));
    assert.equal(answer.kind, 'result', JSON.stringify(answer));
  }
});

// R5
test('a malformed message before the initialize answer does not prevent the start', TIMEOUT, async () => {
  const memory = memoryUpstream({
    isRaw: true,
    lists: { tools: [ECHO] },
    request: (peer, request) => {
      if (request.method !== 'initialize') return peer.send(result(request, DONE));
      const params = '{"level":"info","data":1,"_meta":{"a":1,"a":2}}';
      peer.send(`{"jsonrpc":"2.0","method":"notifications/message","params":${params}}`);
      peer.send(result(request, { protocolVersion: '2025-11-25', capabilities: { tools: {} }, serverInfo: {} }));
    },
  });
  await using gateway = await testCore({ up: { memory } });
  const client = await gateway.connect();
  assert.deepEqual(await client.result('tools/call', toolCall('up__echo')), DONE);
});

// R5
test('a question with malformed params gets an error and reaches no client', TIMEOUT, async () => {
  const answers: string[] = [];
  const memory = memoryUpstream({
    lists: { tools: [ECHO] },
    request: (peer) => {
      const params = '{"message":"Who?","requestedSchema":{"type":"object","type":"object"}}';
      peer.send(`{"jsonrpc":"2.0","id":"q","method":"elicitation/create","params":${params}}`);
    },
    response: (peer, response) => {
      answers.push(response.kind === 'error' ? String(response.error.code) : response.kind);
      const [call] = memory.requests('tools/call');
      if (call !== undefined) peer.send(result(call, DONE));
    },
  });
  await using gateway = await testCore({ up: { memory } });
  const client = await gateway.connect({ capabilities: { elicitation: {} }, revision: '2025-06-18' });
  const { answer, messages } = await client.request('tools/call', toolCall('up__echo'));
  assert.equal(answer.kind, 'result');
  assert.deepEqual(answers, ['-32602']);
  assert.deepEqual(messages, []);
});

// R5
test('a malformed result fails the call with executed "yes"', TIMEOUT, async () => {
  const memory = after((peer, { id }) => {
    const block = '{"type":"resource_link","uri":"file:///a","uri":"file:///b"}';
    peer.send(`{"jsonrpc":"2.0","id":${id},"result":{"content":[${block}]}}`);
  });
  await using gateway = await testCore({ up: { memory } });
  const client = await gateway.connect();
  const { answer } = await client.request('tools/call', toolCall('up__echo'));
  assert.partialDeepStrictEqual(failure(answer), { code: 'upstream-protocol', executed: 'yes' });
});

// R1
test('a start that never finishes fails with a message that names the handshake', TIMEOUT, async (t) => {
  const time = stopTime(t);
  const memory = memoryUpstream({ isRaw: true, request: () => undefined });
  await using gateway = await testCore({ up: { memory } }, { lists: { waitMs: 2 * UPSTREAM.timeouts.startMs } });
  const connecting = gateway.connect();
  await memory.until(() => memory.requests('initialize')[0]);
  time.pass(UPSTREAM.timeouts.startMs);
  await (await connecting).result('tools/list');
  const reason = upstreamStatuses(gateway.core)[0]?.reason ?? '';
  assert.match(reason, /did not answer the handshake/);
});
