import assert from 'node:assert/strict';
import type { ServerResponse } from 'node:http';
import { test } from 'node:test';
import { connect, greeted, json, type Received, result, serve, stream } from '../../fixtures/servers/http-harness.ts';
import { errorText } from '../../support/http-upstream.ts';

const LIMIT = { timeout: 120_000 };

type Answer = (request: Received, response: ServerResponse) => void;

/** Answers with a status, and with a JSON-RPC error or a text as the body. @param id of the error; by default that of the request. */
function refuse(status: number, body: { code: number; message: string } | string = '', id?: null): Answer {
  return (request, response) => {
    const type = typeof body === 'string' ? 'text/plain' : 'application/json';
    const text = typeof body === 'string' ? body : errorText(id === undefined ? request.id : id, body);
    response.writeHead(status, { 'content-type': type }).end(text);
  };
}

/** Starts a server in whose session the GET stream stays open. */
async function serveSession(answer: Answer) {
  return await serve((request, response) => {
    if (request.method === 'GET') stream(response);
    else if (!greeted(request, response)) answer(request, response);
  });
}

const UNKNOWN = { code: -32_001, message: 'Session not found' };

const LOST: readonly { what: string; answer: Answer; method?: string }[] = [
  { what: '404 without a text', answer: refuse(404), method: 'prompts/get' },
  { what: '410 without a text', answer: refuse(410) },
  { what: '403 with an error', answer: refuse(403, UNKNOWN, null) },
  { what: '409 with an error', answer: refuse(409, UNKNOWN, null) },
  { what: '410 with an error with our id', answer: refuse(410, UNKNOWN) },
  { what: '400 with an error with our id', answer: refuse(400, UNKNOWN) },
  { what: '400 for a revision', answer: refuse(400, { code: -32_022, message: 'Unsupported protocol version' }) },
  { what: '400 for a missing header', answer: refuse(400, { code: -32_020, message: 'Mcp-Method is missing' }) },
];

for (const { what, answer, method = 'tools/call' } of LOST) {
  // T-036
  test(`HTTP ${what} to all of a session is a lost session`, LIMIT, async () => {
    await using server = await serveSession(answer);
    await using peer = await connect(server.url);
    await peer.greet('2025-11-25');
    peer.request(2, method);
    const { code, detail, row } = await peer.failure(2);
    assert.deepEqual([code, detail.executed ?? row.executed], ['upstream-session-lost', 'no']);
    assert.equal((await peer.closed()).code, 'upstream-session-lost');
    assert.equal(peer.events.items.filter(({ kind }) => kind === 'failed').length, 1);
  });
}

for (const { what, answer } of [
  { what: '500 with an error', answer: refuse(500, UNKNOWN, null) },
  { what: '503 with an error with our id', answer: refuse(503, UNKNOWN) },
  { what: '200 with an error', answer: refuse(200, UNKNOWN) },
  { what: '200 with an error without an id', answer: refuse(200, UNKNOWN, null) },
]) {
  // T-036
  test(`HTTP ${what} to all of a session ends it, and the call may have run`, LIMIT, async () => {
    await using server = await serveSession(answer);
    await using peer = await connect(server.url);
    await peer.greet('2025-11-25');
    peer.request(2);
    const { code, executed } = await peer.closed();
    assert.deepEqual([code, executed], ['upstream-session-lost', 'unknown']);
    assert.ok(peer.events.items.every(({ kind }) => kind !== 'failed'));
  });
}

const CRASHED = { code: -32_000, message: 'Browser session crashed' };
const METHOD = { code: -32_601, message: 'Method not found: session/x' };

const KEPT: readonly { what: string; answer: Answer; method?: string; pings: number }[] = [
  { what: '404 without a text', answer: refuse(404), method: 'logging/setLevel', pings: 1 },
  { what: '404 with a text', answer: refuse(404, 'Not Found'), method: 'resources/read', pings: 1 },
  { what: '404 and -32601 without an id', answer: refuse(404, METHOD, null), pings: 0 },
  { what: '404 and -32601', answer: refuse(404, METHOD), pings: 0 },
  { what: '404 with an error about a session', answer: refuse(404, UNKNOWN), pings: 1 },
  { what: '400 with an error about a session', answer: refuse(400, UNKNOWN), pings: 1 },
  { what: '400 with an error of a tool', answer: refuse(400, CRASHED), pings: 0 },
  { what: '403 with other words about a session', answer: refuse(403, 'Not in this session'), pings: 0 },
  { what: '403 with an error about a session', answer: refuse(403, UNKNOWN), pings: 1 },
  { what: '403 with a text about a session', answer: refuse(403, 'session token required'), pings: 1 },
  { what: '409 with a text about a session', answer: refuse(409, 'Invalid session state'), pings: 1 },
  { what: '410 without a text', answer: refuse(410), pings: 1 },
  { what: '500 with an error about a session', answer: refuse(500, UNKNOWN), pings: 1 },
  { what: '200 with an error about a session', answer: refuse(200, UNKNOWN), pings: 1 },
];

for (const { what, answer, method = 'tools/call', pings } of KEPT) {
  test(`HTTP ${what} leaves a session open that answers a ping`, LIMIT, async () => {
    await using server = await serveSession((request, response) => {
      if (request.rpc === 'ping') json(response, result(request.id));
      else if (Number(request.id) < 10) answer(request, response);
      else json(response, result(request.id));
    });
    await using peer = await connect(server.url);
    await peer.greet('2025-11-25');
    for (const id of [2, 3]) peer.request(id, method);
    const ended = (id: number) =>
      peer.events.find((item) =>
        item.kind === 'message'
          ? 'id' in item.message && item.message.id === String(id)
          : item.kind === 'failed' && item.id === id,
      );
    await Promise.all([2, 3].map(ended));
    peer.request(4, method);
    await ended(4);
    peer.request(10);
    await peer.answer(10);
    // Asked once for all of them, and nothing of that is passed on.
    assert.equal(server.received.items.filter(({ rpc }) => rpc === 'ping').length, pings);
    assert.equal(peer.events.items.length, 1 + 3 + 1);
  });
}

test('a session that is busy for all requests but one stays open', LIMIT, async () => {
  await using server = await serveSession((request, response) => {
    if (request.rpc === 'slow') return;
    refuse(409, 'session is busy')(request, response);
  });
  await using peer = await connect(server.url);
  await peer.greet('2025-11-25');
  peer.request(2, 'slow');
  await server.received.find(({ rpc }) => rpc === 'slow');
  peer.request(3);
  const { code, detail, row } = await peer.failure(3);
  assert.deepEqual([code, detail.executed ?? row.executed], ['upstream-unavailable', 'unknown']);
  assert.equal(peer.events.items.filter(({ kind }) => kind !== 'message').length, 1);
});

test('an error of a tool is passed on also if the session is lost since', LIMIT, async () => {
  await using server = await serveSession((request, response) => {
    refuse(
      request.rpc === 'tools/call' ? 400 : 404,
      CRASHED,
      request.rpc === 'tools/call' ? undefined : null,
    )(request, response);
  });
  await using peer = await connect(server.url);
  await peer.greet('2025-11-25');
  peer.request(2);
  assert.equal((await peer.answer(2)).kind, 'error');
});

test('a notification that is refused while the transport closes leaves no timer', LIMIT, async () => {
  const closing = Promise.withResolvers<void>();
  await using server = await serveSession((request, response) => {
    void closing.promise.then(() => refuse(404)(request, response));
  });
  await using peer = await connect(server.url);
  await peer.greet('2025-11-25');
  peer.transport.send({ text: '{"jsonrpc":"2.0","method":"x"}', method: 'x' });
  await server.received.find(({ rpc }) => rpc === 'x');
  const timers = () => process.getActiveResourcesInfo().filter((kind) => kind === 'Timeout').length;
  const before = timers();
  const closed = peer.transport.close();
  closing.resolve();
  await closed;
  assert.equal(timers(), before);
});

test('a request refused with 404 has not run, also if the GET stream shows the loss', LIMIT, async () => {
  const streams: ServerResponse[] = [];
  await using server = await serve((request, response) => {
    if (request.method === 'GET' && streams.length > 0) response.writeHead(404).end();
    else if (request.method === 'GET') {
      stream(response, 'retry: 1\ndata: \n\n');
      streams.push(response);
    } else if (!greeted(request, response) && request.rpc !== 'ping') refuse(404)(request, response);
  });
  await using peer = await connect(server.url);
  await peer.greet('2025-11-25');
  peer.request(2, 'prompts/get');
  await server.received.find(({ rpc }) => rpc === 'ping');
  streams[0]?.end();
  assert.equal((await peer.closed()).code, 'upstream-session-lost');
  assert.ok(peer.events.items.some((item) => item.kind === 'failed' && item.id === 2 && item.error.executed === 'no'));
});

test('a ping that the server does not know leaves the session open', LIMIT, async () => {
  await using server = await serveSession((request, response) => {
    if (request.rpc === 'tools/call') json(response, result(request.id));
    else refuse(404, METHOD, request.rpc === 'ping' ? null : undefined)(request, response);
  });
  await using peer = await connect(server.url);
  await peer.greet('2025-11-25');
  peer.request(2, 'completion/complete');
  await peer.answer(2);
  peer.request(3);
  await peer.answer(3);
});

test('a request that is forgotten while the session is asked ends without a word', LIMIT, async () => {
  const answered = Promise.withResolvers<void>();
  await using server = await serveSession((request, response) => {
    if (request.rpc === 'ping') void answered.promise.then(() => json(response, result(request.id)));
    else if (request.id === 3) json(response, result(3));
    else refuse(404)(request, response);
  });
  await using peer = await connect(server.url);
  await peer.greet('2025-11-25');
  peer.request(2, 'prompts/get');
  await server.received.find(({ rpc }) => rpc === 'ping');
  peer.transport.forget(2);
  answered.resolve();
  peer.request(3);
  await peer.answer(3);
  peer.request(4, 'prompts/get');
  assert.match((await peer.failure(4)).message, /HTTP 404/);
  assert.ok(peer.events.items.every((item) => item.kind !== 'failed' || item.id === 4));
});

test('closing while the session is asked leaves no request and no timer', LIMIT, async () => {
  await using server = await serveSession((request, response) => {
    if (request.rpc !== 'ping') refuse(404)(request, response);
  });
  await using peer = await connect(server.url);
  await peer.greet('2025-11-25');
  peer.request(2, 'prompts/get');
  const ping = await server.received.find(({ rpc }) => rpc === 'ping');
  await peer.transport.close();
  await ping.closed;
  assert.equal((await peer.closed()).code, 'upstream-lost');
});
