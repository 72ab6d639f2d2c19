import assert from 'node:assert/strict';
import { once } from 'node:events';
import { type IncomingMessage, request, type ServerResponse } from 'node:http';
import { pipeline } from 'node:stream/promises';
import { test } from 'node:test';
import { GatewayError } from '../../src/errors.ts';
import type { Owner } from '../../src/gateway/front.ts';
import { initialize, post, responseTo, rpc, send } from './client.ts';
import { type Edge, startEdge } from './edge.ts';

const BOUNDED = { timeout: 20_000 };

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
  };
  const handleModernRequest = () => {
    throw new Error('no modern requests');
  };
  return { owner: { forward, handleModernRequest }, forwarded };
}

test('requests of a session in another process are answered there: POST, GET and DELETE', BOUNDED, async () => {
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
  const opening = request(`${there.url}/sse`, { headers: { accept: 'text/event-stream' }, agent: false }).end();
  const stream = await responseTo(opening);
  const [first] = await once(stream, 'data');
  const path = /data: (\S+)/.exec(String(first))?.[1] ?? '';
  here.front.elsewhere.set(new URL(path, here.url).searchParams.get('sessionId') ?? '', owner);
  const answered = received(stream, '"id":1');
  const { status } = await post(`${here.url}${path}`, rpc(1, 'ping'));
  assert.equal(status, 202);
  await answered;
  assert.deepEqual(forwarded, ['POST']);
  opening.on('error', () => undefined).destroy();
});

test('a 2024-11-05 stream is opened only by the process that owns its secret', BOUNDED, async () => {
  await using there = await startEdge();
  await using here = await startEdge();
  const { owner } = processOf(there);
  const ask = here.front.ownerOfSession.bind(here.front);
  here.front.ownerOfSession = async () => ({ kind: 'elsewhere', owner });
  const refused = await send(`${here.url}/sse`, { headers: { accept: 'text/event-stream' } });
  assert.equal(refused.status, 500);
  assert.match(refused.text, /open \/sse again/);
  here.front.ownerOfSession = async () => {
    throw new GatewayError('overloaded', { message: 'the store is away' });
  };
  const failed = await send(`${here.url}/sse`, { headers: { accept: 'text/event-stream' } });
  assert.deepEqual([failed.status, /the store is away/.test(failed.text)], [503, true], failed.text);
  here.front.ownerOfSession = ask;
  const opening = request(`${here.url}/sse`, { headers: { accept: 'text/event-stream' }, agent: false }).end();
  assert.equal((await responseTo(opening)).statusCode, 200);
  opening.on('error', () => undefined).destroy();
});

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
