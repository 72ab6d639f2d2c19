import assert from 'node:assert/strict';
import { once } from 'node:events';
import { createServer } from 'node:net';
import { test } from 'node:test';
import { brotliCompressSync, deflateSync, gzipSync } from 'node:zlib';

import * as fc from '../../support/fast-check.ts';

import { toRpcError } from '../../../src/errors.ts';
import { HttpStatusError } from '../../../src/upstream/rpc/http-status-error.ts';
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
  TIMEOUTS,
} from '../../fixtures/servers/http-harness.ts';
import { shortened } from '../../support/test-name.ts';
import { neverAccepting, NO_HOST } from '../../support/wire.ts';

const LIMIT = { timeout: 120_000 };

const CHALLENGES: readonly (readonly [header: string | string[], says: RegExp])[] = [
  [
    'Bearer error="insufficient_scope", scope="files:read files:write", resource_metadata="https://canary.example"',
    /needs the scopes "files:read files:write" for this request \(HTTP 403\), which our credentials lack; an operator/,
  ],
  [['Basic realm="x"', 'bearer realm="a", scope="a b",error=insufficient_scope'], /needs the scopes "a b"/],
  ['Bearer error="insufficient_scope"', /needs further scopes for this request/],
  ['Bearer error="insufficient_scope", scope="a\\canary"', /needs further scopes for this request/],
  [`Bearer error="insufficient_scope", scope="${'canary '.repeat(40)}"`, /needs further scopes for this request/],
  ['Bearer error="invalid_token", scope="canary"', /got no credentials that it accepts \(HTTP 403\)/],
  ['Basic error="insufficient_scope", scope="canary"', /got no credentials that it accepts \(HTTP 403\)/],
];

for (const [header, says] of CHALLENGES) {
  test(`HTTP 403 with ${shortened(String(header), 42)} says what is missing`, LIMIT, async () => {
    await using server = await serve((_request, response) => {
      response.writeHead(403, { 'www-authenticate': header });
      response.end();
    });
    await using peer = await connect(server.url);
    peer.request(2);
    const rpc = toRpcError(await peer.failure(2));
    assert.match(rpc.message, says);
    assert.doesNotMatch(JSON.stringify(rpc), /canary/);
    assert.equal(Object(rpc.data).executed, 'no');
  });
}

const statuses = [
  { status: 301, code: 'upstream-protocol', executed: 'unknown', says: /redirect \(HTTP 301\), which is not followed/ },
  { status: 307, code: 'upstream-protocol', executed: 'unknown', says: /redirect \(HTTP 307\)/ },
  { status: 400, code: 'upstream-unavailable', executed: 'unknown', says: /answered HTTP 400$/ },
  {
    status: 401,
    code: 'upstream-unavailable',
    executed: 'no',
    says: /got no credentials that it accepts \(HTTP 401\)/,
  },
  {
    status: 403,
    code: 'upstream-unavailable',
    executed: 'no',
    says: /got no credentials that it accepts \(HTTP 403\)/,
  },
  { status: 404, code: 'upstream-unavailable', executed: 'no', says: /answered HTTP 404$/ },
  { status: 405, code: 'upstream-unavailable', executed: 'no', says: /answered HTTP 405$/ },
  { status: 413, code: 'too-large', executed: 'no', says: /as too large/ },
  { status: 429, code: 'overloaded', executed: 'no', says: /no more requests for now/ },
  { status: 500, code: 'upstream-unavailable', executed: 'unknown', says: /answered HTTP 500$/ },
  { status: 502, code: 'upstream-unavailable', executed: 'unknown', says: /answered HTTP 502$/ },
] as const;

for (const { status, code, executed, says } of statuses) {
  test(`HTTP ${status} is ${code}, executed ${executed}, without text of the body`, LIMIT, async () => {
    await using server = await serve((_request, response) => {
      const headers = {
        'content-type': status === 401 ? 'application/json' : 'text/plain',
        'www-authenticate': 'Bearer realm="canary"',
        location: 'http://127.0.0.1:1/canary',
        'retry-after': '3',
      };
      response.writeHead(status, headers).end('{"jsonrpc":"2.0","id":2,"error":{"code":1,"message":"canary"}}');
    });
    await using peer = await connect(server.url);
    peer.request(2);
    const error = await peer.failure(2);
    assert.equal(error.code, code);
    assert.ok(error.cause instanceof HttpStatusError);
    assert.equal(error.cause.status, status);
    const rpc = toRpcError(error);
    assert.match(rpc.message, says);
    assert.doesNotMatch(JSON.stringify(rpc), /canary|127\.0\.0\.1/);
    assert.equal(Object(rpc.data).executed, executed);
    assert.equal(server.received.items.length, 1);
    if (status === 429) assert.equal(Object(rpc.data).retryAfterMs, 3_000);
  });
}

test('HTTP 403 without a challenge may be about the one request', LIMIT, async () => {
  await using server = await serve((_request, response) => response.writeHead(403).end());
  await using peer = await connect(server.url);
  peer.request(2);
  const { message, data } = toRpcError(await peer.failure(2));
  assert.match(
    message,
    /refused the request \(HTTP 403\): its credentials, or a rule of the server or a proxy, do not/,
  );
  assert.partialDeepStrictEqual(data, { executed: 'unknown', retryable: false });
});

// SEC-32
test('no redirect is followed, to the same or another origin', LIMIT, async () => {
  await using elsewhere = await serve((request, response) => json(response, result(request.id)));
  const locations = [elsewhere.url, '/other', elsewhere.url, '/other'];
  await using server = await serve((_request, response) => {
    const status = locations.length > 2 ? 307 : 303;
    response.writeHead(status, { location: locations.shift() ?? '' }).end();
  });
  await using peer = await connect(server.url, { headers: { authorization: 'Bearer canary' } });
  for (let id = 2; id < 6; id++) {
    peer.request(id);
    assert.equal((await peer.failure(id)).code, 'upstream-protocol');
  }
  assert.equal(server.received.items.length, 4);
  assert.equal(elsewhere.sockets.size, 0);
});

for (const status of [400, 404, 405]) {
  test(`initialize answered with HTTP ${status} fails with the status as the cause`, LIMIT, async () => {
    await using server = await serve((_request, response) => {
      const text = '{"jsonrpc":"2.0","error":{"code":-32000,"message":"Use GET"},"id":null}';
      response.writeHead(status, { 'content-type': 'application/json' }).end(text);
    });
    await using peer = await connect(server.url);
    peer.request(1, 'initialize');
    const error = await peer.failure(1);
    assert.equal(error.code, 'upstream-unavailable');
    assert.ok(error.cause instanceof HttpStatusError && error.cause.status === status);
  });
}

const answers = [
  { name: '400 with our id', status: 400, id: 2, code: -32602 },
  { name: '400 and the id null', status: 400, id: null, code: -32602 },
  { name: '400 without an id', status: 400, id: undefined, code: -32602 },
  { name: '200 without an id', status: 200, id: undefined, code: -32602 },
  { name: '500 with our id', status: 500, id: 2, code: -32603 },
  { name: '404 that says the method is unknown', status: 404, id: 2, code: -32601 },
  { name: '404 with our id', status: 404, id: 2, code: -32002 },
];

for (const { name, status, id, code } of answers) {
  test(`a JSON-RPC error with HTTP ${name} is the answer`, LIMIT, async () => {
    await using server = await serve((request, response) => {
      if (greeted(request, response)) return;
      const text = JSON.stringify({ jsonrpc: '2.0', id, error: { code, message: 'no' } });
      response.writeHead(status, { 'content-type': 'application/json' }).end(text);
    });
    await using peer = await connect(server.url);
    await peer.greet();
    peer.request(2);
    const answer = await peer.answer(2);
    assert.equal(answer.kind === 'error' && answer.error.code, code);
  });
}

test('a result with HTTP 404 within a session is the answer', LIMIT, async () => {
  await using server = await serve((request, response) => {
    if (greeted(request, response)) return;
    response.writeHead(404, { 'content-type': 'application/json' }).end(result(request.id));
  });
  await using peer = await connect(server.url);
  await peer.greet();
  peer.request(2);
  assert.equal((await peer.answer(2)).kind, 'result');
});

const garbage = [
  { name: 'HTML', type: 'text/html', body: '<html>canary</html>', says: /answered text\/html where JSON or an event/ },
  { name: 'no type', type: undefined, body: 'x', says: /without an answer/ },
  { name: 'broken JSON', type: 'application/json', body: '{"jsonrpc":"2.0","id":2,"resu' },
  { name: 'nothing', type: 'application/json', body: '' },
  { name: 'JSON that is no message', type: 'application/json', body: '{"ok":true}' },
  { name: 'a number', type: 'application/json', body: '42' },
  { name: 'an empty batch', type: 'application/json', body: '[]' },
  { name: 'a broken batch', type: 'application/json', body: '[{' },
  { name: 'NaN', type: 'application/json', body: '{"jsonrpc":"2.0","id":2,"result":{"a":NaN}}' },
  { name: 'a result that is no object', type: 'application/json', body: '{"jsonrpc":"2.0","id":2,"result":1}' },
  { name: 'the answer to another request', type: 'application/json', body: result(3) },
  { name: 'a notification', type: 'application/json', body: progress(1) },
  { name: 'two ids', type: 'application/json', body: '{"jsonrpc":"2.0","id":2,"id":3,"result":{}}' },
  {
    name: 'deep nesting',
    type: 'application/json',
    body: `{"jsonrpc":"2.0","id":2,"result":{"a":${'['.repeat(100_000)}`,
  },
  { name: 'an event that is not JSON', type: 'text/event-stream', body: 'data: hello\n\n' },
  { name: 'an event with half a result', type: 'text/event-stream', body: event('{"jsonrpc":"2.0","id":2,"result":') },
];

for (const { name, type, body, says = /^Upstream broke the protocol: upstream "notes" / } of garbage) {
  // REL-17
  test(`${name} instead of an answer fails this call and no other`, LIMIT, async () => {
    await using server = await serve((request, response) => {
      if (request.id === 2) {
        if (type !== undefined) response.setHeader('content-type', type);
        response.end(body);
      } else if (request.id === 3) {
        void server.received.find(({ id }) => id === 4).then(() => json(response, result(3)));
      } else {
        json(response, result(request.id));
      }
    });
    await using peer = await connect(server.url);
    peer.request(3);
    await server.received.at(0);
    peer.request(2);
    const error = await peer.failure(2);
    assert.equal(error.code, 'upstream-protocol');
    assert.match(error.message, says);
    assert.doesNotMatch(error.message, /canary/);
    peer.request(4);
    await peer.answer(4);
    await peer.answer(3);
    assert.equal(peer.events.items.filter(({ kind }) => kind === 'failed').length, 1);
  });
}

// REL-17
test('stray answers and odd messages in a stream do not affect the right answer', LIMIT, async () => {
  await using server = await serve((request, response) => {
    const odd = '{"jsonrpc":"2.0","id":1.5,"method":"ping"}';
    stream(response, event(result(99)), event(odd), 'event: noise\ndata: hello\n\n', event(result(request.id)));
    response.end(event(result(request.id)));
  });
  await using peer = await connect(server.url);
  peer.request(2);
  await peer.answer(2);
  peer.request(3);
  await peer.answer(3);
  assert.equal(peer.events.items.length, 2);
});

// REL-17
test('damaged answers cause no crash and reach no other call', LIMIT, async () => {
  const shapes = (id: number) => [
    { type: 'application/json', text: result(id) },
    { type: 'application/json', text: `[${progress(1)},${result(id)}]` },
    { type: 'text/event-stream', text: `id: e-${id}\r\nretry: 1\r\n${event(progress(1))}${event(result(id))}` },
  ];
  const damage = fc.record({
    shape: fc.nat(2),
    at: fc.nat(200),
    cut: fc.nat(20),
    insert: fc.oneof(
      fc.string({ unit: 'binary' }),
      fc.constantFrom('', '"id":3,', '\n\n', '\r', '[', '}', '\0', '1e999'),
    ),
  });
  const damages = fc.sample(damage, { numRuns: 400, seed: 20261121 });
  await using server = await serve((request, response) => {
    const id = Number(request.id);
    const how = damages[id - 2];
    const shape = shapes(id)[how?.shape ?? 0];
    if (request.method === 'GET' || how === undefined || shape === undefined) {
      response.writeHead(405).end();
      return;
    }
    const { at, cut, insert } = how;
    response.writeHead(200, { 'content-type': shape.type });
    response.end(shape.text.slice(0, at) + insert + shape.text.slice(at + cut));
  });
  await using peer = await connect(server.url, { messageBytes: 10_000 });
  const ids = damages.map((_damage, i) => i + 2);
  for (const id of ids) peer.request(id);
  for (const id of ids) {
    const end = await peer.events.find(
      (item) =>
        (item.kind === 'failed' && item.id === id) ||
        (item.kind === 'message' && item.about === id && item.message.kind !== 'notification'),
    );
    if (end.kind === 'message' && end.message.kind !== 'notification') assert.equal(end.message.id, String(id));
  }
});

// REL-17
test('bytes that are not HTTP fail the call', LIMIT, async () => {
  await using server = await serveRaw((socket) => socket.write('220 smtp.example ready\r\n'));
  await using peer = await connect(server.url);
  peer.request(2);
  const error = await peer.failure(2);
  assert.equal(error.code, 'upstream-protocol');
  assert.match(error.message, /invalid HTTP/);
});

const compressions = [
  { coding: 'gzip', compress: gzipSync },
  { coding: 'X-GZip', compress: gzipSync },
  { coding: 'deflate', compress: deflateSync },
  { coding: 'br', compress: brotliCompressSync },
];

for (const { coding, compress } of compressions) {
  test(`an answer in JSON that is compressed unasked (${coding}) is read`, LIMIT, async () => {
    await using server = await serve((request, response) => {
      assert.equal(request.headers['accept-encoding'], 'identity');
      const headers = { 'content-type': 'application/json', 'content-encoding': coding };
      response.writeHead(200, headers).end(compress(result(request.id)));
    });
    await using peer = await connect(server.url);
    peer.request(2);
    await peer.answer(2);
  });
}

const refusedCompressions = [
  { what: 'text that is not compressed', type: 'application/json', coding: 'gzip', body: result(2) },
  { what: 'a coding that is unknown', type: 'application/json', coding: 'zstd', body: result(2) },
  { what: 'two codings', type: 'application/json', coding: 'gzip, gzip', body: gzipSync(gzipSync(result(2))) },
  { what: 'an event stream', type: 'text/event-stream', coding: 'gzip', body: gzipSync(event(result(2))) },
];

for (const { what, type, coding, body } of refusedCompressions) {
  test(`a compressed answer is refused: ${what}`, LIMIT, async () => {
    await using server = await serve((_request, response) => {
      response.writeHead(200, { 'content-type': type, 'content-encoding': coding }).end(body);
    });
    await using peer = await connect(server.url);
    peer.request(2);
    const error = await peer.failure(2);
    assert.equal(error.code, 'upstream-protocol');
    assert.match(error.message, /compressed its answer/);
  });
}

for (const status of [400, 404, 500]) {
  test(`a JSON-RPC error with HTTP ${status} is the answer, also compressed`, LIMIT, async () => {
    await using server = await serve((request, response) => {
      if (greeted(request, response)) return;
      const text = JSON.stringify({ jsonrpc: '2.0', id: request.id, error: { code: -32002, message: 'no order 17' } });
      response.writeHead(status, { 'content-type': 'application/json', 'content-encoding': 'gzip' });
      response.end(gzipSync(text));
    });
    await using peer = await connect(server.url);
    await peer.greet();
    peer.request(2);
    const answer = await peer.answer(2);
    assert.equal(answer.kind === 'error' && answer.error.message, 'no order 17');
  });
}

for (const { what, coding, body } of [
  { what: 'text that is not compressed', coding: 'gzip', body: '{"jsonrpc":"2.0"}' },
  { what: 'a coding that is unknown', coding: 'zstd', body: '{"jsonrpc":"2.0"}' },
  { what: 'one too large', coding: 'gzip', body: gzipSync(JSON.stringify('x'.repeat(1_000_000))) },
]) {
  test(`a refusal with a compressed body is one without a body: ${what}`, LIMIT, async () => {
    await using server = await serve((_request, response) => {
      response.writeHead(500, { 'content-type': 'application/json', 'content-encoding': coding }).end(body);
    });
    await using peer = await connect(server.url);
    peer.request(2);
    assert.match((await peer.failure(2)).message, /answered HTTP 500$/);
  });
}

test('an answer that is too large once it is decompressed is refused', LIMIT, async () => {
  await using server = await serve((_request, response) => {
    const headers = { 'content-type': 'application/json', 'content-encoding': 'gzip' };
    response.writeHead(200, headers).end(gzipSync(JSON.stringify('x'.repeat(1_000_000))));
  });
  await using peer = await connect(server.url);
  peer.request(2);
  assert.equal((await peer.failure(2)).code, 'too-large');
});

test('a refused connection is named in the error, and executed is no', LIMIT, async () => {
  const server = createServer().listen(0, '127.0.0.1');
  await once(server, 'listening');
  const address = server.address();
  assert.ok(address !== null && typeof address === 'object');
  server.close();
  await once(server, 'close');
  await using peer = await connect(`http://127.0.0.1:${address.port}/mcp`);
  peer.request(2);
  const rpc = toRpcError(await peer.failure(2));
  assert.equal(rpc.message, 'Upstream unavailable: upstream "notes" refused the connection; check that it is running');
  assert.deepEqual(rpc.data, { code: 'upstream-unavailable', upstream: 'notes', executed: 'no', retryable: true });
});

test('an unknown host is named in the error', LIMIT, async () => {
  await using peer = await connect(`http://${NO_HOST}/mcp`);
  peer.request(2);
  const error = await peer.failure(2);
  assert.equal(error.code, 'upstream-unavailable');
  assert.match(error.message, /host name/);
});

test('a connection timeout is named in the error, and executed is no', LIMIT, async () => {
  await using full = await neverAccepting();
  const timeouts = { ...TIMEOUTS, connectMs: 100 };
  await using peer = await connect(`http://127.0.0.1:${full.port}/mcp`, { timeouts });
  peer.request(2);
  const { message, data } = toRpcError(await peer.failure(2));
  assert.match(message, /did not accept a connection in time/);
  assert.deepEqual(data, { code: 'upstream-unavailable', upstream: 'notes', executed: 'no', retryable: true });
});

test('a configured header that HTTP cannot carry is named, and nothing is sent', LIMIT, async () => {
  await using server = await serve((_request, response) => response.end());
  await using peer = await connect(server.url, { headers: { 'x-note': 'a\r\nevil: b' } });
  peer.request(2);
  const { message, data } = toRpcError(await peer.failure(2));
  assert.deepEqual(data, { code: 'upstream-unavailable', upstream: 'notes', executed: 'no', retryable: true });
  assert.match(message, /a header in its config that HTTP cannot carry/);
  assert.deepEqual(server.received.items, []);
});

test('a TLS failure is named in the error, and executed is no', LIMIT, async () => {
  await using server = await serve((_request, response) => response.end());
  await using peer = await connect(server.url.replace('http:', 'https:'));
  peer.request(2);
  const error = await peer.failure(2);
  assert.equal(error.code, 'upstream-unavailable');
  assert.match(error.message, /does not speak TLS at this port; is its URL http:/);
});

// REL-07
test('a reset after the request was written: outcome unknown, not sent again', LIMIT, async () => {
  await using server = await serveRaw((socket, soFar) => {
    if (soFar.endsWith('}')) socket.resetAndDestroy();
  });
  await using peer = await connect(server.url);
  peer.request(2);
  const error = await peer.failure(2);
  assert.equal(error.code, 'upstream-lost');
  assert.equal(toRpcError(error).data !== undefined && Object(toRpcError(error).data).executed, 'unknown');
  await peer.transport.close();
  assert.equal(server.wire.join('').split('tools/call').length - 1, 1);
});

const breaks = [
  { name: 'closes without a word', answer: '' },
  { name: 'breaks off in the headers', answer: 'HTTP/1.1 200 OK\r\ncontent-ty' },
  {
    name: 'breaks off in the body',
    answer: 'HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 99\r\n\r\n{',
  },
  {
    name: 'breaks off in a stream',
    answer: 'HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n',
  },
];

for (const { name, answer } of breaks) {
  // REL-07
  test(`a server that ${name} gets a call once, on any socket`, LIMIT, async () => {
    await using server = await serveRaw((socket, soFar) => {
      if (!soFar.endsWith('}')) return;
      const id = Number(/"id":(\d+)[^]*?$/.exec(soFar.slice(soFar.lastIndexOf('{')))?.[1]);
      if (id % 2 === 0) {
        const text = result(id);
        socket.write(
          `HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: ${text.length}\r\nconnection: keep-alive\r\n\r\n${text}`,
        );
      } else {
        socket.end(answer);
      }
    });
    await using peer = await connect(server.url);
    for (let id = 2; id < 22; id++) {
      peer.request(id);
      if (id % 2 === 0) await peer.answer(id);
      else assert.equal((await peer.failure(id)).code, 'upstream-lost');
    }
    const ids = [...server.wire.join('').matchAll(/"id":(\d+)/g)].map(([, id]) => Number(id));
    assert.deepEqual(
      ids.toSorted((a, b) => a - b),
      Array.from({ length: 20 }, (_, i) => i + 2),
    );
  });
}

test('an answer beyond the limit is refused, with or without a declared length', LIMIT, async () => {
  await using server = await serve((request, response) => {
    const text = `{"jsonrpc":"2.0","id":${String(request.id)},"result":{"a":"${'x'.repeat(50_000)}"}}`;
    if (request.id === 2) json(response, text, { 'content-length': String(text.length) });
    else json(response, text);
  });
  await using peer = await connect(server.url, { messageBytes: 10_000 });
  for (const id of [2, 3]) {
    peer.request(id);
    assert.equal((await peer.failure(id)).code, 'too-large');
  }
});

test('an endless event is refused at the limit', LIMIT, async () => {
  await using server = await serve((_request, response) => {
    stream(response, 'id: e-1\ndata: \n\ndata: ');
    const more = () => {
      while (response.write('x'.repeat(10_000)));
    };
    response.on('drain', more);
    more();
  });
  await using peer = await connect(server.url, { messageBytes: 100_000 });
  peer.request(2);
  assert.equal((await peer.failure(2)).code, 'too-large');
  await (
    await server.received.at(0)
  ).closed;
  assert.equal(server.received.items.length, 1);
});
