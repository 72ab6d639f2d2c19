import assert from 'node:assert/strict';
import { randomUUID } from 'node:crypto';
import { once } from 'node:events';
import { type IncomingMessage, request, type ServerResponse } from 'node:http';
import { pipeline } from 'node:stream/promises';
import { test } from 'node:test';
import type { ClientRequest } from '../../src/gateway/front/client-http.ts';
import type { Owner } from '../../src/gateway/front/front.ts';
import { waitUntil } from '../support/wait-until.ts';
import { BOTH, getEvents, initialize, post, responseTo, rpc, send } from './client.ts';
import { type Edge, startEdge } from './edge.ts';
import { HonestSession } from './honest-front.ts';

const BOUNDED = { timeout: 120_000 };

/** Returns the process of this edge as another one reaches it. It counts the requests, by method. */
function processOf({ port }: Edge): { readonly owner: Owner; readonly forwarded: string[] } {
  const forwarded: string[] = [];
  const forward = async (incoming: IncomingMessage, outgoing: ServerResponse) => {
    const { method = '', url: path, headers } = incoming;
    forwarded.push(method);
    assert.equal(incoming.readableDidRead, false, 'the body was not read');
    const sent = request({ host: '127.0.0.1', port, method, path, headers, agent: false });
    const sending = pipeline(incoming, sent);
    const response = await responseTo(sent);
    outgoing.writeHead(response.statusCode ?? 0, response.rawHeaders);
    await Promise.allSettled([sending, pipeline(response, outgoing)]);
    return 'answered' as const;
  };
  const handleModernRequest = () => {
    throw new Error('no modern requests');
  };
  return { owner: { forward, handleModernRequest, handleMessage: () => Promise.resolve() }, forwarded };
}

test('POST, GET and DELETE of a session in another process are answered there', BOUNDED, async () => {
  await using there = await startEdge();
  await using here = await startEdge();
  const { owner, forwarded } = processOf(there);
  const id = await initialize(`${there.url}/mcp`);
  here.front.elsewhere.set(id, owner);
  const { status, text } = await post(`${here.url}/mcp`, rpc(1, 'echo', { text: 'ü' }), id);
  assert.equal(status, 200);
  assert.deepEqual(JSON.parse(text).result, { text: 'ü' });
  const stream = await openStream(`${here.url}/mcp`, id);
  there.front.own(id).notify(1);
  await received(stream, 'notifications/progress');
  const ended = once(stream, 'close');
  const { status: deleted } = await send(`${here.url}/mcp`, { method: 'DELETE', headers: { 'mcp-session-id': id } });
  assert.equal(deleted, 204);
  await ended;
  assert.deepEqual(forwarded, ['POST', 'GET', 'DELETE']);
  assert.deepEqual(here.front.began, []);
});

test('a POST of a 2024-11-05 client reaches the process with its stream', BOUNDED, async () => {
  await using there = await startEdge();
  await using here = await startEdge();
  const { owner, forwarded } = processOf(there);
  const name = randomUUID();
  there.front.processName = name;
  here.front.streamsElsewhere.set(name, owner);
  const opening = request(`${there.url}/sse`, { headers: { accept: 'text/event-stream' }, agent: false }).end();
  const stream = await responseTo(opening);
  const [first] = await once(stream, 'data');
  const path = /data: (\S+)/.exec(String(first))?.[1] ?? '';
  const answered = received(stream, '"id":1');
  const { status } = await post(`${here.url}${path}`, rpc(1, 'ping'));
  assert.equal(status, 202);
  await answered;
  assert.deepEqual(forwarded, ['POST']);
  opening.on('error', () => undefined).destroy();
});

// R10
test('a process that leaves passes new requests on, and serves its sessions', BOUNDED, async () => {
  await using there = await startEdge();
  await using here = await startEdge();
  const { owner, texts } = textsTo(there);
  const own = await initialize(`${here.url}/mcp`);
  here.front.next = owner;
  here.drain();
  const { status } = await post(`${here.url}/mcp`, rpc(1, 'echo', {}), own);
  assert.equal(status, 200, 'a session that is still here is served');
  const next = await initialize(`${here.url}/mcp`);
  assert.deepEqual([...there.front.sessions.keys()], [next]);
  assert.equal(here.front.initialized, 1);
  here.front.elsewhere.set(next, owner);
  const answered = await post(`${here.url}/mcp`, rpc(2, 'echo', { text: 'ü' }), next);
  assert.deepEqual(JSON.parse(answered.text).result, { text: 'ü' });
  assert.equal(texts.length, 1, 'what names a session is passed on unread');
  here.front.next = undefined;
  const refused = await post(`${here.url}/mcp`, rpc(3, 'echo', {}), own);
  assert.equal(JSON.parse(refused.text).error.data.code, 'draining');
});

// R10
test('a session that moves while its request is read is served elsewhere', BOUNDED, async () => {
  await using there = await startEdge();
  await using here = await startEdge();
  const { owner, texts } = textsTo(there);
  const id = await initialize(`${there.url}/mcp`);
  const { caller } = there.front.own(id);
  here.front.sessions.set(id, new HonestSession(id, caller));
  const headers = { accept: BOTH, 'content-type': 'application/json', 'mcp-session-id': id };
  const sending = request(`${here.url}/mcp`, { method: 'POST', headers, agent: false });
  const body = rpc(1, 'echo', { text: 'x' });
  sending.write(body.slice(0, 10));
  await here.front.askedFor(id);
  here.front.sessions.delete(id);
  here.front.elsewhere.set(id, owner);
  here.front.next = owner;
  here.drain();
  sending.end(body.slice(10));
  const response = await responseTo(sending);
  const [chunk] = await once(response, 'data');
  assert.deepEqual(JSON.parse(String(chunk)).result, { text: 'x' });
  assert.deepEqual(texts, [body]);
});

// R10
test('streams that are passed on end when a replica leaves, requests do not', BOUNDED, async () => {
  await using there = await startEdge();
  await using here = await startEdge();
  const { owner } = processOf(there);
  const id = await initialize(`${there.url}/mcp`);
  here.front.elsewhere.set(id, owner);
  const stream = await openStream(`${here.url}/mcp`, id);
  there.front.own(id).notify(1);
  await received(stream, 'notifications/progress');
  const waiting = post(`${here.url}/mcp`, rpc(1, 'wait'), id);
  await waitUntil(() => there.front.began.includes('wait'));
  const ended = once(stream, 'end');
  stream.resume();
  here.drain();
  await ended;
  there.front.release('gate');
  assert.equal((await waiting).status, 200, 'a request that was passed on is answered');
});

test('if all processes end, a stream that is passed on ends with a delay', BOUNDED, async () => {
  await using there = await startEdge();
  await using here = await startEdge();
  const id = await initialize(`${there.url}/mcp`, '2025-06-18');
  here.front.elsewhere.set(id, processOf(there).owner);
  const stream = await getEvents(`${here.url}/mcp`, id);
  here.drain(true);
  there.drain(true);
  await stream.ended();
  // Without one, many clients try again too soon, and then never.
  assert.ok(stream.retryMs !== undefined && stream.retryMs >= 2_000, String(stream.retryMs));
});

/** Returns the process of this edge as another one reaches it. It keeps the bodies that were read before. */
function textsTo(edge: Edge): { readonly owner: Owner; readonly texts: string[] } {
  const { owner } = processOf(edge);
  const texts: string[] = [];
  const forward: Owner['forward'] = async (incoming, outgoing, principal, view, { text } = {}) => {
    if (text === undefined) return await owner.forward(incoming, outgoing, principal, view);
    texts.push(text);
    const got = await send(`${edge.url}/mcp`, {
      method: 'POST',
      headers: { accept: BOTH, 'content-type': 'application/json', 'mcp-session-id': sessionOf(incoming) },
      body: text,
    });
    const id = got.headers['mcp-session-id'];
    outgoing.writeHead(got.status, {
      'content-type': 'application/json',
      ...(id === undefined ? {} : { 'mcp-session-id': id }),
    });
    outgoing.end(got.text);
    return 'answered';
  };
  return { owner: { ...owner, forward }, texts };
}

function sessionOf({ headers }: ClientRequest): string | undefined {
  const id = headers['mcp-session-id'];
  return typeof id === 'string' ? id : undefined;
}

/** Resolves when a stream has sent this text. */
async function received(stream: IncomingMessage, wanted: string): Promise<void> {
  let text = '';
  while (!text.includes(wanted)) {
    const [chunk] = await once(stream, 'data');
    text += String(chunk);
  }
}

async function openStream(url: string, sessionId: string): Promise<IncomingMessage> {
  const headers = { accept: 'text/event-stream', 'mcp-session-id': sessionId };
  const opening = request(url, { headers, agent: false }).end();
  return await responseTo(opening);
}
