import assert from 'node:assert/strict';
import { once } from 'node:events';
import { connect } from 'node:net';
import { after, before, test } from 'node:test';
import { BY_NAME, type Edge, startEdge } from './edge.ts';
import { initialize, post, raw, rpc, send } from './client.ts';
import { usedBytes } from '../support/used-bytes.ts';
import { waitUntil } from '../support/wait-until.ts';

let edge: Edge;
let session: string;

before(async () => {
  edge = await startEdge({}, BY_NAME);
  session = await initialize(`${edge.url}/mcp`, '2025-11-25', { authorization: 'Bearer alice' });
});
after(() => edge[Symbol.asyncDispose]());

const BODY = rpc(1, 'ping');

/** Returns the bytes of a request. `headers` replace the default ones of the same name; a list sends several. */
function request(target: string, headers: Readonly<Record<string, readonly string[]>> = {}): string {
  const all = {
    Host: ['localhost'],
    Authorization: ['Bearer alice'],
    'Content-Type': ['application/json'],
    'Content-Length': [String(BODY.length)],
    'Mcp-Session-Id': [session],
    ...headers,
  };
  const lines = Object.entries(all).flatMap(([name, values]) => values.map((value) => `${name}: ${value}\r\n`));
  return `POST ${target} HTTP/1.1\r\n${lines.join('')}\r\n${BODY}`;
}

async function statusOf(bytes: string): Promise<number> {
  return Number(/^HTTP\/1\.1 (\d{3})/.exec(await raw(edge.port, bytes))?.[1]);
}

test('a valid request is answered', async () => {
  assert.equal(await statusOf(request('/mcp')), 200);
});

const repeated = [
  { name: 'Host', values: ['localhost', 'localhost'] },
  { name: 'Host', values: ['localhost', 'evil.example'] },
  { name: 'Host', values: ['evil.example', 'localhost'] },
  { name: 'Authorization', values: ['Bearer alice', 'Bearer bob'] },
  { name: 'Authorization', values: ['Bearer bad', 'Bearer alice'] },
  { name: 'Authorization', values: ['Bearer alice', 'Bearer alice'] },
  { name: 'Origin', values: ['http://localhost', 'http://evil.example'] },
  { name: 'Origin', values: ['http://localhost', 'http://localhost'] },
  { name: 'Mcp-Session-Id', values: ['nobody', 'nobody'] },
  { name: 'MCP-Protocol-Version', values: ['2025-11-25', '2025-11-25'] },
  { name: 'Content-Type', values: ['application/json', 'text/plain'] },
  { name: 'Last-Event-ID', values: ['a.1', 'a.2'] },
  { name: 'Sec-Fetch-Site', values: ['same-origin', 'cross-site'] },
  { name: 'Mcp-Method', values: ['ping', 'ping'] },
  { name: 'Mcp-Name', values: ['a', 'b'] },
  { name: 'Mcp-Param-Region', values: ['eu', 'us'] },
];

for (const { name, values } of repeated) {
  // SEC-04 SEC-15 SEC-22
  test(`${name} sent as ${values.join(' and ')} is answered 400`, { timeout: 120_000 }, async () => {
    assert.equal(await statusOf(request('/mcp', { [name]: values })), 400);
  });
}

const targets = [
  'http://localhost/mcp',
  'http://evil.example/mcp',
  'https://localhost/mcp',
  '//mcp',
  '//evil.example/mcp',
  '/mcp//files',
  '/./mcp',
  '/mcp/../mcp',
  '/%2e%2e/mcp',
  '/mcp%2ffiles',
  '/mcp%5Cfiles',
  '/mcp\\files',
  '/mcp#fragment',
  '/mcp?x#y',
  '*',
  'mcp',
];

for (const target of targets) {
  // SEC-19
  test(`the target ${target} is answered 400`, { timeout: 120_000 }, async () => {
    assert.equal(await statusOf(request(target)), 400);
  });
}

const smuggled = [
  { what: 'two lengths', headers: { 'Content-Length': ['40', '41'] } },
  { what: 'a length and chunks', headers: { 'Transfer-Encoding': ['chunked'] } },
  { what: 'a bare line feed in a header', headers: { 'X-A': ['b\nX-C: d'] } },
  { what: 'a folded header', headers: { 'X-A': ['b\r\n c'] } },
  { what: 'a NUL in a header', headers: { 'X-A': ['b\0c'] } },
  { what: 'no host', headers: { Host: [] } },
  { what: 'an empty host', headers: { Host: [''] } },
  { what: 'a length that is no number', headers: { 'Content-Length': ['0x10'] } },
];

for (const { what, headers } of smuggled) {
  // SEC-18
  test(`a request with ${what} is answered 400`, { timeout: 120_000 }, async () => {
    assert.equal(await statusOf(request('/mcp', headers)), 400);
  });
}

/** Those after which the bytes that follow may be a body or a request. */
const AMBIGUOUS = smuggled.filter(({ headers }) => !('Host' in headers));

for (const { what, headers } of AMBIGUOUS) {
  // SEC-18
  test(`what follows a request with ${what} is not read`, { timeout: 120_000 }, async () => {
    const answers = await raw(edge.port, request('/mcp', headers) + request('/mcp'));
    assert.deepEqual(answers.match(/HTTP\/1\.1 \d+/g), ['HTTP/1.1 400']);
  });
}

// SEC-01
test('every route refuses every verb without a token', { timeout: 120_000 }, async () => {
  for (const path of ['/mcp', '/mcp/files', '/sse', '/sse/files', '/messages']) {
    for (const verb of ['GET', 'POST', 'PUT', 'PATCH', 'DELETE', 'OPTIONS', 'HEAD', 'TRACE', 'PROPFIND']) {
      const head = `${verb} ${path} HTTP/1.1\r\nHost: localhost\r\nMcp-Session-Id: ${session}\r\nContent-Length: 0\r\n\r\n`;
      assert.match(await raw(edge.port, head), /^HTTP\/1\.1 401 /, `${verb} ${path}`);
    }
  }
});

// SEC-20
test('a body with a too large Content-Length is refused unread', { timeout: 120_000 }, async () => {
  const head = request('/mcp', { 'Content-Length': ['10000000000'] });
  assert.match(await raw(edge.port, head.slice(0, head.indexOf('\r\n\r\n') + 4)), /^HTTP\/1\.1 413 /);
});

// SEC-20
test('a chunked body of a gigabyte takes no more memory than the limit', { timeout: 120_000 }, async () => {
  const chunk = Buffer.concat([Buffer.from('100000\r\n'), Buffer.alloc(0x100000, 'a'), Buffer.from('\r\n')]);
  const head = request('/mcp', { 'Content-Length': [], 'Transfer-Encoding': ['chunked'] });
  const socket = connect(edge.port, '127.0.0.1');
  let text = '';
  socket.setEncoding('utf8');
  socket.on('data', (data: string) => (text += data));
  const closed = once(socket, 'close').catch(() => undefined);
  socket.on('error', () => undefined);

  const usedBefore = usedBytes();
  let sent = 0;
  socket.write(head.slice(0, head.indexOf('\r\n\r\n') + 4));
  for (; sent < 1_024 && !socket.destroyed && socket.writable; sent++) {
    if (!socket.write(chunk)) {
      await Promise.race([once(socket, 'drain').catch(() => undefined), closed]);
    }
    // The limit is 4 MiB, and both ends are in this process. Buffers are released a little later.
    if (sent % 4 === 0) await waitUntil(() => usedBytes() - usedBefore < 16 * 1_048_576);
  }
  await closed;
  assert.match(text, /^HTTP\/1\.1 413 /);
  assert.match(text, /connection: close/i);
  assert.ok(sent < 1_024, 'the connection is closed before the end');
  assert.equal(edge.front.began.length, edge.front.finished.length);
});

test('a disconnect inside a body leaves nothing behind', { timeout: 120_000 }, async () => {
  const began = edge.front.began.length;
  const socket = connect(edge.port, '127.0.0.1');
  await once(socket, 'connect');
  socket.write(request('/mcp', { 'Content-Length': ['1000'] }));
  socket.end();
  socket.resume();
  await once(socket, 'close');
  assert.equal(edge.front.began.length, began);
  assert.equal((await post(`${edge.url}/mcp`, BODY, session, { authorization: 'Bearer alice' })).status, 200);
});

test('a byte order mark before a message is ignored', { timeout: 120_000 }, async () => {
  const headers = { authorization: 'Bearer alice' };
  assert.equal((await post(`${edge.url}/mcp`, `\uFEFF${BODY}`, session, headers)).status, 200);
});

test('bytes that are not UTF-8 are a parse error', { timeout: 120_000 }, async () => {
  const bytes = Buffer.concat([
    Buffer.from('{"jsonrpc":"2.0","id":1,"method":"'),
    Buffer.from([0xff, 0xfe]),
    Buffer.from('"}'),
  ]);
  const url = `${edge.url}/mcp`;
  const got = await send(url, {
    method: 'POST',
    body: bytes,
    headers: { authorization: 'Bearer alice', 'content-type': 'application/json', 'mcp-session-id': session },
  });
  assert.equal(got.status, 400);
  assert.equal(JSON.parse(got.text).error.code, -32700);
});

test('internal errors are not shown to clients', { timeout: 120_000 }, async () => {
  const got = await post(`${edge.url}/mcp`, rpc(1, 'throw'), session, { authorization: 'Bearer alice' });
  assert.equal(got.status, 500);
  assert.doesNotMatch(got.text, /secret|passwd|at /);
});
