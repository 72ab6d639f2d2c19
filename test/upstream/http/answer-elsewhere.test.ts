import assert from 'node:assert/strict';
import type { ServerResponse } from 'node:http';
import { test } from 'node:test';
import {
  connect,
  connectCaller,
  event,
  greeted,
  result,
  serve,
  stream,
  type Upstream,
} from '../../fixtures/servers/http-harness.ts';
import { PATIENCE_MS } from '../../support/patience.ts';
import { waitUntil } from '../../support/wait-until.ts';

const LIMIT = { timeout: 120_000 };
const CALL = { timeoutMs: PATIENCE_MS, maxMs: PATIENCE_MS, progress: false, context: undefined };

const bodies = [
  { what: 'no body', type: undefined, body: '' },
  { what: 'an empty object', type: 'application/json; charset=utf-8', body: '{}' },
  { what: 'an empty JSON body', type: 'application/json', body: '' },
];

/** Serves a session with a GET stream, and passes each later request on to `accept`. */
function serveStreams(
  accept: (id: unknown, response: ServerResponse, events: ServerResponse) => void,
): Promise<Upstream> {
  let events: ServerResponse | undefined;
  return serve((request, response) => {
    if (request.method === 'GET') {
      events = response;
      stream(response, ': hi\n\n');
    } else if (request.rpc !== 'tools/call') {
      greeted(request, response);
    } else if (events !== undefined) {
      accept(request.id, response, events);
    }
  });
}

// As the Elixir servers of hermes_mcp 0.x.
for (const { what, type, body } of bodies) {
  test(`a request accepted with 202 and ${what} is answered on the GET stream`, LIMIT, async () => {
    const accept = (response: ServerResponse) =>
      response.writeHead(202, type === undefined ? {} : { 'content-type': type }).end(body);
    await using server = await serveStreams((id, response, events) => {
      if (id === 2) accept(response).once('close', () => events.write(event(result(id))));
      else events.write(event(result(id)), () => accept(response));
    });
    await using peer = await connect(server.url);
    await peer.greet('2025-06-18');
    await server.received.find(({ method }) => method === 'GET');
    for (const id of [2, 3]) {
      peer.request(id, 'tools/call');
      assert.deepEqual(await peer.answer(id), { kind: 'result', id: String(id), result: '{"ok":true}' });
    }
    assert.deepEqual(
      peer.events.items.filter(({ kind }) => kind !== 'message'),
      [],
    );
  });
}

test('an answer beyond the limit on the GET stream fails its request, and no other', LIMIT, async () => {
  await using server = await serveStreams((id, response, events) => {
    const text = 'x'.repeat(id === 3 ? 1 : 500_000);
    response.writeHead(202).end();
    response.once('close', () => events.write(event(`{"jsonrpc":"2.0","id":${String(id)},"result":{"a":"${text}"}}`)));
  });
  await using peer = await connect(server.url, { messageBytes: 100_000 });
  await peer.greet('2025-06-18');
  await server.received.find(({ method }) => method === 'GET');
  for (const id of [2, 3]) peer.request(id, 'tools/call');
  assert.equal((await peer.failure(2)).code, 'too-large');
  await peer.answer(3);
});

test('a request of the upstream beyond the limit on the GET stream gets an error', LIMIT, async () => {
  const large = `{"method":"roots/list","params":{"a":"${'x'.repeat(500_000)}"},"jsonrpc":"2.0","id":"q"}`;
  await using server = await serve((request, response) => {
    if (request.method === 'GET') stream(response, event(large));
    else greeted(request, response);
  });
  await using caller = await connectCaller(server.url, { messageBytes: 100_000 });
  caller.connection.setLegacy();
  await caller.connection.call('initialize', undefined, CALL).answer;
  caller.connection.notify('notifications/initialized');
  const { body } = await server.received.find(({ method, rpc }) => method === 'POST' && rpc === undefined);
  const { id, error } = JSON.parse(body);
  assert.deepEqual([id, error.code], ['q', -32600]);
});

test('without a GET stream, a request accepted with 202 fails at once', LIMIT, async () => {
  await using server = await serve((request, response) => {
    if (request.method === 'GET') response.writeHead(405).end();
    else if (!greeted(request, response)) response.writeHead(202).end();
  });
  await using peer = await connect(server.url);
  await peer.greet('2025-06-18');
  await server.received.find(({ method }) => method === 'GET');
  peer.request(2, 'tools/call');
  assert.match((await peer.failure(2)).message, /answered HTTP 202 without an answer/);
});

test('a malformed answer on the GET stream fails the request that it names', LIMIT, async () => {
  await using server = await serveStreams((id, response, events) => {
    const answer = id === 2 ? '{"jsonrpc":"2.0","id":2,"result":1}' : result(id);
    response.writeHead(202).end(() => events.write(event(answer)));
  });
  await using peer = await connect(server.url);
  await peer.greet('2025-06-18');
  await server.received.find(({ method }) => method === 'GET');
  peer.request(2, 'tools/call');
  peer.request(3, 'tools/call');
  await peer.answer(3);
  assert.equal((await peer.failure(2)).code, 'upstream-protocol');
});

test('a request accepted with 202 fails when the GET stream that it needs is refused', LIMIT, async () => {
  let listening: ServerResponse | undefined;
  await using server = await serve((request, response) => {
    if (request.method === 'GET') listening = response;
    else if (!greeted(request, response)) response.writeHead(202).end(() => listening?.writeHead(405).end());
  });
  await using peer = await connect(server.url);
  await peer.greet('2025-06-18');
  peer.request(2, 'tools/call');
  const error = await peer.failure(2);
  assert.deepEqual([error.code, error.row.executed], ['upstream-lost', 'unknown']);
});

test('a request accepted with 202 fails when its session is left to another process', LIMIT, async () => {
  await using server = await serveStreams((_id, response) => response.writeHead(202, { 'set-cookie': 'a=1' }).end());
  await using peer = await connect(server.url);
  await peer.greet('2025-06-18');
  await server.received.find(({ method }) => method === 'GET');
  peer.request(2, 'tools/call');
  // Shows that the response has arrived.
  await waitUntil(() => peer.transport.session?.cookies.length === 1);
  peer.transport.setLeft?.(true);
  const error = await peer.failure(2);
  assert.deepEqual([error.code, error.row.executed], ['upstream-lost', 'unknown']);
});
