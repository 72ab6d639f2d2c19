/** Tests that requests to issuers reach no address that they may not reach, with TCP spies on this machine. */
import assert from 'node:assert/strict';
import { createServer } from 'node:http';
import { createServer as createTcpServer } from 'node:net';
import { test } from 'node:test';
import { inspect } from 'node:util';
import { DIRECT_EGRESS } from '../../src/config/values/credentials.ts';
import { EgressError } from '../../src/egress/egress-error.ts';
import { Egress } from '../../src/egress/egress.ts';
import type { Resolve } from '../../src/http1/lookup.ts';
import { listenLocally } from '../support/local-port.ts';
import { startTcpSpy } from '../support/tcp-spy.ts';
import { METADATA_ADDRESSES, REFUSED_ADDRESSES, REFUSED_HOSTS } from './ssrf-corpus.ts';

const LIMIT = { timeout: 120_000 };
const familyOf = (address: string) => (address.includes(':') ? 6 : 4);
const SECRET = { authorization: 'Basic c2VjcmV0', cookie: 'secret' };
const POST = { method: 'POST', headers: SECRET, body: 'client_secret=secret' } as const;

/** Resolves with the reason for which a request was refused. */
async function refusalOf(
  egress: Egress,
  url: string,
  source: 'configured' | 'discovered' = 'discovered',
): Promise<string> {
  return await egress.fetch(url, source, POST).then(
    (response) => assert.fail(`${url} was answered with ${response.status}`),
    (thrown: unknown) => {
      assert.ok(thrown instanceof EgressError, `${url}: ${String(thrown)}`);
      return thrown.message;
    },
  );
}

// SEC-31
test('no discovered URL leads to an address that is not public', LIMIT, async () => {
  await using spy = await startTcpSpy();
  await using egress = new Egress();
  assert.ok(REFUSED_HOSTS.length >= 180);
  for (const host of REFUSED_HOSTS) {
    const reason = await refusalOf(egress, `https://${host}:${spy.port}/token`);
    assert.match(reason, /is not connected to: it is (?:not a public address|an address of cloud metadata)$/, host);
  }
  assert.deepEqual([spy.connections, spy.bytes], [0, 0]);
});

// SEC-31
test('no discovered name leads to an address that is not public', LIMIT, async () => {
  await using spy = await startTcpSpy();
  for (const address of REFUSED_ADDRESSES) {
    // The private address is not always the first one.
    for (const addresses of [[address], ['8.8.8.8', address], [address, '8.8.8.8']]) {
      const resolve: Resolve = async () => addresses.map((one) => ({ address: one, family: familyOf(one) }));
      await using egress = new Egress(DIRECT_EGRESS, resolve);
      const reason = await refusalOf(egress, `https://issuer.example:${spy.port}/token`);
      assert.match(reason, /^issuer\.example is not connected to/, addresses.join());
    }
  }
  assert.deepEqual([spy.connections, spy.bytes], [0, 0]);
});

// SEC-31
test('names of this machine are refused by the addresses that the system has for them', LIMIT, async () => {
  await using spy = await startTcpSpy();
  await using egress = new Egress();
  for (const host of ['localhost', 'LOCALHOST', 'metadata.google.internal', 'METADATA.google.internal.'])
    assert.match(await refusalOf(egress, `https://${host}:${spy.port}/`), /is not connected to/, host);
  assert.deepEqual([spy.connections, spy.bytes], [0, 0]);
});

test('a name without addresses, and a resolver that fails, are errors of the request', LIMIT, async () => {
  await using empty = new Egress(DIRECT_EGRESS, async () => []);
  assert.match(await refusalOf(empty, 'https://issuer.example/'), /a name without addresses/);
  await using failing = new Egress(DIRECT_EGRESS, async () => {
    throw new Error('no DNS');
  });
  await assert.rejects(failing.fetch('https://issuer.example/', 'discovered'), /no DNS/);
});

// SEC-31
test('a name is resolved once, and the address that was checked is connected to', LIMIT, async () => {
  await using allowed = await startTcpSpy('127.0.0.2');
  await using forbidden = await startTcpSpy('127.0.0.1', allowed.port);
  let count = 0;
  // The second answer would be forbidden.
  const resolve: Resolve = async () => [{ address: count++ === 0 ? '127.0.0.2' : '127.0.0.1', family: 4 }];
  await using egress = new Egress({ noProxy: [], privateNetworks: ['127.0.0.2/32'] }, resolve);
  const url = `https://issuer.example:${allowed.port}/`;
  await assert.rejects(egress.fetch(url, 'discovered', POST));
  assert.equal(count, 1);
  assert.equal(allowed.connections, 1);
  // The next request asks again, and is judged by that answer.
  assert.match(await refusalOf(egress, url), /not a public address/);
  assert.equal(count, 2);
  assert.deepEqual([forbidden.connections, forbidden.bytes], [0, 0]);
});

test('a configured private network is connected to, by a discovered URL', LIMIT, async () => {
  await using spy = await startTcpSpy();
  await using egress = new Egress({ noProxy: [], privateNetworks: ['127.0.0.0/8'] });
  await assert.rejects(egress.fetch(`https://127.0.0.1:${spy.port}/`, 'discovered', POST));
  assert.equal(spy.connections, 1);
  assert.ok(spy.bytes > 0);
});

// SEC-31
test('URLs in the config lead to private addresses, but not to cloud metadata', LIMIT, async () => {
  await using spy = await startTcpSpy();
  await using egress = new Egress({ noProxy: [], privateNetworks: ['0.0.0.0/0', '::/0'] });
  for (const address of METADATA_ADDRESSES) {
    const host = address.includes(':') ? `[${address}]` : address;
    for (const scheme of ['http', 'https']) {
      const reason = await refusalOf(egress, `${scheme}://${host}:${spy.port}/`, 'configured');
      assert.match(reason, /an address of cloud metadata$/, address);
    }
    const resolve: Resolve = async () => [{ address, family: familyOf(address) }];
    await using named = new Egress(DIRECT_EGRESS, resolve);
    assert.match(await refusalOf(named, 'http://issuer.example/', 'configured'), /an address of cloud metadata$/);
  }
  assert.equal(spy.connections, 0);
  await assert.rejects(egress.fetch(`http://127.0.0.1:${spy.port}/`, 'configured'));
  assert.equal(spy.connections, 1);
});

// SEC-31
test('a discovered URL must be https without a password, and readable', LIMIT, async () => {
  await using spy = await startTcpSpy();
  await using egress = new Egress({ noProxy: [], privateNetworks: ['127.0.0.0/8'] });
  const host = `127.0.0.1:${spy.port}`;
  for (const url of [
    `http://${host}/`,
    `ftp://${host}/`,
    `ws://${host}/`,
    'file:///etc/passwd',
    'data:,x',
    'javascript:1',
  ])
    assert.match(await refusalOf(egress, url), /its scheme is not https$/, url);
  for (const url of [`https://user:password@${host}/`, `https://user@${host}/`, `https://8.8.8.8@${host}/`]) {
    const reason = await refusalOf(egress, url);
    assert.match(reason, /its URL has a password$/, url);
    assert.ok(!reason.includes('user'));
  }
  for (const url of [
    '',
    'nonsense',
    'https://',
    'https://[::1',
    'https://a b/',
    'https://1.2.3.4.5/',
    'https://256.0.0.1/',
  ])
    assert.match(await refusalOf(egress, url), /^a URL cannot be read$/, url);
  assert.equal(spy.connections, 0);
});

for (const status of [301, 302, 303, 307, 308]) {
  // SEC-32
  test(`a redirect with HTTP ${status} is an error, and carries nothing on`, LIMIT, async () => {
    await using spy = await startTcpSpy();
    const server = createServer((_request, response) => {
      response.writeHead(status, { location: `http://127.0.0.1:${spy.port}/` }).end('elsewhere');
    });
    const port = await listenLocally(server);
    await using egress = new Egress();
    const reason = await refusalOf(egress, `http://127.0.0.1:${port}/`, 'configured');
    assert.match(reason, new RegExp(`answered with a redirect \\(HTTP ${status}\\)`));
    assert.deepEqual([spy.connections, spy.bytes], [0, 0]);
    server.close();
    server.closeAllConnections();
  });
}

test('limit issuerResponseBytes: a larger response is refused while it is read', LIMIT, async () => {
  const reached: string[] = [];
  const server = createServer((_request, response) => {
    const write = (): void => {
      while (response.write('x'.repeat(65_536)));
      response.once('drain', write);
    };
    write();
  });
  const port = await listenLocally(server);
  await using egress = new Egress(DIRECT_EGRESS, undefined, (limit) => reached.push(limit));
  const reason = await refusalOf(egress, `http://127.0.0.1:${port}/`, 'configured');
  assert.match(reason, /is larger than 262144 bytes$/);
  assert.deepEqual(reached, ['issuerResponseBytes']);
  server.close();
  server.closeAllConnections();
});

const INVALID = [
  {
    name: 'no valid HTTP',
    response: 'HTTP/1.1 200 OK\r\nno header: secret-token\r\n\r\n',
    reason: /answered with invalid HTTP$/,
  },
  {
    name: 'no valid HTTP status',
    response: 'HTTP/1.1 777 Odd\r\ncontent-length: 12\r\n\r\nsecret-token',
    reason: /answered with HTTP 777, which is no status$/,
  },
];

for (const { name, response, reason } of INVALID) {
  test(`the error of a response that is ${name} has none of its bytes`, LIMIT, async () => {
    const server = createTcpServer((socket) => {
      socket.on('error', () => undefined);
      socket.once('data', () => socket.end(response));
    });
    const port = await listenLocally(server);
    await using egress = new Egress();
    const sent = egress.fetch(`http://127.0.0.1:${port}/token`, 'configured', POST);
    const thrown: unknown = await sent.catch((refused: unknown) => refused);
    server.close();
    assert.ok(thrown instanceof EgressError);
    assert.match(thrown.message, reason);
    assert.ok(!inspect(thrown, { depth: 9 }).includes('secret-token'));
  });
}

// SEC-24
test('a response that is nested too deep is refused, also after a byte order mark', LIMIT, async () => {
  const bodies = new Map([
    ['/deep', `${'['.repeat(65)}${']'.repeat(65)}`],
    ['/marked', `\uFEFF${'['.repeat(65)}${']'.repeat(65)}`],
    ['/flat', `["${'['.repeat(65)}"]`],
    ['/text', 'a=b'],
  ]);
  const server = createServer(({ url = '' }, response) => void response.end(bodies.get(url) ?? ''));
  using _closing = { [Symbol.dispose]: () => server.close() };
  await using egress = new Egress();
  const base = `http://127.0.0.1:${await listenLocally(server)}`;
  for (const path of ['/deep', '/marked'])
    assert.match(await refusalOf(egress, base + path, 'configured'), /nested deeper than 64 levels/);
  for (const path of ['/flat', '/text'])
    assert.equal(await (await egress.fetch(base + path, 'configured', POST)).text(), bodies.get(path));
});
