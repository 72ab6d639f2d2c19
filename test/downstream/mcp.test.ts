import assert from 'node:assert/strict';
import { test } from 'node:test';
import type { AuditEvent } from '../../src/audit/audit-event.ts';
import { RefusalAudit } from '../../src/downstream/admission/refusal-audit.ts';
import { GatewayError } from '../../src/errors.ts';
import { readHeaders } from '../../src/downstream/admission/headers.ts';
import { refuse, writeResponse } from '../../src/downstream/admission/refusal.ts';
import { McpEndpoint } from '../../src/downstream/mcp.ts';
import { createEdgeMemory } from '../../src/downstream/memory/edge-memory.ts';
import { EdgeTimers } from '../../src/downstream/streams/edge-timers.ts';
import { memoryEventLogs } from '../../src/downstream/streams/memory-event-log.ts';
import { testCore } from '../support/core.ts';
import { modernEvents, modernPost } from '../support/modern-wire.ts';
import { waitUntil } from '../support/wait-until.ts';
import { getEvents, initialize, messagesOf, post, rpc, send } from './client.ts';
import { ACCEPTING, configWith } from './edge.ts';
import { holdingUpstream, serving } from './posts.ts';

const OPTIONS = { timeout: 120_000 };
const LISTEN = { notifications: { toolsListChanged: true } };
const call = (id: number, name: string) => rpc(id, 'tools/call', { name, arguments: {} });

/** Serves an endpoint without admission and routes: the header `x-user` names the principal, the path names the view. */
async function endpoint() {
  const upstream = holdingUpstream();
  const gateway = await testCore({ up: { memory: upstream.memory } });
  const config = configWith({ limits: { bodyBytes: 10_000, streamsPerPrincipal: 1 } });
  const memory = createEdgeMemory(configWith({}), gateway.metrics);
  const refused: (string | undefined)[] = [];
  const trail = { record: (event: AuditEvent) => void refused.push(event.error) };
  const mcp = new McpEndpoint({
    refusals: new RefusalAudit(trail, () => undefined),
    front: gateway.core.gateway,
    settings: () => config,
    ...ACCEPTING,
    openEventLog: memoryEventLogs({ events: 100, bytes: 100_000 }, memory.events),
    timers: new EdgeTimers(60_000),
    metrics: gateway.metrics,
    memory,
    onFailure: () => refuse(new GatewayError('internal-error')),
  });
  const server = await serving((incoming, outgoing) => {
    const user = String(incoming.headers['x-user'] ?? 'ada');
    const principal = { key: user, label: user, scopes: [] };
    const admitted = { headers: readHeaders(incoming), principal };
    const view = incoming.url?.replace(/^\/mcp\/?/, '') ?? '';
    void mcp
      .answer({ incoming, outgoing }, view, admitted, 'http://gateway.example/mcp')
      .then((response) => writeResponse(outgoing, response));
  });
  return {
    ...upstream,
    mcp,
    refused,
    url: server.url,
    [Symbol.asyncDispose]: async () => {
      await server[Symbol.asyncDispose]();
      await gateway[Symbol.asyncDispose]();
    },
  };
}

test('initialize opens a session, whose requests and notifications are answered', OPTIONS, async () => {
  await using to = await endpoint();
  const id = await initialize(to.url);
  assert.equal((await post(to.url, '{"jsonrpc":"2.0","method":"notifications/initialized"}', id)).status, 202);
  const [answer] = messagesOf(await post(to.url, call(1, 'up__echo'), id));
  assert.partialDeepStrictEqual(answer, { id: 1, result: { content: [{ text: 'fine' }] } });
});

const refusals = [
  { what: 'a verb that MCP does not use', sent: { method: 'PUT' }, status: 405, allow: 'GET, POST, DELETE' },
  { what: 'a GET without a session', sent: { headers: { accept: 'text/event-stream' } }, status: 405, allow: 'POST' },
  {
    what: 'a GET in an unknown session',
    sent: { headers: { accept: 'text/event-stream', 'mcp-session-id': 'nobody' } },
    status: 404,
  },
  {
    what: 'a DELETE of an unknown session',
    sent: { method: 'DELETE', headers: { 'mcp-session-id': 'x' } },
    status: 404,
  },
  {
    what: 'a POST that accepts neither JSON nor events',
    sent: { method: 'POST', headers: { accept: 'text/plain', 'content-type': 'application/json' }, body: '{}' },
    status: 406,
  },
  {
    what: 'a POST in an unknown session',
    sent: {
      method: 'POST',
      headers: { 'content-type': 'application/json', 'mcp-session-id': 'nobody' },
      body: rpc(1, 'ping'),
    },
    status: 404,
  },
  {
    what: 'a body beyond the limit',
    sent: { method: 'POST', headers: { 'content-type': 'application/json' }, body: ' '.repeat(10_001) },
    status: 413,
  },
];

for (const { what, sent, status, allow } of refusals) {
  test(`${what} is refused with ${status}`, OPTIONS, async () => {
    await using to = await endpoint();
    const got = await send(to.url, sent);
    assert.deepEqual([got.status, got.headers.allow], [status, allow]);
  });
}

// SEC-44
test('refused batches, their invalid messages and a second initialize are recorded', OPTIONS, async () => {
  await using to = await endpoint();
  const id = await initialize(to.url);
  await post(to.url, rpc(1, 'initialize', { protocolVersion: '2025-11-25' }), id);
  await post(to.url, `[${rpc(2, 'ping')}]`, id);
  const { headers } = await post(
    to.url,
    rpc(3, 'initialize', { protocolVersion: '2025-03-26', capabilities: {}, clientInfo: { name: 'a', version: '1' } }),
  );
  await post(to.url, `[${rpc(4, 'ping')},1]`, String(headers['mcp-session-id']));
  assert.deepEqual(
    to.refused,
    Array.from({ length: 3 }, () => 'invalid-request'),
  );
});

test('an endpoint that does not exist is refused with 404', OPTIONS, async () => {
  await using to = await endpoint();
  assert.equal((await post(`${to.url}/nowhere`, rpc(1, 'ping'))).status, 404);
});

test('a browser gets a page with the URL of the endpoint', OPTIONS, async () => {
  await using to = await endpoint();
  const { status, text } = await send(to.url, { headers: { accept: 'text/html,*/*' } });
  assert.equal(status, 405);
  assert.match(text, /http:\/\/gateway\.example\/mcp/);
});

test('a session is found only by its principal, and only at its endpoint', OPTIONS, async () => {
  await using to = await endpoint();
  const id = await initialize(to.url);
  const statuses = [
    await post(to.url, rpc(1, 'ping'), id),
    await post(to.url, rpc(1, 'ping'), id, { 'x-user': 'bob' }),
    await post(`${to.url}/up`, rpc(1, 'ping'), id),
  ].map(({ status }) => status);
  assert.deepEqual(statuses, [200, 404, 404]);
});

test('DELETE ends a session and its streams', OPTIONS, async () => {
  await using to = await endpoint();
  const id = await initialize(to.url);
  const stream = await getEvents(to.url, id);
  assert.equal((await send(to.url, { method: 'DELETE', headers: { 'mcp-session-id': id } })).status, 204);
  await stream.ended();
  assert.equal((await post(to.url, rpc(1, 'ping'), id)).status, 404);
});

test('a second GET stream of a session replaces the first', OPTIONS, async () => {
  await using to = await endpoint();
  const id = await initialize(to.url);
  const first = await getEvents(to.url, id);
  const second = await getEvents(to.url, id);
  await first.ended();
  assert.deepEqual([second.status, second.isEnded], [200, false]);
  second.close();
});

test('a stream whose events have all arrived cannot be resumed', OPTIONS, async () => {
  await using to = await endpoint();
  const id = await initialize(to.url);
  const calling = post(to.url, call(1, 'up__hold'), id, { accept: 'text/event-stream' });
  await to.holding(1);
  to.release();
  const lastId = /^id: (.*)$/gm;
  const ids = [...(await calling).text.matchAll(lastId)].map(([, one]) => one);
  const got = await getEvents(to.url, id, { 'last-event-id': ids.at(-1) });
  assert.equal(got.status, 405);
  const resumed = await getEvents(to.url, id, { 'last-event-id': ids[0] });
  assert.partialDeepStrictEqual((await resumed.ended()).messages, ids.length > 1 ? [{ id: 1 }] : []);
});

test('a modern request needs no session', OPTIONS, async () => {
  await using to = await endpoint();
  const got = await modernPost(to.url, 'tools/call', { name: 'up__echo', arguments: {} });
  assert.partialDeepStrictEqual(messagesOf(got), [{ id: 1, result: { resultType: 'complete' } }]);
});

test('the listen streams of one principal are bounded; a closed one makes room', OPTIONS, async () => {
  await using to = await endpoint();
  const bob = { headers: { 'x-user': 'bob' } };
  const first = await modernEvents(to.url, 'subscriptions/listen', LISTEN);
  const refused = await modernPost(to.url, 'subscriptions/listen', LISTEN);
  assert.partialDeepStrictEqual(messagesOf(refused), [{ error: { data: { code: 'overloaded' } } }]);
  const other = await modernEvents(to.url, 'subscriptions/listen', LISTEN, bob);
  assert.deepEqual([first.status, refused.status, other.status], [200, 503, 200]);
  first.close();
  await waitUntil(async () => {
    const next = await modernEvents(to.url, 'subscriptions/listen', LISTEN);
    next.close();
    return next.status === 200;
  });
  other.close();
});

test('while draining, streams end and answers arrive, and new requests are refused', OPTIONS, async () => {
  await using to = await endpoint();
  const id = await initialize(to.url);
  const stream = await getEvents(to.url, id);
  const listen = await modernEvents(to.url, 'subscriptions/listen', LISTEN);
  const calling = post(to.url, call(1, 'up__hold'), id);
  await to.holding(1);
  to.mcp.drain();
  await Promise.all([stream.ended(), listen.ended()]);
  const refused = [
    await post(to.url, call(2, 'up__echo'), id),
    await modernPost(to.url, 'tools/list'),
    await send(to.url, { headers: { accept: 'text/event-stream', 'mcp-session-id': id } }),
    await post(to.url, rpc(0, 'initialize', { protocolVersion: '2025-11-25', capabilities: {} })),
  ];
  assert.deepEqual(
    refused.map(({ status }) => status),
    [503, 503, 503, 503],
  );
  to.release();
  assert.partialDeepStrictEqual(messagesOf(await calling).at(-1), { id: 1, result: { content: [{ text: 'fine' }] } });
});
