import assert from 'node:assert/strict';
import { once } from 'node:events';
import { createServer } from 'node:net';
import { test } from 'node:test';
import { openTunnel } from '../../src/http1/tunnel.ts';
import { PATIENCE_MS } from '../support/patience.ts';
import { quote } from '../support/test-name.ts';
import { startConnectProxy } from '../support/connect-proxy.ts';
import { freePort } from '../support/free-port.ts';

const LIMIT = { timeout: 120_000 };

const through = (port: number, host = 'up.example', user = '', connectMs = PATIENCE_MS) =>
  openTunnel({ url: `http://${user}127.0.0.1:${port}`, connectMs }, host, 443);

test('a tunnel passes bytes in both directions, to a host that only the proxy knows', LIMIT, async () => {
  const echo = createServer((socket) => socket.pipe(socket)).listen(0, '127.0.0.1');
  await once(echo, 'listening');
  const address = echo.address();
  assert.ok(address !== null && typeof address !== 'string');
  await using proxy = await startConnectProxy(() => ({ port: address.port }));
  const socket = await through(proxy.port, 'only.known.to.the.proxy');
  socket.write('hello');
  const [received]: readonly unknown[] = await once(socket, 'data');
  assert.equal(String(received), 'hello');
  socket.destroy();
  assert.deepEqual(proxy.heads[0]?.split('\r\n'), [
    'CONNECT only.known.to.the.proxy:443 HTTP/1.1',
    'host: only.known.to.the.proxy:443',
    'Connection: close',
  ]);
  echo.close();
});

const HEADS: readonly (readonly [host: string, user: string, head: RegExp])[] = [
  ['::1', '', /^CONNECT \[::1\]:443 HTTP\/1\.1\r\nhost: \[::1\]:443\r\n/],
  ['10.0.0.1', '', /^CONNECT 10\.0\.0\.1:443 /],
  ['up.example', 'ann:secret@', /\r\nproxy-authorization: Basic YW5uOnNlY3JldA==(?:\r\n|$)/],
  ['up.example', 'a%40b:s%3Ae%2Fc@', /\r\nproxy-authorization: Basic YUBiOnM6ZS9j(?:\r\n|$)/],
  ['up.example', 'ann@', /\r\nproxy-authorization: Basic YW5uOg==(?:\r\n|$)/],
];

for (const [host, user, head] of HEADS) {
  test(`CONNECT names ${host}, and has the credentials of "${user}"`, LIMIT, async () => {
    await using proxy = await startConnectProxy(() => ({ text: 'HTTP/1.1 403 Forbidden\r\n\r\n' }));
    await assert.rejects(through(proxy.port, host, user));
    assert.match(proxy.heads.join(), head);
  });
}

const REFUSALS: readonly (readonly [answer: string, error: RegExp])[] = [
  ['HTTP/1.1 407 Proxy Authentication Required\r\nProxy-Authenticate: Basic\r\n\r\n', /refused a tunnel \(HTTP 407\)/],
  ['HTTP/1.1 403 Forbidden\r\nContent-Length: 4\r\n\r\nno!\n', /refused a tunnel \(HTTP 403\)/],
  ['HTTP/1.1 302 Found\r\nLocation: http://127.0.0.1/\r\n\r\n', /refused a tunnel \(HTTP 302\)/],
  ['HTTP/1.1 502 Bad Gateway\r\n\r\n', /refused a tunnel \(HTTP 502\)/],
  ['HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: x\r\n\r\n', /refused a tunnel \(HTTP 101\)/],
  // Bytes before ours could be taken for an answer of the server.
  ['HTTP/1.1 200 OK\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}', /refused a tunnel \(HTTP 200\)/],
  ['SSH-2.0-OpenSSH_9.2\r\n', /Parse Error|socket hang up/],
  ['HTTP/1.1 200 OK\r\nx: y', /Parse Error|socket hang up/],
  [`HTTP/1.1 200 OK\r\n${'x: y\r\n'.repeat(20_000)}\r\n`, /Parse Error|ECONNRESET|EPIPE/],
  ['HTTP/1.1 200 OK\r\nx: \0\r\n\r\n', /Parse Error/],
  ['', /socket hang up/],
];

for (const [answer, error] of REFUSALS) {
  test(`a proxy that answers ${quote(answer, 40)} opens no tunnel`, LIMIT, async () => {
    await using proxy = await startConnectProxy(() => ({ text: answer }));
    await assert.rejects(through(proxy.port, 'up.example', 'ann:secret@'), (thrown: unknown) => {
      const text = `${String(thrown)}${JSON.stringify(thrown)}`;
      assert.match(String(thrown), error);
      assert.ok(!text.includes('secret') && !text.includes('YW5u'), 'the error has the password of the proxy');
      return true;
    });
  });
}

test('a proxy that answers nothing opens no tunnel within the time', LIMIT, async () => {
  await using proxy = await startConnectProxy(() => 'silence');
  await assert.rejects(through(proxy.port, 'up.example', '', 200), {
    code: 'connect-timeout',
    message: 'the proxy opened no tunnel within 200 ms',
  });
});

test('a proxy that is not there is an error of the connection', LIMIT, async () => {
  await assert.rejects(through(await freePort()), { code: 'proxy', message: /ECONNREFUSED/ });
});
