import assert from 'node:assert/strict';
import type { ServerResponse } from 'node:http';
import { test } from 'node:test';

import { GatewayError, toRpcError } from '../../../src/errors.ts';
import { HttpStatusError } from '../../../src/upstream/rpc/http-status-error.ts';
import { PATIENCE_MS } from '../../support/patience.ts';
import { waitUntil } from '../../support/wait-until.ts';
import {
  connect,
  connectCaller,
  event,
  json,
  progress,
  type Received,
  result,
  serve,
  stream,
  TIMEOUTS,
} from '../../fixtures/servers/http-harness.ts';

const LIMIT = { timeout: 120_000 };

/** Starts a server of 2024-11-05. `post` handles a message to `/messages`, and gets the response of the event stream. */
function legacy(post: (request: Received, response: ServerResponse, events: ServerResponse) => void) {
  let events: ServerResponse | undefined;
  return serve((request, response) => {
    if (request.method === 'GET') {
      events = response;
      stream(response, 'event: endpoint\r\ndata: /messages?sessionId=1\r\n\r\n');
    } else if (events !== undefined) {
      post(request, response, events);
    }
  }, '/sse');
}

test('all messages arrive on the one stream, without a request id', LIMIT, async () => {
  await using server = await legacy((request, response, events) => {
    response.writeHead(202).end('Accepted');
    events.write(event(progress(1)) + event(result(request.id)));
  });
  await using peer = await connect(server.url, { kind: 'sse', headers: { authorization: 'Bearer t' } });
  peer.request(1, 'initialize');
  await peer.answer(1);
  assert.deepEqual(
    peer.events.items.map((item) => item.kind === 'message' && [item.message.kind, item.about]),
    [
      ['notification', undefined],
      ['result', undefined],
    ],
  );
  const [opened, posted] = server.received.items;
  assert.equal(opened?.headers.accept, 'text/event-stream');
  assert.equal(posted?.headers['content-type'], 'application/json');
  for (const { headers } of server.received.items) assert.equal(headers.authorization, 'Bearer t');
});

test('cookies of the event stream are on its messages, and on no other connection', LIMIT, async () => {
  let streams = 0;
  await using server = await serve((request, response) => {
    if (request.method === 'GET') {
      response.setHeader('set-cookie', `node=${++streams}; Path=/`);
      stream(response, 'event: endpoint\ndata: /messages\n\n');
    } else {
      response.writeHead(202).end();
    }
  }, '/sse');
  await using one = await connect(server.url, { kind: 'sse' });
  await using other = await connect(server.url, { kind: 'sse' });
  one.request(1);
  await server.received.at(2);
  other.request(1);
  await server.received.at(3);
  assert.deepEqual(
    server.received.items.map(({ headers }) => headers.cookie),
    [undefined, undefined, 'node=1', 'node=2'],
  );
});

test('a ping in one piece with the endpoint is answered', LIMIT, async () => {
  await using server = await serve((request, response) => {
    if (request.method === 'POST') response.writeHead(202).end();
    else stream(response, `event: endpoint\ndata: /messages\n\n${event('{"jsonrpc":"2.0","id":"p","method":"ping"}')}`);
  }, '/sse');
  await using caller = await connectCaller(server.url, { kind: 'sse' });
  const answer = await server.received.find(({ method }) => method === 'POST');
  assert.equal(answer.body, '{"jsonrpc":"2.0","id":"p","result":{}}');
  assert.equal(caller.connection.isClosed, false);
});

const endpoints = [
  { endpoint: 'http://127.0.0.1:1/messages', ok: false },
  { endpoint: '//evil.example/messages', ok: false },
  { endpoint: 'file:///etc/passwd', ok: false },
  { endpoint: 'http://[', ok: false },
  { endpoint: 'messages?x=1', ok: true },
  { endpoint: '/a/b', ok: true },
  { endpoint: 'SELF/c', ok: true },
];

for (const { endpoint, ok } of endpoints) {
  // SEC-32
  test(`the endpoint ${endpoint} is ${ok ? 'used' : 'refused: another origin'}`, LIMIT, async () => {
    await using server = await serve((request, response) => {
      if (request.method === 'GET') {
        const data = endpoint.replace('SELF', `http://${request.headers.host ?? ''}`);
        stream(response, `event: endpoint\ndata: ${data}\n\n`);
      } else {
        response.writeHead(202).end();
      }
    }, '/sse');
    if (ok) {
      await using peer = await connect(server.url, { kind: 'sse' });
      peer.request(1);
      await server.received.at(1);
    } else {
      await assert.rejects(connect(server.url, { kind: 'sse' }), (thrown) => {
        assert.ok(thrown instanceof GatewayError);
        assert.equal(thrown.code, 'upstream-protocol');
        assert.equal(thrown.detail.executed, 'no');
        assert.doesNotMatch(thrown.message, /evil|passwd/);
        return true;
      });
      await server.idle();
      assert.equal(server.received.items.length, 1);
    }
  });
}

const starts = [
  { name: 'HTTP 404', status: 404, type: 'text/plain', code: 'upstream-unavailable' },
  { name: 'HTTP 401', status: 401, type: 'text/plain', code: 'upstream-unavailable' },
  { name: 'a redirect', status: 302, type: 'text/plain', code: 'upstream-protocol' },
  { name: 'HTML', status: 200, type: 'text/html', code: 'upstream-protocol' },
  { name: 'a stream that ends at once', status: 200, type: 'text/event-stream', code: 'upstream-unavailable' },
];

for (const { name, status, type, code } of starts) {
  test(`answering with ${name} fails the start; executed is no`, LIMIT, async () => {
    await using server = await serve((_request, response) => {
      response.writeHead(status, { 'content-type': type, location: '/elsewhere' }).end();
    });
    await assert.rejects(connect(server.url, { kind: 'sse' }), (thrown) => {
      assert.ok(thrown instanceof GatewayError);
      assert.equal(thrown.code, code);
      assert.equal(Object(toRpcError(thrown).data).executed, 'no');
      if (status >= 300) assert.ok(thrown.cause instanceof HttpStatusError);
      return true;
    });
    assert.equal(server.received.items.length, 1);
  });
}

test('a stream whose connection breaks before the answer is asked for once more', LIMIT, async () => {
  let broken = 0;
  await using server = await serve((request, response) => {
    if (request.method !== 'GET') response.writeHead(202).end();
    else if (broken-- > 0) response.destroy();
    else stream(response, 'event: endpoint\ndata: /messages?sessionId=1\n\n');
  }, '/sse');
  broken = 1;
  await using _peer = await connect(server.url, { kind: 'sse' });
  assert.equal(server.received.items.length, 2);
  broken = 9;
  await assert.rejects(connect(server.url, { kind: 'sse' }), { code: 'upstream-unavailable', executed: 'no' });
  assert.equal(server.received.items.length, 4);
});

test('a stream begins at its start, whatever ids earlier ones had', LIMIT, async () => {
  await using server = await serve((request, response) => {
    if (request.method === 'GET') stream(response, 'id: 7\nevent: endpoint\ndata: /messages?sessionId=1\n\n');
    else response.writeHead(202).end();
  }, '/sse');
  for (let times = 0; times < 2; times++) {
    await using _peer = await connect(server.url, { kind: 'sse' });
  }
  assert.deepEqual(
    server.received.items.map(({ headers }) => headers['last-event-id']),
    [undefined, undefined],
  );
});

test('a server that does not name its endpoint in time fails to start', LIMIT, async () => {
  await using server = await serve((_request, response) => stream(response, ': wait\n\n'));
  const timeouts = { ...TIMEOUTS, connectMs: 100, firstByteMs: 100 };
  await assert.rejects(connect(server.url, { kind: 'sse', timeouts }), { code: 'upstream-unavailable' });
  await server.idle();
});

test('the end of the stream closes the transport; calls in flight may have run', LIMIT, async () => {
  await using server = await legacy((_request, response, events) => {
    response.writeHead(202).end();
    events.end();
  });
  await using peer = await connect(server.url, { kind: 'sse' });
  peer.request(1);
  const error = await peer.closed();
  assert.equal(error.code, 'upstream-lost');
  assert.equal(error.row.executed, 'unknown');
  await peer.transport.close();
  peer.request(2);
  assert.equal(peer.events.items.length, 1);
  assert.equal(server.received.items.length, 2);
});

test('a refused message fails without affecting others', LIMIT, async () => {
  await using server = await legacy((request, response, events) => {
    if (request.id === 1) {
      response.writeHead(500).end();
    } else if (request.id === 2) {
      const text = '{"jsonrpc":"2.0","id":2,"error":{"code":-32602,"message":"no"}}';
      response.writeHead(400, { 'content-type': 'application/json' }).end(text);
    } else {
      json(response, '"ok"');
      events.write(event(result(request.id)));
    }
  });
  await using peer = await connect(server.url, { kind: 'sse' });
  for (const id of [1, 2, 3]) peer.request(id);
  assert.match((await peer.failure(1)).message, /answered HTTP 500/);
  assert.equal((await peer.answer(2)).kind, 'error');
  assert.equal((await peer.answer(3)).kind, 'result');
});

test('close() leaves no socket, and onClose is called once', LIMIT, async () => {
  await using server = await legacy((_request, response) => response.writeHead(202).end());
  await using peer = await connect(server.url, { kind: 'sse' });
  peer.request(1);
  const { closed } = await server.received.at(1);
  await closed;
  await Promise.all([peer.transport.close(), peer.transport.close()]);
  await peer.wire.destroy();
  await server.idle();
  assert.deepEqual(
    peer.events.items.map(({ kind }) => kind),
    ['closed'],
  );
});

for (const { what, value } of [
  { what: 'a broken escape', value: '"\\q"' },
  { what: 'NaN', value: 'NaN' },
  { what: 'a comma at its end', value: '1,' },
]) {
  // N-32
  test(`an answer with ${what} fails its request, and no other`, LIMIT, async () => {
    await using server = await legacy((request, response, events) => {
      response.writeHead(202).end('Accepted');
      events.write(event(request.id === 7 ? `{"jsonrpc":"2.0","id":7,"result":{"a":${value}}}` : result(request.id)));
    });
    await using peer = await connect(server.url, { kind: 'sse' });
    peer.request(7);
    peer.request(8);
    assert.equal((await peer.failure(7)).code, 'upstream-protocol');
    await peer.answer(8);
  });
}

test('an answer beyond the limit fails its request, and no other', LIMIT, async () => {
  await using server = await legacy((request, response, events) => {
    response.writeHead(202).end('Accepted');
    const text = 'x'.repeat(request.id === 8 ? 1 : 500_000);
    const first = `{"jsonrpc":"2.0","id":${String(request.id)},"result":{"a":"${text}"}}`;
    const last = `{"result":{"a":"${text}"},"jsonrpc":"2.0","id":${String(request.id)}}`;
    events.write(event(request.id === 6 ? first : last));
  });
  await using peer = await connect(server.url, { kind: 'sse', messageBytes: 100_000 });
  for (const id of [6, 7, 8]) peer.request(id);
  for (const id of [6, 7]) assert.equal((await peer.failure(id)).code, 'too-large');
  await peer.answer(8);
});

const CALL = { timeoutMs: PATIENCE_MS, maxMs: PATIENCE_MS, progress: false, context: undefined };

test('a request of the upstream beyond the limit gets an error', LIMIT, async () => {
  const large = `{"method":"roots/list","params":{"a":"${'x'.repeat(500_000)}"},"jsonrpc":"2.0","id":"q"}`;
  const isCall = ({ body }: Received) => body.includes('"tools/call"');
  await using server = await legacy((request, response, events) => {
    response.writeHead(202).end('Accepted');
    if (isCall(request)) events.write(event(large));
  });
  await using caller = await connectCaller(server.url, { kind: 'sse', messageBytes: 100_000 });
  const call = caller.connection.call('tools/call', undefined, CALL);
  call.answer.catch(() => undefined);
  const { body } = await server.received.find((request) => request.method === 'POST' && !isCall(request));
  const { id, error } = JSON.parse(body);
  assert.deepEqual([id, error.code], ['q', -32600]);
  assert.equal(caller.connection.inFlight, 1);
});

const BROKEN = '{"jsonrpc":"2.0","id":1,"result":{"text":"\\q"}}';

for (const { type, answer } of [
  { type: 'text/plain', answer: result(1) },
  { type: 'text/event-stream', answer: result(1) },
  { type: 'text/plain', answer: BROKEN },
]) {
  const what = answer === BROKEN ? 'a broken answer' : 'the answer';
  test(`after ${what}, an endless body of ${type} keeps no socket`, LIMIT, async () => {
    await using server = await legacy((request, response, events) => {
      response.writeHead(202, { 'content-type': type });
      const dripping = setInterval(() => response.write(':'), 50);
      response.once('close', () => clearInterval(dripping));
      events.write(event(answer.replace('"id":1', `"id":${String(request.id)}`)));
    });
    await using peer = await connect(server.url, { kind: 'sse' });
    const ids = [1, 2, 3, 4, 5];
    for (const id of ids) peer.request(id);
    for (const id of ids) await (answer === BROKEN ? peer.failure(id) : peer.answer(id));
    // That of the event stream.
    await waitUntil(() => server.sockets.size === 1);
  });
}
