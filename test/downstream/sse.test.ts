import assert from 'node:assert/strict';
import { request as httpRequest } from 'node:http';
import { test } from 'node:test';
import { BY_NAME, type Edge, type Overrides, startEdge } from './edge.ts';
import { type Events, getEvents, type Got, post, responseTo, rpc } from './client.ts';
import { modernText } from '../support/modern-wire.ts';
import { waitUntil } from '../support/wait-until.ts';

const OPTIONS = { timeout: 120_000 };

interface Line {
  /** Where the client sends messages. */
  readonly url: string;
  readonly events: Events;
  send(body: string): Promise<Got>;
}

async function open(edge: Edge, path = '/sse', headers: Readonly<Record<string, string>> = {}): Promise<Line> {
  const events = await getEvents(`${edge.url}${path}`, undefined, headers);
  await events.until(({ seen }) => seen.length > 0);
  const [endpoint] = events.seen.splice(0, 1);
  assert.equal(endpoint?.event, 'endpoint');
  const url = new URL(endpoint?.data ?? '', `${edge.url}${path}`);
  return { url: url.href, events, send: async (body) => await post(url.href, body, undefined, headers) };
}

function hello(protocolVersion = '2024-11-05'): string {
  return rpc(0, 'initialize', { protocolVersion, capabilities: {}, clientInfo: { name: 'old', version: '1' } });
}

async function greet(overrides: Overrides = {}, protocolVersion?: string) {
  const edge = await startEdge(overrides);
  const line = await open(edge);
  assert.equal((await line.send(hello(protocolVersion))).status, 202);
  await line.events.until(({ messages }) => messages.length === 1);
  return { edge, ...line, front: edge.front, [Symbol.asyncDispose]: () => edge[Symbol.asyncDispose]() };
}

// T-035
test('a GET stream names the POST path first, and then carries the answers', OPTIONS, async () => {
  await using at = await greet();
  const accepted = await at.send(rpc(1, 'echo', { a: 1 }));
  assert.equal(accepted.status, 202);
  assert.equal(accepted.text, 'Accepted');
  await at.send('{"jsonrpc":"2.0","method":"notifications/initialized"}');
  await at.send(rpc('two', 'count', { to: 2 }));
  await at.events.until(({ messages }) => messages.length === 5);
  assert.deepEqual(
    at.events.messages.map(({ id }) => id),
    [0, 1, undefined, undefined, 'two'],
  );
  assert.ok(at.events.seen.every(({ event, id }) => event === 'message' && id === undefined));
  assert.equal(at.events.headers['content-type'], 'text/event-stream');
  assert.equal(at.front.notifications.length, 1);
  assert.equal(at.front.onlySession.caller.revision, '2024-11-05');
});

test('questions come on the only stream, and the answer reaches the gateway', OPTIONS, async () => {
  await using at = await greet();
  await at.send(rpc(1, 'ask'));
  await at.events.until(({ messages }) => messages.length === 2);
  const id = at.events.messages[1]?.id;
  await at.send(JSON.stringify({ jsonrpc: '2.0', id, result: { roots: [] } }));
  await at.events.until(({ messages }) => messages.length === 3);
  assert.deepEqual(at.events.messages[2]?.result, { answered: { roots: [] } });
});

test('the session ends with the stream', OPTIONS, async () => {
  await using at = await greet();
  at.events.close();
  await waitUntil(() => at.front.sessions.size === 0);
  assert.equal((await at.send(rpc(1, 'ping'))).status, 404);
});

test('the stream ends with the session', OPTIONS, async () => {
  await using at = await greet();
  await at.front.endSession(at.front.onlySession);
  await at.events.ended();
});

test('a disconnect before initialize is answered leaves no session', OPTIONS, async () => {
  await using edge = await startEdge();
  const line = await open(edge);
  const greeting = line.send(hello());
  line.events.close();
  const accepted = await greeting.catch(() => undefined);
  if (accepted?.status === 202) {
    // Without this, the session may not exist yet when the test looks for it.
    await waitUntil(() => edge.front.initialized > 0);
  }
  await waitUntil(async () => !/kind="sse"\} [^0]/.test(await edge.metrics.text()));
  await waitUntil(() => edge.front.sessions.size === 0);
});

test('initialize that comes after the end of its stream is refused', OPTIONS, async () => {
  await using edge = await startEdge();
  const line = await open(edge);
  const body = hello();
  const posting = httpRequest(line.url, {
    method: 'POST',
    headers: { 'content-type': 'application/json', 'content-length': body.length },
  });
  const response = responseTo(posting);
  posting.write(body.slice(0, 20));
  line.events.close();
  await waitUntil(async () => !/kind="sse"\} [^0]/.test(await edge.metrics.text()));
  posting.end(body.slice(20));
  const got = await response;
  got.resume();
  assert.equal(got.statusCode, 404);
  assert.equal(edge.front.initialized, 0);
});

// T-035
test('a client that reads slowly gets all of several large answers', OPTIONS, async () => {
  await using at = await greet();
  at.events.pause();
  for (const id of [1, 2, 3]) await at.send(rpc(id, 'big', { chars: 8_000_000 }));
  await waitUntil(() => at.front.finished.length === 3);
  at.events.resume();
  await at.events.until(({ seen, isEnded }) => isEnded || seen.length === 4);
  assert.deepEqual(
    at.events.messages.map(({ id }) => id),
    [0, 1, 2, 3],
  );
});

test('an idle stream carries comments', OPTIONS, async () => {
  await using at = await greet({ sessions: { keepAliveMs: 20 } });
  await at.events.until(({ comments }) => comments >= 3);
});

test('before initialize only ping is answered', OPTIONS, async () => {
  await using edge = await startEdge();
  const line = await open(edge);
  await line.send(rpc(1, 'tools/list'));
  await line.send(rpc(2, 'ping'));
  await line.send('{"jsonrpc":"2.0","method":"notifications/x"}');
  await line.send(rpc(3, 'initialize', {}));
  await line.events.until(({ messages }) => messages.length === 3);
  await line.send(hello());
  await line.events.until(({ messages }) => messages.length === 4);
  const [refused, ping, failed, welcome] = line.events.messages;
  assert.deepEqual([refused?.id, ping?.id, failed?.id, welcome?.id], [1, 2, 3, 0]);
  assert.ok(refused?.error !== undefined && failed?.error !== undefined);
  assert.deepEqual(ping?.result, {});
  assert.ok(welcome?.result !== undefined);
  assert.deepEqual(edge.front.began, []);
});

test('an invalid message is refused in the response to its POST', OPTIONS, async () => {
  await using at = await greet();
  for (const [body, code] of [
    ['{', -32700],
    ['{}', -32600],
    ['[]', -32600],
  ] as const) {
    const got = await at.send(body);
    assert.equal(got.status, 400);
    assert.equal(JSON.parse(got.text).error.code, code);
  }
});

// T-033 T-034
test('batches are accepted only from clients of 2025-03-26', OPTIONS, async () => {
  await using at = await greet({}, '2025-03-26');
  await at.send(`[${rpc(1, 'ping')},${rpc(2, 'echo', { b: 2 })}]`);
  await at.events.until(({ seen }) => seen.length === 2);
  const answers: { id: number }[] = JSON.parse(at.events.seen[1]?.data ?? '');
  assert.deepEqual(
    answers.map(({ id }) => id),
    [1, 2],
  );

  await using old = await greet();
  await old.send(`[${rpc(1, 'ping')}]`);
  await old.events.until(({ messages }) => messages.length === 2);
  assert.ok(old.events.messages[1]?.error !== undefined);
});

// S-001
test('a POST to the path of another user gets 404', OPTIONS, async () => {
  await using edge = await startEdge({}, BY_NAME);
  const alice = await open(edge, '/sse/files', { authorization: 'Bearer alice' });
  const bob = await open(edge, '/sse', { authorization: 'Bearer bob' });
  await alice.send(hello());
  await alice.events.until(({ messages }) => messages.length === 1);
  assert.equal(edge.front.onlySession.caller.view, 'files');

  const path = await getEvents(`${edge.url}/sse`, undefined, { authorization: 'Bearer alice' });
  await path.until(({ seen }) => seen.length === 1);
  const url = `${edge.url}${path.seen[0]?.data}`;
  assert.equal((await post(url, hello(), undefined, { authorization: 'Bearer bob' })).status, 404);
  assert.equal((await post(url, hello(), undefined, {})).status, 401);
  assert.equal((await post(url, hello(), undefined, { authorization: 'Bearer alice', origin: 'null' })).status, 403);
  assert.equal((await post(url, hello(), undefined, { authorization: 'Bearer alice' })).status, 202);
  assert.deepEqual(bob.events.messages, []);
});

test('draining ends an SSE stream on which no answer is due, and no other one', OPTIONS, async () => {
  await using at = await greet();
  await at.send(rpc(1, 'wait'));
  const idle = await open(at.edge);
  at.edge.drain();
  await idle.events.until(({ isEnded }) => isEnded);
  at.front.release('gate');
  await at.events.until(({ messages }) => messages.length === 2);
});

test('while draining, new streams and requests are refused, and answers arrive', OPTIONS, async () => {
  await using at = await greet();
  await at.send(rpc(1, 'wait'));
  at.edge.drain();
  assert.equal((await getEvents(`${at.edge.url}/sse`, undefined)).status, 503);
  assert.equal((await at.send(rpc(2, 'ping'))).status, 503);
  for (const [more, executed] of [
    [{}, 'no'],
    [{ requestState: 's', inputResponses: {} }, 'unknown'],
  ] as const) {
    const refused = await at.send(modernText('tools/call', { name: 'a', arguments: {}, ...more }, { id: 3 }));
    assert.partialDeepStrictEqual(JSON.parse(refused.text).error.data, { code: 'draining', executed });
  }
  at.front.release('gate');
  await at.events.until(({ messages }) => messages.length === 2);
});
