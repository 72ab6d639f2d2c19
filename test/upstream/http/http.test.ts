import assert from 'node:assert/strict';
import { test } from 'node:test';
import { setImmediate as nextTurn } from 'node:timers/promises';

import { LIMITS } from '../../../src/limits.ts';
import { WirePool } from '../../../src/http1/pool.ts';
import { AuthorizedWire } from '../../../src/upstream/http/authorized-wire.ts';
import { deleteSession } from '../../../src/upstream/http/delete-session.ts';
import { Cookies } from '../../../src/upstream/http/cookies.ts';
import { HttpSession } from '../../../src/upstream/http/http-session.ts';
import {
  connect,
  event,
  greeted,
  json,
  progress,
  result,
  serve,
  serveRaw,
  stream,
} from '../../fixtures/servers/http-harness.ts';
import { errorText } from '../../support/http-upstream.ts';
import { PATIENCE_MS } from '../../support/patience.ts';
import { waitUntil } from '../../support/wait-until.ts';

const LIMIT = { timeout: 120_000 };

test('starting a transport sends nothing', LIMIT, async () => {
  await using server = await serve((_request, response) => response.writeHead(500).end());
  await using peer = await connect(server.url);
  await peer.transport.close();
  assert.deepEqual(server.received.items, []);
  assert.equal((await peer.closed()).code, 'upstream-lost');
});

test('a JSON answer is delivered with the id of its request', LIMIT, async () => {
  await using server = await serve((request, response) => json(response, result(request.id)));
  await using peer = await connect(server.url);
  peer.request(7);
  const answer = await peer.answer(7);
  assert.deepEqual(answer, { kind: 'result', id: '7', result: '{"ok":true}' });
  assert.deepEqual(
    peer.events.items.map((item) => item.kind === 'message' && item.about),
    [7],
  );
});

test('a JSON answer in chunks that split a character is read correctly', LIMIT, async () => {
  const text = Buffer.from('{"jsonrpc":"2.0","id":7,"result":{"text":"ä€😀"}}');
  await using server = await serveRaw((socket, soFar) => {
    if (!soFar.endsWith('}')) return;
    socket.write(
      `HTTP/1.1 200 OK\r\ncontent-type: application/json; charset=utf-8\r\ncontent-length: ${text.length}\r\n\r\n`,
    );
    const write = (at: number): void => {
      socket.write(text.subarray(at, at + 1));
      if (at + 1 < text.length) setImmediate(() => write(at + 1));
    };
    write(0);
  });
  await using peer = await connect(server.url);
  peer.request(7);
  assert.deepEqual(await peer.answer(7), { kind: 'result', id: '7', result: '{"text":"ä€😀"}' });
});

test('messages on the event stream of a request are delivered in order', LIMIT, async () => {
  await using server = await serve((request, response) => {
    stream(response, event(progress(1)), event(progress(2)) + event(progress(3)), event(result(request.id)));
    response.end();
  });
  await using peer = await connect(server.url);
  peer.request(7);
  await peer.answer(7);
  assert.deepEqual(
    peer.events.items.map((item) => item.kind === 'message' && [item.message.kind, item.about]),
    [
      ['notification', 7],
      ['notification', 7],
      ['notification', 7],
      ['result', 7],
    ],
  );
});

test('an event stream with CRLF and split characters is read', LIMIT, async () => {
  const text = Buffer.from('event: message\r\ndata: {"jsonrpc":"2.0","id":7,"result":{"text":"ä€😀"}}\r\n\r\n');
  await using server = await serve((_request, response) => {
    stream(response);
    const write = (at: number): void => {
      response.write(text.subarray(at, at + 1));
      if (at + 1 < text.length) setImmediate(() => write(at + 1));
      else response.end();
    };
    write(0);
  });
  await using peer = await connect(server.url);
  peer.request(7);
  assert.deepEqual(await peer.answer(7), { kind: 'result', id: '7', result: '{"text":"ä€😀"}' });
});

test('a batch in an answer is read as its messages', LIMIT, async () => {
  await using server = await serve((request, response) => json(response, `[${progress(1)},${result(request.id)}]`));
  await using peer = await connect(server.url);
  peer.request(7);
  await peer.answer(7);
  assert.equal(peer.events.items.length, 2);
});

test('a stream that stays open after the answer is closed after a short time', LIMIT, async () => {
  await using server = await serve((request, response) =>
    stream(response, event(result(request.id)), event(progress(9))),
  );
  await using peer = await connect(server.url);
  peer.request(7);
  const late = await peer.events.find((item) => item.kind === 'message' && item.message.kind === 'notification');
  assert.equal(late.kind === 'message' && late.about, undefined);
  const { closed } = await server.received.at(0);
  await closed;
});

// T-038
test('messages have accept, the session id and, after initialize, the revision', LIMIT, async () => {
  await using server = await serve((request, response) => {
    if (!greeted(request, response)) json(response, result(request.id));
  });
  await using peer = await connect(server.url);
  await peer.greet('2025-06-18');
  peer.request(2, 'tools/list');
  await peer.answer(2);
  await server.received.find(({ method }) => method === 'GET');

  for (const { method, rpc, headers } of server.received.items) {
    const isFirst = rpc === 'initialize';
    assert.equal(headers['mcp-session-id'], isFirst ? undefined : 's-1', rpc ?? method);
    assert.equal(headers['mcp-protocol-version'], isFirst ? undefined : '2025-06-18', rpc ?? method);
    assert.equal(headers['accept-encoding'], 'identity');
    assert.equal(headers['user-agent'], 'linkspan/test');
    assert.equal(headers.accept, method === 'POST' ? 'application/json, text/event-stream' : 'text/event-stream');
    if (method === 'POST') assert.equal(headers['content-type'], 'application/json');
  }
});

// T-038
test('a revision before 2025-06-18 is not sent in a header', LIMIT, async () => {
  await using server = await serve((request, response) => {
    if (!greeted(request, response)) json(response, result(request.id));
  });
  await using peer = await connect(server.url);
  await peer.greet('2025-03-26');
  peer.request(2);
  await peer.answer(2);
  assert.ok(server.received.items.every(({ headers }) => headers['mcp-protocol-version'] === undefined));
});

test('headers from the config are sent, except those that the protocol decides', LIMIT, async () => {
  await using server = await serve((request, response) => json(response, result(request.id)));
  const headers = {
    Authorization: 'Bearer t',
    'X-Team': 'blue',
    'User-Agent': 'ours/1',
    Accept: 'text/html',
    'Mcp-Session-Id': 'stolen',
    'MCP-Protocol-Version': '1',
    'Last-Event-ID': 'x',
    'Transfer-Encoding': 'chunked',
  };
  await using peer = await connect(server.url, { headers });
  peer.request(1, 'initialize');
  await peer.answer(1);
  const { headers: seen } = await server.received.at(0);
  assert.equal(seen.authorization, 'Bearer t');
  assert.equal(seen['x-team'], 'blue');
  assert.equal(seen['user-agent'], 'ours/1');
  assert.equal(seen.accept, 'application/json, text/event-stream');
  assert.equal(seen['mcp-session-id'], undefined);
  assert.equal(seen['mcp-protocol-version'], undefined);
  assert.equal(seen['last-event-id'], undefined);
});

test('no message overtakes notifications/initialized', LIMIT, async () => {
  const accept = Promise.withResolvers<void>();
  await using server = await serve((request, response) => {
    if (request.rpc === 'notifications/initialized') {
      void accept.promise.then(() => response.writeHead(202).end());
    } else if (!greeted(request, response)) {
      json(response, result(request.id));
    }
  });
  await using peer = await connect(server.url);
  await peer.greet('2025-11-25');
  peer.request(2, 'tools/list');
  peer.request(3, 'tools/list');
  peer.transport.forget(3);
  await server.received.find(({ rpc }) => rpc === 'notifications/initialized');
  accept.resolve();
  await peer.answer(2);
  assert.deepEqual(
    server.received.items.filter(({ method }) => method === 'POST').map(({ rpc }) => rpc),
    ['initialize', 'notifications/initialized', 'tools/list'],
  );
});

// T-036
test('a message that waited for a handshake whose session is lost was not sent', LIMIT, async () => {
  const lose = Promise.withResolvers<void>();
  await using server = await serve((request, response) => {
    if (request.rpc !== 'notifications/initialized') return void greeted(request, response);
    void lose.promise.then(() => response.writeHead(404).end());
  });
  await using peer = await connect(server.url);
  await peer.greet('2025-11-25');
  peer.request(2);
  await server.received.find(({ rpc }) => rpc === 'notifications/initialized');
  lose.resolve();
  const { code, executed } = await peer.failure(2);
  assert.deepEqual([code, executed], ['upstream-session-lost', 'no']);
  assert.equal((await peer.closed()).code, 'upstream-session-lost');
});

for (const type of ['text/plain', 'text/event-stream']) {
  test(`after a notification was accepted, an endless body of ${type} keeps no socket`, LIMIT, async () => {
    let [begun, open] = [0, 0];
    await using server = await serve((request, response) => {
      if (request.rpc !== 'notifications/cancelled') return void greeted(request, response);
      response.writeHead(202, { 'content-type': type });
      const dripping = setInterval(() => response.write(':'), 50);
      begun++;
      open++;
      response.once('close', () => {
        clearInterval(dripping);
        open--;
      });
    });
    await using peer = await connect(server.url);
    await peer.greet('2025-11-25');
    const method = 'notifications/cancelled';
    for (const id of [2, 3, 4]) {
      peer.transport.send({ text: JSON.stringify({ jsonrpc: '2.0', method, params: { requestId: id } }), method });
    }
    await waitUntil(() => begun === 3 && open === 0);
  });
}

test('a session id that is not visible ASCII is refused', LIMIT, async () => {
  await using server = await serve((request, response) => {
    json(response, result(request.id), { 'Mcp-Session-Id': 'with space' });
  });
  await using peer = await connect(server.url);
  peer.request(1, 'initialize');
  assert.equal((await peer.failure(1)).code, 'upstream-protocol');
});

test('an empty session id is none', LIMIT, async () => {
  await using server = await serve((request, response) => {
    json(response, result(request.id), { 'Mcp-Session-Id': '' });
  });
  await using peer = await connect(server.url);
  peer.request(1, 'initialize');
  await peer.answer(1);
  peer.request(2);
  await peer.answer(2);
  assert.equal(server.received.items[1]?.headers['mcp-session-id'], undefined);
});

test('limit upstreamSessionIdChars: a session id that is too long is refused as such', LIMIT, async () => {
  await using server = await serve((request, response) => {
    json(response, result(request.id), { 'Mcp-Session-Id': 'x'.repeat(LIMITS.upstreamSessionIdChars + 1) });
  });
  await using peer = await connect(server.url);
  peer.request(1, 'initialize');
  assert.match((await peer.failure(1)).message, /session id .* 4096 characters/);
});

test('a session id that a proxy repeats is used once', LIMIT, async () => {
  await using server = await serve((request, response) => {
    response.setHeader('Mcp-Session-Id', ['s-1', 's-1']);
    json(response, result(request.id));
  });
  await using peer = await connect(server.url);
  peer.request(1, 'initialize');
  await peer.answer(1);
  peer.request(2);
  await peer.answer(2);
  assert.equal(server.received.items[1]?.headers['mcp-session-id'], 's-1');
});

const readable: readonly { what: string; headers: Readonly<Record<string, string | string[]>> }[] = [
  { what: 'a media type that a proxy repeats', headers: { 'content-type': ['application/json', 'application/json'] } },
  { what: 'media types that a proxy joins', headers: { 'content-type': 'application/json, application/json' } },
  { what: 'a coding in capitals that is none', headers: { 'content-encoding': 'Identity' } },
  { what: 'an empty coding', headers: { 'content-encoding': '' } },
  { what: 'the name of a charset in place of a coding', headers: { 'content-encoding': 'UTF-8' } },
];

for (const { what, headers } of readable) {
  test(`an answer with ${what} is read`, LIMIT, async () => {
    await using server = await serve((request, response) => {
      response.writeHead(200, { 'content-type': 'application/json', ...headers }).end(result(request.id));
    });
    await using peer = await connect(server.url);
    peer.request(1);
    await peer.answer(1);
  });
}

// T-036 REL-16
test('a lost session fails the refused call as not run and ends the transport', LIMIT, async () => {
  let sessions = 0;
  let isLost = false;
  await using server = await serve((request, response) => {
    if (request.rpc === 'initialize') greeted(request, response, `s-${++sessions}`);
    else if (request.rpc === 'slow') stream(response);
    else if (request.headers['mcp-session-id'] === 's-1' && isLost) response.writeHead(404).end();
    else if (!greeted(request, response)) json(response, result(request.id));
  });
  await using peer = await connect(server.url);
  await peer.greet('2025-11-25');
  peer.request(2, 'slow');
  const slow = await server.received.find(({ rpc }) => rpc === 'slow');
  isLost = true;
  peer.request(3);

  const refused = await peer.failure(3);
  assert.equal(refused.code, 'upstream-session-lost');
  assert.equal(refused.detail.executed ?? refused.row.executed, 'no');
  const closed = await peer.closed();
  assert.equal(closed.code, 'upstream-session-lost');
  // Request 2 may have run.
  assert.equal(closed.detail.executed, 'unknown');
  await slow.closed;

  await peer.transport.close();
  assert.equal(peer.events.items.filter(({ kind }) => kind === 'closed').length, 1);
  assert.ok(server.received.items.every(({ method }) => method !== 'DELETE'));

  await using next = await connect(server.url);
  await next.greet();
  const again = server.received.items.filter(({ rpc }) => rpc === 'initialize')[1];
  assert.equal(again?.headers['mcp-session-id'], undefined);
  next.request(2);
  await next.answer(2);
});

// T-036
test('a 400 about an unknown session counts as a lost session', LIMIT, async () => {
  await using server = await serve((request, response) => {
    if (greeted(request, response)) return;
    const text =
      '{"jsonrpc":"2.0","error":{"code":-32000,"message":"Bad Request: No valid session ID provided"},"id":null}';
    response.writeHead(400, { 'content-type': 'application/json' }).end(text);
  });
  await using peer = await connect(server.url);
  await peer.greet();
  peer.request(2);
  assert.equal((await peer.failure(2)).code, 'upstream-session-lost');
  assert.equal((await peer.closed()).code, 'upstream-session-lost');
});

const JSON_TYPE = 'application/json';
const FOREIGN_ID =
  '{"jsonrpc":"2.0","id":"server-error","error":{"code":-32600,"message":"Bad Request: No valid session ID provided"}}';

const NOT_FOUND = '{"jsonrpc":"2.0","error":{"code":-32001,"message":"Session not found"}';

const REFUSALS = [
  { what: 'no id', status: 404, type: JSON_TYPE, body: `${NOT_FOUND},"id":null}` },
  { what: 'an empty id', status: 404, type: JSON_TYPE, body: `${NOT_FOUND},"id":""}` },
  { what: 'our id', status: 404, type: JSON_TYPE, body: `${NOT_FOUND},"id":2}` },
  { what: 'an id of its own', status: 404, type: JSON_TYPE, body: FOREIGN_ID },
  { what: 'JSON that is no message', status: 404, type: JSON_TYPE, body: '{"error":"gone"}' },
  { what: 'plain text', status: 404, type: 'text/plain; charset=utf-8', body: 'session not found\n' },
  { what: 'text without a type', status: 400, type: undefined, body: 'Bad Request: No valid session ID provided' },
  { what: 'plain text', status: 400, type: 'text/plain; charset=utf-8', body: 'Invalid session ID\n' },
  { what: 'an id of its own', status: 400, type: JSON_TYPE, body: FOREIGN_ID },
  { what: 'JSON that is no message', status: 400, type: JSON_TYPE, body: '{"error":"Session not found"}' },
  { what: 'the words of rust-sdk', status: 401, type: undefined, body: 'Unauthorized: Session not found' },
  { what: 'text', status: 422, type: 'text/plain', body: 'Unexpected message, session is not initialized' },
];

for (const { what, status, type, body } of REFUSALS) {
  // T-036
  test(`HTTP ${status} with ${what} about an unknown session is a lost session`, LIMIT, async () => {
    await using server = await serve((request, response) => {
      if (!greeted(request, response))
        response.writeHead(status, type === undefined ? {} : { 'content-type': type }).end(body);
    });
    await using peer = await connect(server.url);
    await peer.greet();
    peer.request(2);
    const { code, detail, row } = await peer.failure(2);
    assert.deepEqual([code, detail.executed ?? row.executed], ['upstream-session-lost', 'no']);
    assert.equal((await peer.closed()).code, 'upstream-session-lost');
  });
}

const OTHER_REFUSALS = [
  { what: 'text about a session of the tool', status: 400, type: 'text/plain', body: 'Cannot create a chat session' },
  { what: 'text after which calls may have run', status: 500, type: 'text/plain', body: 'Session not found' },
  { what: 'a page', status: 400, type: 'text/html', body: 'Invalid session ID' },
  { what: 'a JSON-RPC answer', status: 401, type: JSON_TYPE, body: errorText(2, { code: 1, message: 'canary' }) },
];

for (const { what, status, type, body } of OTHER_REFUSALS) {
  // T-036
  test(`HTTP ${status} with ${what} leaves the session open`, LIMIT, async () => {
    await using server = await serve((request, response) => {
      if (greeted(request, response)) return;
      if (request.id === 2) response.writeHead(status, { 'content-type': type }).end(body);
      else json(response, result(request.id));
    });
    await using peer = await connect(server.url);
    await peer.greet();
    peer.request(2);
    const { code, message } = await peer.failure(2);
    assert.equal(code, 'upstream-unavailable');
    assert.doesNotMatch(message, /session|canary/i);
    peer.request(3);
    await peer.answer(3);
  });
}

test('close() ends the session with DELETE and leaves no socket', LIMIT, async () => {
  await using server = await serve((request, response) => {
    if (request.rpc === 'slow' || request.method === 'GET') stream(response);
    else greeted(request, response);
  });
  await using peer = await connect(server.url);
  await peer.greet('2025-11-25');
  await server.received.find(({ method }) => method === 'GET');
  peer.request(2, 'slow');
  await server.received.find(({ rpc }) => rpc === 'slow');

  const cancelled = 'notifications/cancelled';
  peer.transport.send({
    text: `{"jsonrpc":"2.0","method":"${cancelled}","params":{"requestId":2}}`,
    method: cancelled,
  });
  await Promise.all([peer.transport.close(), peer.transport.close()]);

  assert.deepEqual(
    server.received.items.slice(-2).map(({ method, rpc }) => rpc ?? method),
    [cancelled, 'DELETE'],
  );
  assert.equal(server.received.items.at(-1)?.headers['mcp-session-id'], 's-1');
  assert.equal(peer.events.items.filter(({ kind }) => kind === 'closed').length, 1);
  assert.ok(peer.events.items.every(({ kind }) => kind !== 'failed'));
  peer.request(3);
  await peer.wire.destroy();
  await server.idle();
  assert.ok(server.received.items.every(({ id }) => id !== 3));
});

test('close() waits a bounded time for the answer to DELETE', LIMIT, async () => {
  await using server = await serve((request, response) => {
    if (request.method !== 'DELETE') greeted(request, response);
  });
  await using peer = await connect(server.url);
  await peer.greet();
  await peer.transport.close();
  const { closed } = await server.received.find(({ method }) => method === 'DELETE');
  await closed;
});

test('a DELETE whose credentials come too late is not sent again', LIMIT, async () => {
  await using server = await serve((_request, response) => response.writeHead(401).end());
  const credential = { headers: ['authorization', 'Bearer t'] };
  const renewal = Promise.withResolvers<undefined | typeof credential>();
  const credentials = {
    current: () => credential,
    acquire: () => Promise.resolve(credential),
    renew: () => renewal.promise,
    extend: () => Promise.resolve(undefined),
  };
  const pool = new WirePool(new URL(server.url), PATIENCE_MS);
  const wire = new AuthorizedWire(pool, credentials, '');
  const target = { kind: 'http', url: server.url, headers: {} } as const;
  const session = new HttpSession(target, 'linkspan/test', new Cookies(target.url));
  await deleteSession(wire, session.delete(), 100);
  renewal.resolve(credential);
  await nextTurn();
  // What is sent now comes after it.
  const { promise: ended, resolve } = Promise.withResolvers<void>();
  const ignore = () => undefined;
  const ends = { onResponseEnd: () => resolve(), onResponseError: () => resolve() };
  const next = { onRequestStart: ignore, onResponseStart: ignore, onResponseData: ignore, ...ends };
  pool.dispatch(session.post('{}', 0), next);
  await ended;
  assert.deepEqual(
    server.received.items.map(({ method }) => method),
    ['DELETE', 'POST'],
  );
  await pool.destroy();
});

//
test('forget() closes the stream of the request, and no event follows', LIMIT, async () => {
  await using server = await serve((request, response) => {
    if (request.rpc === 'slow') stream(response, event(progress(1), 'e-1'));
    else json(response, result(request.id));
  });
  await using peer = await connect(server.url);
  peer.request(2, 'slow');
  await peer.events.at(0);
  peer.transport.forget(2);
  const { closed } = await server.received.at(0);
  await closed;
  peer.request(3);
  await peer.answer(3);
  assert.equal(peer.events.items.length, 2);
  assert.equal(server.received.items.length, 2);
});

test('a request forgotten before it was sent is not sent', LIMIT, async () => {
  await using server = await serve((request, response) => json(response, result(request.id)));
  await using peer = await connect(server.url);
  peer.request(2);
  peer.transport.forget(2);
  peer.request(3);
  await peer.answer(3);
  assert.deepEqual(
    server.received.items.map(({ id }) => id),
    [3],
  );
  assert.equal(peer.events.items.length, 1);
});

test('many simultaneous requests get their own answers over reused sockets', LIMIT, async () => {
  await using server = await serve((request, response) => json(response, result(request.id)));
  await using peer = await connect(server.url);
  for (let round = 0; round < 5; round++) {
    const ids = Array.from({ length: 20 }, (_, i) => round * 20 + i + 1);
    for (const id of ids) peer.request(id);
    await Promise.all(ids.map((id) => peer.answer(id)));
  }
  assert.equal(server.received.items.length, 100);
  assert.ok(server.sockets.size < 100);
});

for (const broken of ['\\q', 'a\nb', '\u0001']) {
  const answer = (id: unknown): string => `{"jsonrpc":"2.0","id":${String(id)},"result":{"text":"${broken}"}}`;
  const shown = JSON.stringify(broken);

  // N-32
  test(`a JSON answer with ${shown} in a string is a protocol error`, LIMIT, async () => {
    await using server = await serve((request, response) => json(response, answer(request.id)));
    await using peer = await connect(server.url);
    peer.request(7);
    assert.equal((await peer.failure(7)).code, 'upstream-protocol');
  });

  // N-32
  test(`an event with ${shown} in a string is a protocol error`, LIMIT, async () => {
    await using server = await serve((request, response) => {
      // A line break within an event's data is the end of one line of it.
      stream(response, `data: ${answer(request.id).replaceAll('\n', '\ndata: ')}\n\n`);
      response.end();
    });
    await using peer = await connect(server.url);
    peer.request(7);
    assert.equal((await peer.failure(7)).code, 'upstream-protocol');
  });
}
