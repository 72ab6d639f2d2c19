import assert from 'node:assert/strict';
import { once } from 'node:events';
import { Agent, request } from 'node:http';
import { test } from 'node:test';
import { type Edge, type Overrides, startEdge } from './edge.ts';
import { BOTH, getEvents, initialize, post, postForEvents, rpc, send } from './client.ts';
import { answerOf, modernPost } from '../support/modern-wire.ts';
import { waitUntil } from '../support/wait-until.ts';

const OPTIONS = { timeout: 120_000 };
const REVISIONS = ['2024-11-05', '2025-03-26', '2025-06-18', '2025-11-25'] as const;

async function setUp(revision = '2025-11-25', overrides: Overrides = {}) {
  const edge: Edge = await startEdge(overrides);
  const url = `${edge.url}/mcp`;
  const id = await initialize(url, revision);
  return { edge, url, id, front: edge.front, [Symbol.asyncDispose]: () => edge[Symbol.asyncDispose]() };
}

test('an answer that is the first message and comes soon is a JSON body', OPTIONS, async () => {
  await using at = await setUp();
  const got = await post(at.url, rpc('a', 'echo', { b: 'ü' }), at.id);
  assert.equal(got.headers['content-type'], 'application/json');
  assert.equal(got.text, '{"jsonrpc":"2.0","id":"a","result":{"b":"ü"}}');
  assert.equal(got.headers['content-length'], String(Buffer.byteLength(got.text)));
});

// T-029
test('the Java SDK, which fails at a line with retry, gets none', OPTIONS, async () => {
  await using at = await setUp('2025-11-25');
  const java = { 'user-agent': 'Java-http-client/17.0.15' };
  const events = await (await postForEvents(at.url, rpc(1, 'count', { to: 2 }), at.id, java)).ended();
  assert.deepEqual([events.seen[0]?.data, events.retryMs], ['', undefined]);
});

// The SDKs for TypeScript and Python try twice.
test('a client that opens a lost stream again twice may outlast a restart of seconds', OPTIONS, async () => {
  await using at = await setUp();
  const events = await getEvents(at.url, at.id);
  await events.until(({ seen }) => seen.length === 1);
  assert.ok(events.retryMs !== undefined && 2 * events.retryMs >= 4_000, String(events.retryMs));
  events.close();
});

for (const revision of REVISIONS) {
  const primes = revision === '2025-11-25';
  // T-029
  test(`at ${revision} a stream begins ${primes ? 'with' : 'without'} a priming event`, OPTIONS, async () => {
    await using at = await setUp(revision);
    const events = await (await postForEvents(at.url, rpc(1, 'count', { to: 2 }), at.id)).ended();
    assert.match(events.headers['content-type'] ?? '', /^text\/event-stream/);
    assert.equal(events.headers['x-accel-buffering'], 'no');
    assert.match(events.headers['cache-control'] ?? '', /no-cache.*no-transform/);
    assert.equal(events.seen.filter(({ data }) => data === '').length, primes ? 1 : 0);
    assert.equal(events.seen[0]?.data === '', primes);
    assert.equal(events.retryMs !== undefined, primes);
    assert.deepEqual(events.numbers, [1, 2]);
    assert.deepEqual(events.messages.at(-1), { jsonrpc: '2.0', id: 1, result: { counted: 2 } });
  });
}

test('messages during a request come in order before its answer', OPTIONS, async () => {
  await using at = await setUp();
  for (let round = 0; round < 20; round++) {
    const events = await (await postForEvents(at.url, rpc(round + 1, 'count', { to: 25 }), at.id)).ended();
    assert.deepEqual(
      events.numbers,
      Array.from({ length: 25 }, (_, i) => i + 1),
    );
    assert.equal(events.messages.length, 26);
    assert.equal(events.messages.at(-1)?.id, round + 1);
  }
});

// T-028
test('event ids are unique within a session', OPTIONS, async () => {
  await using at = await setUp();
  const listening = await getEvents(at.url, at.id);
  const posts = await Promise.all(
    [1, 2, 3].map(async (n) => await (await postForEvents(at.url, rpc(n, 'count', { to: 5 }), at.id)).ended()),
  );
  at.front.own(at.id).notify(1);
  await listening.until(({ messages }) => messages.length === 1);
  listening.close();
  const ids = [...posts, listening].flatMap(({ seen }) => seen.map(({ id }) => id));
  assert.ok(ids.every((id) => id !== undefined && /^[A-Za-z0-9_.-]{1,200}$/.test(id)));
  assert.equal(new Set(ids).size, ids.length);
});

test('a slow request is answered as events', OPTIONS, async () => {
  await using at = await setUp('2025-11-25', { sessions: { keepAliveMs: 20 } });
  const events = await postForEvents(at.url, rpc(1, 'wait'), at.id);
  assert.equal(events.status, 200);
  await events.until(({ seen, comments }) => seen.length === 1 && comments >= 3);
  assert.equal(events.seen[0]?.data, '');
  at.front.release('gate');
  await events.ended();
  assert.deepEqual(events.messages, [{ jsonrpc: '2.0', id: 1, result: { waited: true } }]);
});

// T-022
test('an idle stream carries comments', OPTIONS, async () => {
  await using at = await setUp('2025-06-18', { sessions: { keepAliveMs: 20 } });
  const listening = await getEvents(at.url, at.id);
  await listening.until(({ comments }) => comments >= 3);
  assert.equal(listening.seen.length, 0);
  listening.close();
});

test('a client that accepts only JSON gets other messages on its GET stream', OPTIONS, async () => {
  await using at = await setUp();
  const listening = await getEvents(at.url, at.id);
  const got = await post(at.url, rpc(1, 'count', { to: 3 }), at.id, { accept: 'application/json' });
  assert.deepEqual(JSON.parse(got.text).result, { counted: 3 });
  await listening.until((events) => events.numbers.length === 3);
  listening.close();
});

test('an answer that is not valid is refused, and ends its question', OPTIONS, async () => {
  await using at = await setUp();
  const wrong = [{ result: null }, { error: { code: -1 } }, { result: {}, error: { code: 1, message: '' } }];
  for (const members of wrong) {
    const events = await postForEvents(at.url, rpc('q', 'ask'), at.id);
    await events.until(({ messages }) => messages.length === 1);
    const refused = await post(
      at.url,
      JSON.stringify({ jsonrpc: '2.0', id: events.messages[0]?.id, ...members }),
      at.id,
    );
    assert.equal(refused.status, 400);
    // The id would be that of a request of the client.
    assert.equal(JSON.parse(refused.text).id, undefined);
    await events.ended();
    const { answered } = Object(events.messages.at(-1)?.result);
    assert.equal(answered.code, -32600);
    assert.match(answered.message, /^the answer is not valid: /);
  }
});

test('a client that accepts only events gets events', OPTIONS, async () => {
  await using at = await setUp();
  const accept = 'text/event-stream';
  const events = await (await postForEvents(at.url, rpc(1, 'ping'), at.id, { accept })).ended();
  assert.deepEqual(events.messages, [{ jsonrpc: '2.0', id: 1, result: {} }]);

  const params = { protocolVersion: '2025-06-18', capabilities: {}, clientInfo: { name: 'x', version: '1' } };
  const hello = await (await postForEvents(at.url, rpc(0, 'initialize', params), undefined, { accept })).ended();
  assert.equal(hello.messages[0]?.id, 0);
  const id = String(hello.headers['mcp-session-id']);
  assert.equal((await post(at.url, rpc(1, 'ping'), id)).status, 200);
});

test('a question to the client comes on the stream of its request', OPTIONS, async () => {
  await using at = await setUp();
  const listening = await getEvents(at.url, at.id);
  const asking = [11, 12, 13].map(async (n) => await postForEvents(at.url, rpc(n, 'ask'), at.id));
  for (const events of await Promise.all(asking)) {
    await events.until(({ messages }) => messages.length === 1);
    const [question] = events.messages;
    assert.equal(question?.method, 'roots/list');
    const answer = JSON.stringify({ jsonrpc: '2.0', id: question?.id, result: { n: question?.id } });
    assert.equal((await post(at.url, answer, at.id)).status, 202);
    await events.ended();
    assert.deepEqual(events.messages.at(-1)?.result, { answered: { n: question?.id } });
  }
  assert.equal(listening.messages.length, 0);
  listening.close();
});

// T-025 T-026
test('each message comes on exactly one stream, and no answer on the GET stream', OPTIONS, async () => {
  await using at = await setUp();
  const listening = await getEvents(at.url, at.id);
  const streams = await Promise.all(
    Array.from({ length: 8 }, async (_, n) => {
      const events = await postForEvents(at.url, rpc(`r${n}`, 'count', { to: 30 }), at.id);
      at.front.own(at.id).notify(1_000 + n);
      return await events.ended();
    }),
  );
  await listening.until((events) => events.numbers.length === 8);
  for (const [n, events] of streams.entries()) {
    assert.equal(events.numbers.length, 30);
    assert.deepEqual(
      events.messages.filter(({ id }) => id !== undefined).map(({ id }) => id),
      [`r${n}`],
    );
  }
  assert.deepEqual(
    listening.numbers.toSorted((a, b) => Number(a) - Number(b)),
    Array.from({ length: 8 }, (_, n) => 1_000 + n),
  );
  assert.ok(listening.messages.every(({ id }) => id === undefined));
  listening.close();
});

// T-027 REL-05
test('a disconnect cancels nothing', OPTIONS, async () => {
  await using at = await setUp();
  const committed = await postForEvents(at.url, rpc(1, 'count', { to: 1, gate: 'later' }), at.id);
  await committed.until(({ messages }) => messages.length === 1);
  committed.close();
  await committed.ended();

  const hangUp = new AbortController();
  const undecided = fetch(at.url, {
    method: 'POST',
    signal: hangUp.signal,
    headers: { 'content-type': 'application/json', accept: BOTH, 'mcp-session-id': at.id },
    body: rpc(2, 'wait', { gate: 'later' }),
  });
  await waitUntil(() => at.front.began.length >= 2);
  hangUp.abort();
  await assert.rejects(undecided);

  at.front.release('later');
  await waitUntil(() => at.front.finished.length >= 2);
  assert.deepEqual(at.front.notifications, []);
  assert.equal((await post(at.url, rpc(3, 'ping'), at.id)).status, 200);
});

// T-033
test('a batch is answered with one response per request', OPTIONS, async () => {
  await using at = await setUp('2025-03-26');
  const batch = [
    rpc(1, 'echo', { n: 1 }),
    '{"jsonrpc":"2.0","method":"notifications/x"}',
    '{"jsonrpc":"2.0","id":5}',
    rpc('two', 'ping'),
    '7',
  ];
  const got = await post(at.url, `[${batch.join(',')}]`, at.id);
  assert.equal(got.headers['content-type'], 'application/json');
  const answers: { id: unknown; result?: unknown; error?: { code: number } }[] = JSON.parse(got.text);
  assert.equal(answers.length, 4);
  assert.deepEqual(answers.find(({ id }) => id === 1)?.result, { n: 1 });
  assert.deepEqual(answers.find(({ id }) => id === 'two')?.result, {});
  assert.equal(answers.find(({ id }) => id === 5)?.error?.code, -32600);
  assert.equal(answers.filter(({ id }) => id === null).length, 1);
  assert.equal(at.front.notifications.length, 1);
});

test('a batch with messages before its answers is answered as events', OPTIONS, async () => {
  await using at = await setUp('2025-03-26');
  const batch = `[${rpc(1, 'ping')},${rpc(2, 'count', { to: 3, gate: 'g' })},${rpc(3, 'ping')}]`;
  const events = await postForEvents(at.url, batch, at.id);
  await events.until(({ messages }) => messages.filter(({ id }) => id !== undefined).length === 2);
  at.front.release('g');
  await events.ended();
  assert.deepEqual(events.numbers, [1, 2, 3]);
  assert.deepEqual(
    events.messages.filter(({ id }) => id !== undefined).map(({ id }) => id),
    [1, 3, 2],
  );
});

test('the end of a session closes its streams', OPTIONS, async () => {
  await using at = await setUp();
  const listening = await getEvents(at.url, at.id);
  const working = await postForEvents(at.url, rpc(1, 'count', { to: 1, gate: 'never' }), at.id);
  await working.until(({ messages }) => messages.length === 1);
  await send(at.url, { method: 'DELETE', headers: { 'mcp-session-id': at.id } });
  await listening.ended();
  await working.ended();
  assert.equal((await getEvents(at.url, at.id, { 'last-event-id': working.lastId })).status, 404);
});

test('a released session still works', OPTIONS, async () => {
  await using at = await setUp();
  const listening = await getEvents(at.url, at.id);
  await at.front.releaseSession(at.id);
  await listening.ended();
  const again = await getEvents(at.url, at.id, { 'last-event-id': listening.lastId });
  at.front.own(at.id).notify(5);
  await again.until((events) => events.numbers.length === 1);
  again.close();
});

test('while draining, answers arrive, streams end and new requests are refused', OPTIONS, async () => {
  await using at = await setUp('2025-03-26');
  const listening = await getEvents(at.url, at.id);
  const asking = await postForEvents(at.url, rpc(1, 'ask'), at.id);
  await asking.until(({ messages }) => messages.length === 1);

  at.edge.drain();
  await listening.ended();
  const params = { protocolVersion: '2025-06-18' };
  for (const body of [rpc(2, 'ping'), rpc(2, 'initialize', params), `[${rpc(2, 'ping')}]`]) {
    const got = await post(at.url, body, at.id);
    assert.equal(got.status, 503);
    assert.deepEqual(JSON.parse(got.text).error.data, { code: 'draining', executed: 'no', retryable: true });
  }
  assert.equal((await getEvents(at.url, at.id)).status, 503);

  const [question] = asking.messages;
  await post(at.url, JSON.stringify({ jsonrpc: '2.0', id: question?.id, result: {} }), at.id);
  await asking.ended();
  assert.equal(asking.messages.at(-1)?.id, 1);
});

test('while draining, the retry of a call is refused, and its call is not denied', OPTIONS, async () => {
  await using at = await setUp();
  at.edge.drain();
  for (const [retry, executed] of [
    [{}, 'no'],
    [{ requestState: 'of a call that waits' }, 'unknown'],
  ] as const) {
    const { error } = answerOf(await modernPost(at.url, 'tools/call', { name: 'echo', ...retry }));
    assert.deepEqual(error?.data, { code: 'draining', executed, retryable: true });
  }
});

test('many requests over one connection are each answered with their own answer', OPTIONS, async () => {
  await using at = await setUp();
  const agent = new Agent({ keepAlive: true, maxSockets: 2 });
  const answers = await Promise.all(
    Array.from({ length: 200 }, async (_, n) => {
      const headers = { 'content-type': 'application/json', accept: BOTH, 'mcp-session-id': at.id };
      const sent = request(at.url, { method: 'POST', agent, headers });
      sent.end(rpc(n, n % 5 === 0 ? 'count' : 'echo', { n, to: 2 }));
      const [response] = await once(sent, 'response');
      let text = '';
      for await (const chunk of response) text += String(chunk);
      return text;
    }),
  );
  agent.destroy();
  for (const [n, text] of answers.entries()) assert.match(text, new RegExp(`"id":${n},`));
});
