import assert from 'node:assert/strict';
import { createServer, type RequestListener, type Server } from 'node:http';
import { createServer as createHttpsServer, type Server as HttpsServer } from 'node:https';
import { once } from 'node:events';
import { test } from 'node:test';
import { upstreamError } from '../../../src/errors.ts';
import { endpointHint } from '../../../src/upstream/http/endpoint-hint.ts';
import { HttpStatusError } from '../../../src/upstream/rpc/http-status-error.ts';
import { listenLocally } from '../../support/local-port.ts';
import { makeCertificate } from '../../support/certificate.ts';
import { testCore } from '../../support/core.ts';
import { upstreamStatuses } from '../../../src/compose/upstream-status.ts';

/** Returns the reason for which an upstream does not start, at a server that answers so. */
async function reasonAt(scheme: string, answer: RequestListener, kind: 'http' | 'sse' = 'http'): Promise<string> {
  const server = createServer((request, response) => {
    request.resume();
    answer(request, response);
  });
  return reasonOf(server, scheme, kind);
}

/** Returns the reason for which an upstream does not start at a server, which is closed afterwards. */
async function reasonOf(server: Server | HttpsServer, scheme: string, kind: 'http' | 'sse'): Promise<string> {
  const url = `${scheme}://127.0.0.1:${await listenLocally(server)}/livez`;
  try {
    await using gateway = await testCore({ up: { target: { kind, url, headers: {} } } });
    const client = await gateway.connect({ view: 'up' });
    await client.request('tools/list', {});
    return upstreamStatuses(gateway.core)[0]?.reason ?? '';
  } finally {
    server.closeAllConnections();
    server.close();
  }
}

/** Returns the hint for a failure at a URL. */
function hintFor(url: string, cause: Error, kind: 'http' | 'sse' = 'http'): string | undefined {
  return endpointHint({ kind, url, headers: {} }, upstreamError('upstream-unavailable', 'up', 'failed', {}, cause));
}

const cases = [
  {
    url: 'http://127.0.0.1:8000/',
    says: 'there is no MCP endpoint at http://127.0.0.1:8000/; did you mean http://127.0.0.1:8000/mcp?',
  },
  {
    url: 'https://example.com/api/v1/?key=secret#part',
    says: 'there is no MCP endpoint at https://example.com/api/v1/; did you mean https://example.com/api/v1/mcp?',
  },
  {
    url: 'https://user:secret@example.com/mcp/',
    says: 'there is no MCP endpoint at https://example.com/mcp/',
  },
  {
    url: 'https://example.com/s/MTI0NDQyLWJhNT-secret/mcp',
    says: 'there is no MCP endpoint at https://example.com/s/…/mcp',
  },
  {
    url: 'https://example.com/v1/sse',
    says: 'there is no MCP endpoint at https://example.com/v1/sse; did you mean https://example.com/v1/mcp?',
  },
  {
    url: 'https://example.com/0a1b2c3d4e/run',
    says: 'there is no MCP endpoint at https://example.com/…/run; did you mean this path with /mcp at its end?',
  },
];

for (const { url, says } of cases) {
  // N-12
  test(`the hint for a 404 at ${url.replace(/secret/g, '…')} has no secret`, () => {
    assert.equal(hintFor(url, new HttpStatusError(404)), says);
  });
}

for (const { from, to, says } of [
  { from: 'https://example.com/mcp', to: '/mcp/', says: 'set url to https://example.com/mcp/' },
  { from: 'https://example.com/mcp/', to: '/mcp', says: 'set url to https://example.com/mcp' },
  { from: 'https://example.com/mcp', to: 'http://example.com/mcp/', says: 'set url to https://example.com/mcp/' },
  { from: 'http://example.com/mcp', to: 'https://example.com/mcp', says: 'set url to https://example.com/mcp' },
  {
    from: 'https://example.com/0a1b-key/mcp',
    to: '/0a1b-key/mcp/',
    says: 'begin url with https://example.com, and end its path with a slash',
  },
  {
    from: 'http://example.com/mcp/?key=1',
    to: 'https://example.com/mcp?key=1',
    says: 'begin url with https://example.com, and end its path with no slash',
  },
  { from: 'http://example.com:1/mcp', to: 'http://example.com:2/mcp', says: 'it leads to http://example.com:2' },
  { from: 'https://example.com/mcp', to: 'http://example.com/mcp', says: 'it leads to http://example.com' },
  { from: 'https://example.com/mcp', to: '?new', says: 'it leads to https://example.com' },
  {
    from: 'https://example.com/mcp',
    to: 'https://a:b@id.example.com/in?key=1',
    says: 'it leads to https://id.example.com',
  },
  { from: 'https://example.com/mcp', to: 'javascript:x', says: undefined },
  { from: 'https://example.com/mcp', to: `https://example.com/mcp/?${'x'.repeat(2_048)}`, says: undefined },
]) {
  test(`a redirect from ${from} to ${to.replace(/\?.*/, '')} says where to`, () => {
    assert.equal(hintFor(from, new HttpStatusError(307, to)), says);
  });
}

for (const kind of ['http', 'sse'] as const) {
  test(`the status says which slash a redirect adds (${kind})`, async () => {
    const redirect: RequestListener = (request, response) => {
      response.writeHead(307, { location: `${request.url ?? ''}/` }).end();
    };
    const reason = await reasonAt('http', redirect, kind);
    assert.match(reason, /redirect \(HTTP 307\).* \(set url to http:\/\/127\.0\.0\.1:\d+\/livez\/\)$/);
  });
}

// N-12
test('a failure that is not about the path has no endpoint hint', () => {
  assert.equal(hintFor('http://127.0.0.1/', new HttpStatusError(500)), undefined);
  assert.equal(hintFor('http://127.0.0.1/', new Error('reset')), undefined);
});

// N-12
test('a path that answers a GET with JSON is as wrong as any other', async () => {
  const reason = await reasonAt('http', (request, response) => {
    if (request.method === 'GET') response.writeHead(200, { 'content-type': 'application/json' }).end('{}');
    else response.writeHead(405).end();
  });
  assert.match(reason, /answered HTTP 405 \(there is no MCP endpoint at .*did you mean .*\/livez\/mcp\?/);
});

// N-12
for (const { what, type, body } of [
  { what: 'a page', type: 'text/html', body: '<html>' },
  { what: 'the JSON of another API', type: 'application/json', body: '{"ok":true}' },
]) {
  test(`the status asks for the URL of the endpoint where ${what} answers`, async () => {
    const reason = await reasonAt('http', (_request, response) => {
      response.writeHead(200, { 'content-type': type }).end(body);
    });
    assert.match(reason, / answered .* \(there is no MCP endpoint at .*did you mean .*\/livez\/mcp\?\)$/);
  });
}

// N-12
for (const status of [400, 405, 406]) {
  test(`the status names type http where HTTP+SSE is refused with ${status}`, async () => {
    const reason = await reasonAt('http', (_request, response) => response.writeHead(status).end(), 'sse');
    assert.match(reason, / answered HTTP \d+ \(it may speak Streamable HTTP; set type: http\)$/);
  });
}

// N-12
test('the status names tls.ca where nobody known has signed the certificate', async () => {
  await using certificate = await makeCertificate();
  const reason = await reasonOf(createHttpsServer(certificate), 'https', 'http');
  assert.match(reason, /\(DEPTH_ZERO_SELF_SIGNED_CERT\) \(no known authority .*; set tls\.ca of this server\)$/);
});

// N-12
test('the status asks for https:// where a connection is closed before any answer', async () => {
  const reason = await reasonAt('http', (request) => request.socket.destroy());
  assert.match(reason, / broke the connection before it answered \(.*; is its URL https:\/\/\?\)$/);
});

// N-12
for (const { what, status, reason } of [
  { what: 'a failure', status: 500, reason: /^upstream "up" answered HTTP 500$/ },
  { what: 'refused credentials', status: 401, reason: /\(HTTP 401\); an operator has to configure them$/ },
]) {
  test(`the status says once that a server answers with ${what}`, async () => {
    assert.match(await reasonAt('http', (_request, response) => response.writeHead(status).end()), reason);
  });
}

// N-12
test('the status says that a server does not speak TLS', async () => {
  const reason = await reasonAt('https', (_request, response) => response.writeHead(200).end());
  assert.equal(reason, 'upstream "up" does not speak TLS at this port; is its URL http://?');
});

// N-12
test('the status names a wrong path, and the client does not see the address', async () => {
  const server = createServer((request, response) => {
    request.resume();
    response.writeHead(404).end();
  });
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  const address = server.address();
  const origin = `http://127.0.0.1:${typeof address === 'object' ? address?.port : ''}`;
  try {
    const target = { kind: 'http', url: `${origin}/api?key=secret`, headers: {} } as const;
    await using gateway = await testCore({ up: { target } });
    const client = await gateway.connect({ view: 'up' });
    const answer = JSON.stringify(await client.request('tools/call', { name: 'up__any', arguments: {} }));
    assert.match(answer, /HTTP 404/);
    assert.doesNotMatch(answer, /127\.0\.0\.1/);
    const [status] = upstreamStatuses(gateway.core);
    const hint = `there is no MCP endpoint at ${origin}/api; did you mean ${origin}/api/mcp?`;
    assert.equal(status?.reason, `upstream "up" answered HTTP 404 (${hint})`);
  } finally {
    server.close();
  }
});
