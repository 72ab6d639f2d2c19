import assert from 'node:assert/strict';
import { test } from 'node:test';
import { ResultSchema } from '@modelcontextprotocol/sdk/types.js';
import { RawObject } from '../../src/json/json.ts';
import { connectSdk1, connectSdk2 } from '../support/sdk-client.ts';
import { waitUntil } from '../support/wait-until.ts';
import { getEvents, initialize, post, postForEvents, rpc, send } from './client.ts';
import { type Edge, startEdge } from './edge.ts';

const OPTIONS = { timeout: 120_000 };

function cancelText(requestId: number): string {
  return JSON.stringify({ jsonrpc: '2.0', method: 'notifications/cancelled', params: { requestId } });
}

async function cancel(edge: Edge, session: string, requestId: number): Promise<void> {
  assert.equal((await post(`${edge.url}/mcp`, cancelText(requestId), session)).status, 202);
}

// N-48
test('the stream of a cancelled request ends without a response', OPTIONS, async () => {
  await using edge = await startEdge();
  const url = `${edge.url}/mcp`;
  const id = await initialize(url);
  const call = await postForEvents(url, rpc(1, 'count', { to: 2, gate: 'g' }), id);
  await call.until(({ numbers }) => numbers.length === 2);
  await cancel(edge, id, 1);
  await call.ended();
  assert.deepEqual(call.numbers, [1, 2]);
  assert.ok(call.messages.every((message) => message.id === undefined));
  const headers = { accept: 'text/event-stream', 'mcp-session-id': id, 'last-event-id': call.lastId };
  assert.equal((await send(url, { headers })).status, 405);
});

// N-48
test('a cancelled request without a stream gets an empty one without event id', OPTIONS, async () => {
  await using edge = await startEdge();
  const url = `${edge.url}/mcp`;
  const id = await initialize(url);
  const call = post(url, rpc(1, 'wait', { gate: 'g' }), id);
  await waitUntil(() => edge.front.began.length === 1);
  edge.front.handleNotification(edge.front.own(id), {
    kind: 'notification',
    method: 'notifications/cancelled',
    params: RawObject.of({ requestId: 1 }),
  });
  const got = await call;
  assert.equal(got.status, 200);
  assert.equal(got.headers['content-type'], 'text/event-stream');
  assert.equal(got.text, '');
});

// N-48
test('a cancelled request of a client that takes only JSON gets 202', OPTIONS, async () => {
  await using edge = await startEdge();
  const url = `${edge.url}/mcp`;
  const id = await initialize(url);
  const call = post(url, rpc(1, 'wait', { gate: 'g' }), id, { accept: 'application/json' });
  await waitUntil(() => edge.front.began.length === 1);
  await cancel(edge, id, 1);
  const got = await call;
  assert.equal(got.status, 202);
  assert.equal(got.text, '');
});

// N-48
test('a batch leaves out the response to a cancelled request', OPTIONS, async () => {
  await using edge = await startEdge();
  const url = `${edge.url}/mcp`;
  const id = await initialize(url, '2025-03-26');
  const batch = `[${rpc(1, 'wait', { gate: 'g' })},${rpc(2, 'ping')}]`;
  const call = post(url, batch, id, { accept: 'application/json' });
  await waitUntil(() => edge.front.finished.length === 1);
  await cancel(edge, id, 1);
  assert.deepEqual(JSON.parse((await call).text), [{ jsonrpc: '2.0', id: 2, result: {} }]);
});

// N-48
test('a batch for a client of events is events although its last call is cancelled', OPTIONS, async () => {
  await using edge = await startEdge();
  const url = `${edge.url}/mcp`;
  const id = await initialize(url, '2025-03-26');
  const batch = `[${rpc(1, 'wait', { gate: 'g' })},${rpc(2, 'ping')}]`;
  const call = postForEvents(url, batch, id, { accept: 'text/event-stream' });
  await waitUntil(() => edge.front.finished.length === 1);
  await cancel(edge, id, 1);
  const events = await (await call).ended();
  assert.equal(events.headers['content-type'], 'text/event-stream');
  assert.deepEqual(events.messages, [{ jsonrpc: '2.0', id: 2, result: {} }]);
});

// N-48
test('SDK client 1 cancels a streaming call and continues', OPTIONS, async () => {
  await using edge = await startEdge();
  await using sdk = await connectSdk1(`${edge.url}/mcp`, {});
  const aborting = new AbortController();
  const call = sdk.client.request({ method: 'count', params: { to: 2, gate: 'g' } }, ResultSchema, {
    signal: aborting.signal,
  });
  await waitUntil(() => edge.front.began.includes('count'));
  aborting.abort('enough');
  await assert.rejects(call);
  await waitUntil(() => edge.front.finished.includes('count'));
  assert.deepEqual((await sdk.client.listTools()).tools, []);
});

// N-48
test('SDK client 2 cancels a call and continues', OPTIONS, async () => {
  await using edge = await startEdge();
  await using sdk = await connectSdk2(`${edge.url}/mcp`, { mode: 'legacy' });
  const aborting = new AbortController();
  const call = sdk.client.request({ method: 'count', params: { to: 2, gate: 'g' } }, ResultSchema, {
    signal: aborting.signal,
  });
  await waitUntil(() => edge.front.began.includes('count'));
  aborting.abort('enough');
  await assert.rejects(call);
  await waitUntil(() => edge.front.finished.includes('count'));
  assert.deepEqual((await sdk.client.listTools()).tools, []);
});

// N-48
test('a second initialize in a session is refused with HTTP 400', OPTIONS, async () => {
  await using edge = await startEdge();
  const url = `${edge.url}/mcp`;
  const id = await initialize(url);
  const params = { protocolVersion: '2025-11-25', capabilities: {}, clientInfo: { name: 'test', version: '1' } };
  const again = await post(url, rpc(5, 'initialize', params), id);
  assert.equal(again.status, 400);
  assert.partialDeepStrictEqual(JSON.parse(again.text), { id: 5, error: { code: -32600 } });
  assert.equal(edge.front.sessions.size, 1);
  // An ended session is no reason to refuse.
  assert.equal((await post(url, rpc(6, 'initialize', params), 'gone')).status, 200);
  const events = await getEvents(url, id);
  assert.equal(events.status, 200);
  events.close();
});
