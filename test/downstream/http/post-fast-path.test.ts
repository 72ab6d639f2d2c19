import assert from 'node:assert/strict';
import { once } from 'node:events';
import { connect, type Socket } from 'node:net';
import { after, before, test } from 'node:test';
import { BY_NAME, type Edge, startEdge } from '../edge.ts';
import { initialize, messagesOf, post, raw, rpc, send } from '../client.ts';
import { waitUntil } from '../../support/wait-until.ts';

const OPTIONS = { timeout: 120_000 };
const LIMIT_BYTES = 4_000;

let edge: Edge;
let session: string;

before(async () => {
  edge = await startEdge({ limits: { bodyBytes: LIMIT_BYTES } }, BY_NAME);
  session = await initialize(`${edge.url}/mcp`, '2025-11-25', { authorization: 'Bearer alice' });
});
after(() => edge[Symbol.asyncDispose]());

type Headers = Readonly<Record<string, string | undefined>>;

interface Asked {
  readonly verb?: string;
  readonly target?: string;
  readonly headers?: Headers;
}

/** Returns the bytes of a request. */
function request(body: string, { verb = 'POST', target = '/mcp', headers }: Asked = {}): string {
  const all: Headers = {
    Host: 'localhost',
    Authorization: 'Bearer alice',
    'Content-Type': 'application/json',
    'Content-Length': String(Buffer.byteLength(body)),
    'Mcp-Session-Id': session,
    ...headers,
  };
  const lines = Object.entries(all).map(([name, value]) => (value === undefined ? '' : `${name}: ${value}\r\n`));
  return `${verb} ${target} HTTP/1.1\r\n${lines.join('')}\r\n${body}`;
}

interface Answered {
  readonly status: number;
  readonly head: string;
  readonly text: string;
}

/** Returns the text of a connection until it has `count` answers with a length. */
async function answers(socket: Socket, count: number): Promise<Answered[]> {
  const got: Answered[] = [];
  let bytes = Buffer.alloc(0);
  for await (const chunk of socket.iterator({ destroyOnReturn: false })) {
    bytes = Buffer.concat([bytes, chunk]);
    for (;;) {
      const end = bytes.indexOf('\r\n\r\n');
      if (end < 0) break;
      const head = bytes.toString('latin1', 0, end);
      const length = Number(/^content-length: (\d+)$/im.exec(head)?.[1] ?? 0);
      if (bytes.length < end + 4 + length) break;
      const text = bytes.toString('utf8', end + 4, end + 4 + length);
      bytes = bytes.subarray(end + 4 + length);
      got.push({ status: Number(/^HTTP\/1\.1 (\d{3})/.exec(head)?.[1]), head, text });
    }
    if (got.length >= count) break;
  }
  return got;
}

/** Opens a connection, passes it to `use`, and closes it. */
async function onSocket<T>(use: (socket: Socket) => Promise<T>): Promise<T> {
  const socket = connect(edge.port, '127.0.0.1');
  try {
    await once(socket, 'connect');
    return await use(socket);
  } finally {
    socket.destroy();
  }
}

function idsOf(got: readonly Answered[]): unknown[] {
  return got.map(({ text }) => (text === '' ? undefined : JSON.parse(text).id));
}

test('pipelined requests are answered in order', OPTIONS, async () => {
  const got = await onSocket(async (socket) => {
    socket.write(Array.from({ length: 50 }, (_, i) => request(rpc(i, 'echo', { i }))).join(''));
    return await answers(socket, 50);
  });
  assert.deepEqual(
    got.map(({ text }) => JSON.parse(text)),
    Array.from({ length: 50 }, (_, i) => ({ jsonrpc: '2.0', id: i, result: { i } })),
  );
});

test('one connection accepts requests for every route, in any order', OPTIONS, async () => {
  const got = await onSocket(async (socket) => {
    const nothing = { 'Content-Type': undefined, 'Content-Length': undefined };
    socket.write(
      [
        request(rpc(1, 'ping')),
        request('', { verb: 'GET', target: '/nowhere', headers: nothing }),
        request(rpc(2, 'ping'), { target: '/mcp?x=1' }),
        request(rpc(3, 'ping')),
        request(rpc(4, 'ping'), { headers: { Authorization: 'Bearer carol' } }),
        request(rpc(5, 'ping'), { headers: { Authorization: undefined } }),
        request('{"jsonrpc":"2.0","method":"notifications/initialized"}'),
        request(rpc(6, 'ping'), { headers: { 'Content-Type': 'text/plain' } }),
        request(rpc(7, 'ping')),
      ].join(''),
    );
    return await answers(socket, 9);
  });
  assert.deepEqual(
    got.map(({ status }) => status),
    [200, 404, 200, 200, 404, 401, 202, 415, 200],
  );
  assert.deepEqual(idsOf(got.filter(({ status }) => status === 200)), [1, 2, 3, 7]);
});

test('what was checked for one request is checked again if the next differs', OPTIONS, async () => {
  const other = await initialize(`${edge.url}/mcp`, '2025-06-18', { authorization: 'Bearer alice' });
  const long = rpc(5, 'echo', { text: 'x'.repeat(LIMIT_BYTES) });
  const got = await onSocket(async (socket) => {
    socket.write(
      [
        request(rpc(1, 'ping')),
        request(rpc(2, 'echo', { text: 'longer' })),
        request(rpc(3, 'ping'), { headers: { 'Mcp-Session-Id': other } }),
        request(rpc(4, 'ping'), { headers: { 'Mcp-Session-Id': `${session.slice(0, -1)}!` } }),
        request(rpc(4, 'ping'), { headers: { 'MCP-Protocol-Version': '1900-01-01' } }),
        request(rpc(4, 'ping'), { headers: { Host: 'elsewhere' } }),
        request(rpc(4, 'ping'), { headers: { Origin: 'http://elsewhere' } }),
        request(rpc(6, 'ping')),
        request(long),
      ].join(''),
    );
    return await answers(socket, 9);
  });
  assert.deepEqual(
    got.map(({ status }) => status),
    [200, 200, 200, 404, 400, 403, 403, 200, 413],
  );
  assert.deepEqual(idsOf(got.filter(({ status }) => status === 200)), [1, 2, 3, 6]);
});

test('a body in many pieces is one message', OPTIONS, async () => {
  const body = rpc('ä€𝄞', 'echo', { text: 'ä€𝄞' });
  const whole = Buffer.from(request(body));
  const start = whole.indexOf('\r\n\r\n') + 4;
  const [got] = await onSocket(async (socket) => {
    socket.setNoDelay(true);
    socket.write(whole.subarray(0, start));
    for (const byte of whole.subarray(start)) {
      socket.write(Buffer.of(byte));
      await new Promise((resolve) => setImmediate(resolve));
    }
    return await answers(socket, 1);
  });
  assert.deepEqual(JSON.parse(got?.text ?? ''), { jsonrpc: '2.0', id: 'ä€𝄞', result: { text: 'ä€𝄞' } });
});

test('a chunked body is one message, and is refused beyond the limit', OPTIONS, async () => {
  const chunked = { 'Transfer-Encoding': 'chunked', 'Content-Length': undefined };
  const body = rpc(1, 'ping');
  const small = `5\r\n${body.slice(0, 5)}\r\n${(body.length - 5).toString(16)}\r\n${body.slice(5)}\r\n0\r\n\r\n`;
  const head = request('', { headers: chunked });
  const [taken] = await onSocket(async (socket) => {
    socket.write(head + small);
    return await answers(socket, 1);
  });
  assert.equal(taken?.status, 200);
  const refused = await raw(
    edge.port,
    `${head}${LIMIT_BYTES.toString(16)}\r\n${' '.repeat(LIMIT_BYTES)}\r\n1\r\n \r\n`,
  );
  assert.match(refused, /^HTTP\/1\.1 413 /);
});

test('a client that sends Expect: 100-continue gets 100', OPTIONS, async () => {
  const body = rpc(1, 'ping');
  const whole = request(body, { headers: { Expect: '100-continue' } });
  const got = await onSocket(async (socket) => {
    socket.write(whole.slice(0, -body.length));
    const [first] = await answers(socket, 1);
    socket.write(body);
    const [second] = await answers(socket, 1);
    return [first?.status, second?.status];
  });
  assert.deepEqual(got, [100, 200]);
});

test('a disconnect inside a body affects no other request', OPTIONS, async () => {
  const before = edge.front.began.length;
  await onSocket(async (socket) => {
    socket.write(request(rpc(1, 'ping')).slice(0, -3));
    socket.end();
    await once(socket.resume(), 'close');
  });
  assert.equal(edge.front.began.length, before);
  assert.equal((await post(`${edge.url}/mcp`, rpc(2, 'ping'), session, { authorization: 'Bearer alice' })).status, 200);
});

test('an answer for a disconnected client is dropped', OPTIONS, async () => {
  await onSocket(async (socket) => {
    socket.write(request(rpc(77, 'wait', { gate: 'gone' })));
    await waitUntil(() => edge.front.began.includes('wait'));
  });
  const finished = edge.front.finished.length;
  edge.front.release('gone');
  await waitUntil(() => edge.front.finished.length > finished);
  assert.equal((await post(`${edge.url}/mcp`, rpc(2, 'ping'), session, { authorization: 'Bearer alice' })).status, 200);
});

const targets = [
  { target: '/mcp', status: 200 },
  { target: '/mcp?', status: 200 },
  { target: '/mcp?a=b', status: 200 },
  { target: '/mcp/', status: 200 },
  { target: '/mcp/files', status: 404, why: 'the session is not of this endpoint' },
  { target: '/mcp/nothing', status: 404 },
  { target: '/mcp/files/more', status: 404 },
  { target: '/mcp/..', status: 400 },
  { target: '/%6dcp', status: 400 },
  { target: '/mcp%2ffiles', status: 400 },
  { target: '//mcp', status: 400 },
  { target: '/MCP', status: 404 },
  { target: 'http://localhost/mcp', status: 400 },
] as const;

for (const { target, status } of targets) {
  test(`a POST to ${target} is answered ${status}`, OPTIONS, async () => {
    assert.match(await raw(edge.port, request(rpc(1, 'ping'), { target })), new RegExp(`^HTTP/1\\.1 ${status} `));
  });
}

for (const [verb, status] of [
  ['HEAD', 405],
  ['PUT', 405],
  ['PATCH', 405],
  ['OPTIONS', 405],
] as const) {
  test(`${verb} of /mcp is answered ${status} with any body`, OPTIONS, async () => {
    const text = await raw(edge.port, request(rpc(1, 'ping'), { verb }));
    assert.match(text, new RegExp(`^HTTP/1\\.1 ${status} [^]*\\r\\nallow: GET, POST, DELETE\\r\\n`, 'i'));
  });
}

test('the router and the fast path give the same answer', OPTIONS, async () => {
  const bodies = [
    rpc(1, 'ping'),
    rpc(2, 'echo', { text: 'ä€𝄞' }),
    rpc('ä', 'nonsense'),
    '{"jsonrpc":"2.0","method":"notifications/initialized"}',
    '{',
    '{"a":1}',
    '',
    `[${rpc(1, 'ping')}]`,
  ];
  const sessions = [session, 'nobody', undefined];
  const plain = (text: string) => text.replace(/^date: .*\r\n/im, '');
  for (const body of bodies) {
    for (const id of sessions) {
      const headers = { 'Mcp-Session-Id': id, Connection: 'close' };
      const [direct = '', routed] = await Promise.all(
        ['/mcp', '/mcp?'].map((target) => raw(edge.port, request(body, { target, headers }), /$^/)),
      );
      assert.equal(plain(direct), plain(routed ?? ''), `${body} ${id}`);
      assert.notEqual(direct, '');
    }
  }
});

// T-033
test('a batch is answered in one event, letter for letter', OPTIONS, async () => {
  const authorization = { authorization: 'Bearer alice' };
  const batching = await initialize(`${edge.url}/mcp`, '2025-03-26', authorization);
  const got = await post(
    `${edge.url}/mcp`,
    `[${rpc(1, 'echo', { a: '€' })},${rpc(2, 'ping')}]`,
    batching,
    authorization,
  );
  assert.deepEqual(
    messagesOf(got).toSorted((a, b) => Number(a.id) - Number(b.id)),
    [
      { jsonrpc: '2.0', id: 1, result: { a: '€' } },
      { jsonrpc: '2.0', id: 2, result: {} },
    ],
  );
});

test('internal errors are not shown to clients, and the connection stays open', OPTIONS, async () => {
  const got = await onSocket(async (socket) => {
    socket.write(request(rpc(1, 'throw')) + request(rpc(2, 'ping')));
    return await answers(socket, 2);
  });
  assert.deepEqual(
    got.map(({ status }) => status),
    [500, 200],
  );
  assert.equal(JSON.parse(got[0]?.text ?? '').error.message, 'Internal error');
});

test('a compressed body is refused with 415', OPTIONS, async () => {
  const { status } = await send(`${edge.url}/mcp`, {
    method: 'POST',
    headers: { authorization: 'Bearer alice', 'content-type': 'application/json', 'content-encoding': 'gzip' },
    body: Buffer.alloc(1_000),
  });
  assert.equal(status, 415);
});
