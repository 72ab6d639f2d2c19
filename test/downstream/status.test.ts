import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import { BY_NAME, type Edge, startEdge } from './edge.ts';
import { BOTH, initialize, post, rpc, send } from './client.ts';
import { shortened } from '../support/test-name.ts';

/** `$S` is a session of alice's at 2025-11-25, `$M` one that may batch, `$V` one at the view `files`, `$E` one that ended. */
const SESSIONS = ['$S', '$M', '$V', '$E'] as const;

/** The configured origins. */
const ORIGINS = ['https://app.example.com', 'tauri://localhost'];

let edge: Edge;
const ids = new Map<string, string>();

before(async () => {
  edge = await startEdge({ allowedOrigins: ORIGINS, limits: { bodyBytes: 2_000 } }, BY_NAME);
  const alice = { authorization: 'Bearer alice' };
  ids.set('$S', await initialize(`${edge.url}/mcp`, '2025-11-25', alice));
  ids.set('$M', await initialize(`${edge.url}/mcp`, '2025-03-26', alice));
  ids.set('$V', await initialize(`${edge.url}/mcp/files`, '2025-11-25', alice));
  ids.set('$E', await initialize(`${edge.url}/mcp`, '2025-11-25', alice));
  await send(`${edge.url}/mcp`, { method: 'DELETE', headers: { ...alice, 'mcp-session-id': ids.get('$E') } });
});
after(() => edge[Symbol.asyncDispose]());

const PING = rpc(1, 'ping');
const NOTE = '{"jsonrpc":"2.0","method":"notifications/initialized"}';
const ANSWER = '{"jsonrpc":"2.0","id":99,"result":{}}';
const HELLO = rpc(0, 'initialize', {
  protocolVersion: '2025-06-18',
  capabilities: {},
  clientInfo: { name: 'x', version: '1' },
});

type Headers = Readonly<Record<string, string | undefined>>;

interface Case {
  readonly when: string;
  readonly verb?: string;
  readonly path?: string;
  readonly headers?: Headers;
  readonly body?: string;
  readonly status: number;
  readonly code?: number;
  readonly allow?: string;
}

const S = { 'mcp-session-id': '$S' };
const M = { 'mcp-session-id': '$M' };
const NOBODY = { authorization: undefined };
const HTML = 'text/html,application/xhtml+xml,*/*;q=0.8';

const cases: readonly Case[] = [
  { when: 'a request', headers: S, body: PING, status: 200 },
  { when: 'a request that fails', headers: S, body: rpc(1, 'nonsense'), status: 200, code: -32601 },
  // T-023
  { when: 'a notification', headers: S, body: NOTE, status: 202 },
  // T-023
  { when: 'a response', headers: S, body: ANSWER, status: 202 },
  {
    when: 'a request naming its revision',
    headers: { ...S, 'mcp-protocol-version': '2025-11-25' },
    body: PING,
    status: 200,
  },
  {
    when: 'a request naming another supported revision',
    headers: { ...S, 'mcp-protocol-version': '2025-06-18' },
    body: PING,
    status: 200,
  },
  {
    // T-032
    when: 'an unsupported revision',
    headers: { ...S, 'mcp-protocol-version': '2020-01-01' },
    body: PING,
    status: 400,
    code: -32600,
  },
  // T-031
  { when: 'no session', body: PING, status: 400, code: -32600 },
  { when: 'a notification without session', body: NOTE, status: 400, code: -32600 },
  { when: 'a response without session', body: ANSWER, status: 400, code: -32600 },
  // T-031
  { when: 'an unknown session', headers: { 'mcp-session-id': 'nobody' }, body: PING, status: 404, code: -32001 },
  // T-031
  { when: 'an ended session', headers: { 'mcp-session-id': '$E' }, body: PING, status: 404 },
  // S-001
  { when: 'a session of another endpoint', headers: { 'mcp-session-id': '$V' }, body: PING, status: 404 },
  // S-001
  { when: 'a session of another user', headers: { ...S, authorization: 'Bearer bob' }, body: PING, status: 404 },
  { when: 'initialize', body: HELLO, status: 200 },
  { when: 'initialize naming an ended session', headers: { 'mcp-session-id': '$E' }, body: HELLO, status: 200 },
  { when: 'initialize naming a session', headers: S, body: HELLO, status: 400, code: -32600 },
  {
    when: 'initialize under a newer revision',
    headers: { 'mcp-protocol-version': '2026-07-28' },
    body: HELLO,
    status: 200,
  },
  { when: 'initialize without parameters', body: rpc(0, 'initialize', {}), status: 200, code: -32602 },
  { when: 'not JSON', headers: S, body: '{', status: 400, code: -32700 },
  { when: 'nothing at all', headers: S, body: '', status: 400, code: -32700 },
  { when: 'no message', headers: S, body: '{"a":1}', status: 400, code: -32600 },
  {
    when: 'an id that is null',
    headers: S,
    body: '{"jsonrpc":"2.0","id":null,"method":"ping"}',
    status: 400,
    code: -32600,
  },
  // T-034
  { when: 'a batch', headers: S, body: `[${PING}]`, status: 400, code: -32600 },
  // T-033
  { when: 'a batch where there are batches', headers: M, body: `[${PING}]`, status: 200 },
  { when: 'a batch of notifications', headers: M, body: `[${NOTE},${ANSWER}]`, status: 202 },
  // T-033
  { when: 'a batch with initialize', headers: M, body: `[${HELLO}]`, status: 400, code: -32600 },
  { when: 'an empty batch', headers: M, body: '[]', status: 400, code: -32600 },
  { when: 'a batch without session', body: `[${PING}]`, status: 400, code: -32600 },
  { when: 'no content type', headers: { ...S, 'content-type': undefined }, body: PING, status: 415 },
  // SEC-17
  { when: 'a form', headers: { ...S, 'content-type': 'text/plain' }, body: PING, status: 415 },
  {
    when: 'another character set',
    headers: { ...S, 'content-type': 'application/json; charset=utf-16' },
    body: PING,
    status: 415,
  },
  // SEC-20
  { when: 'a compressed body', headers: { ...S, 'content-encoding': 'gzip' }, body: PING, status: 415 },
  { when: 'identity', headers: { ...S, 'content-encoding': 'identity' }, body: PING, status: 200 },
  // N-33
  { when: 'Identity', headers: { ...S, 'content-encoding': 'Identity' }, body: PING, status: 200 },
  { when: 'accepting HTML', headers: { ...S, accept: 'text/html' }, body: PING, status: 406 },
  { when: 'accepting anything', headers: { ...S, accept: '*/*' }, body: PING, status: 200 },
  { when: 'accepting JSON alone', headers: { ...S, accept: 'application/json' }, body: PING, status: 200 },
  { when: 'accepting events alone', headers: { ...S, accept: 'text/event-stream' }, body: PING, status: 200 },
  { when: 'accepting nothing in particular', headers: { ...S, accept: undefined }, body: PING, status: 200 },
  // SEC-20
  { when: 'too much', headers: S, body: rpc(1, 'echo', { a: 'x'.repeat(2_000) }), status: 413, code: -31008 },
  { when: 'no token', headers: { ...S, ...NOBODY }, body: PING, status: 401, code: -31001 },
  { when: 'a bad token', headers: { ...S, authorization: 'Bearer bad' }, body: PING, status: 401 },
  { when: 'a session and no token', headers: { ...S, ...NOBODY, 'content-type': 'text/plain' }, status: 401 },
  { when: 'a host that is not ours', headers: { ...S, host: 'evil.example' }, body: PING, status: 403, code: -31003 },
  { when: 'an origin that is not ours', headers: { ...S, origin: 'http://evil.example' }, body: PING, status: 403 },
  { when: 'the origin null', headers: { ...S, origin: 'null' }, body: PING, status: 403 },
  { when: 'an allowed origin', headers: { ...S, origin: 'https://app.example.com' }, body: PING, status: 200 },
  { when: 'an allowed origin of an app', headers: { ...S, origin: 'tauri://localhost' }, body: PING, status: 200 },
  { when: 'a cross-site request', headers: { ...S, 'sec-fetch-site': 'cross-site' }, body: PING, status: 403 },
  { when: 'a bad host and no token', headers: { ...NOBODY, host: 'evil.example' }, status: 403 },
  { when: 'an unknown endpoint', path: '/mcp/nothing', headers: S, body: PING, status: 404, code: -31004 },
  { when: 'an unknown endpoint and no token', path: '/mcp/nothing', headers: NOBODY, body: PING, status: 401 },
  { when: 'a view', path: '/mcp/files', headers: { 'mcp-session-id': '$V' }, body: PING, status: 200 },
  { when: 'a session of another view', path: '/mcp/files', headers: S, body: PING, status: 404 },
  { when: 'an encoded slash', path: '/mcp%2ffiles', headers: S, body: PING, status: 400, code: -32600 },
  { when: 'a double slash', path: '//mcp', headers: S, body: PING, status: 400 },
  { when: 'a path we do not have', path: '/other', headers: S, body: PING, status: 404 },
  { when: 'a trailing slash', path: '/mcp/', headers: S, body: PING, status: 200 },
  { when: 'GET without session', verb: 'GET', status: 405, allow: 'POST' },
  { when: 'GET by a browser', verb: 'GET', headers: { accept: HTML }, status: 405, allow: 'POST' },
  {
    // T-024
    when: 'GET without accepting events',
    verb: 'GET',
    headers: { ...S, accept: 'application/json' },
    status: 405,
    allow: 'POST',
  },
  { when: 'GET with an unknown session', verb: 'GET', headers: { 'mcp-session-id': 'nobody' }, status: 404 },
  { when: 'GET with an ended session', verb: 'GET', headers: { 'mcp-session-id': '$E' }, status: 404 },
  {
    // S-001
    when: 'GET with a session of another user',
    verb: 'GET',
    headers: { ...S, authorization: 'Bearer bob' },
    status: 404,
  },
  {
    // S-003
    when: 'a resume in a session of another user',
    verb: 'GET',
    headers: { ...S, authorization: 'Bearer bob', 'last-event-id': 'a.1.MQ' },
    status: 404,
  },
  {
    when: 'GET with an unsupported revision',
    verb: 'GET',
    headers: { ...S, 'mcp-protocol-version': 'x' },
    status: 400,
  },
  { when: 'GET without token', verb: 'GET', headers: { ...S, ...NOBODY }, status: 401 },
  { when: 'GET from elsewhere', verb: 'GET', headers: { ...S, origin: 'http://evil.example' }, status: 403 },
  { when: 'HEAD', verb: 'HEAD', headers: S, status: 405, allow: 'GET, POST, DELETE' },
  { when: 'PUT', verb: 'PUT', headers: S, body: PING, status: 405, allow: 'GET, POST, DELETE' },
  { when: 'PATCH', verb: 'PATCH', headers: S, body: PING, status: 405, allow: 'GET, POST, DELETE' },
  { when: 'OPTIONS', verb: 'OPTIONS', status: 405, allow: 'GET, POST, DELETE' },
  { when: 'OPTIONS from elsewhere', verb: 'OPTIONS', headers: { origin: 'http://evil.example' }, status: 403 },
  { when: 'OPTIONS without token', verb: 'OPTIONS', headers: NOBODY, status: 401 },
  {
    // SEC-16
    when: 'OPTIONS of an allowed page',
    verb: 'OPTIONS',
    headers: { ...NOBODY, origin: 'https://app.example.com' },
    status: 204,
  },
  ...['/.well-known/oauth-protected-resource/mcp', '/.well-known/oauth-authorization-server'].flatMap((path) => [
    {
      // SEC-16
      when: 'OPTIONS of an allowed page',
      verb: 'OPTIONS',
      path,
      headers: { ...NOBODY, origin: 'https://app.example.com' },
      status: 204,
    },
    { when: 'OPTIONS from elsewhere', verb: 'OPTIONS', path, headers: { origin: 'http://evil.example' }, status: 403 },
  ]),
  { when: 'DELETE without session', verb: 'DELETE', status: 400 },
  { when: 'DELETE of an unknown session', verb: 'DELETE', headers: { 'mcp-session-id': 'nobody' }, status: 404 },
  { when: 'DELETE of an ended session', verb: 'DELETE', headers: { 'mcp-session-id': '$E' }, status: 404 },
  {
    // S-001
    when: 'DELETE of a session of another user',
    verb: 'DELETE',
    headers: { ...S, authorization: 'Bearer bob' },
    status: 404,
  },
  { when: 'DELETE without token', verb: 'DELETE', headers: { ...S, ...NOBODY }, status: 401 },
  {
    when: 'metadata without an issuer',
    verb: 'GET',
    path: '/.well-known/oauth-protected-resource/mcp',
    status: 404,
  },
  { when: '/sse without token', verb: 'GET', path: '/sse', headers: NOBODY, status: 401 },
  { when: '/sse at an unknown view', verb: 'GET', path: '/sse/nothing', status: 404 },
  {
    when: '/sse without accepting events',
    verb: 'GET',
    path: '/sse',
    headers: { accept: 'application/json' },
    status: 406,
  },
  { when: 'POST to /sse', path: '/sse', body: HELLO, status: 405, allow: 'GET' },
  { when: '/messages without session', path: '/messages', body: PING, status: 404 },
  { when: '/messages with an unknown session', path: '/messages?sessionId=nobody', body: PING, status: 404 },
  { when: '/messages without token', path: '/messages?sessionId=nobody', headers: NOBODY, body: PING, status: 401 },
  { when: 'GET of /messages', verb: 'GET', path: '/messages?sessionId=nobody', status: 405, allow: 'POST' },
];

function filled(headers: Headers): Headers {
  return Object.fromEntries(
    Object.entries(headers).map(([name, value]) => [
      name,
      SESSIONS.some((session) => session === value) ? ids.get(value ?? '') : value,
    ]),
  );
}

for (const { when, verb = 'POST', path = '/mcp', headers = {}, body, status, code, allow } of cases) {
  test(`${verb} ${shortened(path, 36)} gets ${status}: ${when}`, { timeout: 120_000 }, async () => {
    const usual: Headers =
      verb === 'POST' ? { 'content-type': 'application/json', accept: BOTH } : { accept: 'text/event-stream' };
    const got = await send(`${edge.url}${path}`, {
      method: verb,
      headers: filled({ authorization: 'Bearer alice', ...usual, ...headers }),
      ...(body === undefined ? {} : { body }),
    });
    assert.equal(got.status, status, got.text);
    if (code !== undefined) assert.equal(JSON.parse(got.text).error.code, code);
    if (status >= 400 && verb !== 'HEAD' && got.headers['content-type'] === 'application/json') {
      const refusal = JSON.parse(got.text);
      assert.equal(refusal.jsonrpc, '2.0');
      assert.notEqual(refusal.id, null);
    }
    if (status === 202 || status === 204) assert.equal(got.text, '');
    assert.equal(got.headers.allow, allow);
    if (status === 401) assert.match(got.headers['www-authenticate'] ?? '', /^Bearer/);
    const isOurs = ORIGINS.includes(headers['origin'] ?? '');
    assert.equal(got.headers['access-control-allow-origin'], isOurs ? headers['origin'] : undefined);
    const readable = got.headers['access-control-expose-headers'];
    assert.equal(readable, isOurs ? 'mcp-session-id, www-authenticate' : undefined);
    assert.equal(got.headers['access-control-allow-credentials'], undefined);
  });
}

test('an unknown endpoint says how an id is made of a name', async () => {
  const got = await post(`${edge.url}/mcp/My_Server`, PING, undefined, { authorization: 'Bearer alice' });
  assert.match(JSON.parse(got.text).error.message, /lower case, with "-" for other characters than a to z and digits/);
});

// SEC-16
test('a page of an allowed origin may send any header', async () => {
  const asked = 'Content-Type, MCP-Method, Mcp-Param-Region, mcp-param-a b, x-custom-auth-headers';
  const preflight = (origin: string) =>
    send(`${edge.url}/mcp`, {
      method: 'OPTIONS',
      headers: { origin, 'access-control-request-method': 'POST', 'access-control-request-headers': asked },
    });
  const { status, headers } = await preflight('https://app.example.com');
  assert.equal(status, 204);
  assert.equal(headers['access-control-allow-origin'], 'https://app.example.com');
  const allowed = (headers['access-control-allow-headers'] ?? '').toLowerCase().split(', ');
  assert.deepEqual(allowed, ['content-type', 'mcp-method', 'mcp-param-region', 'x-custom-auth-headers']);
  assert.equal((await preflight('https://evil.example')).headers['access-control-allow-headers'], undefined);
});

// SEC-16
test('a page of this machine that no config names may not read answers', async () => {
  for (const origin of ['http://localhost:5173', new URL(edge.url).origin]) {
    for (const method of ['OPTIONS', 'GET']) {
      const { status, headers, text } = await send(`${edge.url}/.well-known/oauth-protected-resource/mcp`, {
        method,
        headers: { origin, 'access-control-request-method': 'POST' },
      });
      assert.equal(status === 403, method === 'OPTIONS', origin);
      if (status === 403) assert.match(text, /add it to allowedOrigins/);
      assert.equal(headers['access-control-allow-origin'], undefined, `${method} ${origin}`);
      assert.equal(headers['access-control-allow-headers'], undefined, `${method} ${origin}`);
    }
  }
});

test('a browser gets a page that says how to connect', async () => {
  const { text, headers } = await send(`${edge.url}/mcp/files`, {
    headers: { accept: HTML, authorization: 'Bearer alice' },
  });
  assert.match(headers['content-type'] ?? '', /^text\/html/);
  assert.match(text, new RegExp(`${edge.url}/mcp/files`));
});

// T-031
test('a deleted session is unknown afterwards', async () => {
  const headers = { authorization: 'Bearer alice' };
  const id = await initialize(`${edge.url}/mcp`, '2025-06-18', headers);
  const ended = await send(`${edge.url}/mcp`, { method: 'DELETE', headers: { ...headers, 'mcp-session-id': id } });
  assert.equal(ended.status, 204);
  assert.equal((await post(`${edge.url}/mcp`, PING, id, headers)).status, 404);
});

test('a refusal carries the id of the request it refuses', async () => {
  const got = await post(`${edge.url}/mcp`, rpc('é"1', 'ping'), 'nobody', { authorization: 'Bearer alice' });
  assert.equal(JSON.parse(got.text).id, 'é"1');
});

const ISSUER = {
  issuer: 'https://issuer.example',
  jwksUrl: 'https://issuer.example/jwks',
  audiences: [],
  algorithms: ['RS256'],
  requiredScopes: ['mcp'],
};

test('metadata names its endpoint with any requested host', async (t) => {
  const own = await startEdge({ auth: { jwt: [ISSUER], apiKeys: [] }, publicUrl: 'https://mcp.example.com' }, BY_NAME);
  t.after(() => own[Symbol.asyncDispose]());
  for (const [path, resource] of [
    ['', '/mcp'],
    ['/mcp', '/mcp'],
    ['/mcp/files', '/mcp/files'],
    ['/sse', '/sse'],
    ['/sse/files', '/sse/files'],
  ]) {
    const got = await send(`${own.url}/.well-known/oauth-protected-resource${path}`, {});
    assert.equal(got.status, 200);
    assert.equal(JSON.parse(got.text).resource, `https://mcp.example.com${resource}`);
  }
  const evil = await send(`${own.url}/.well-known/oauth-protected-resource`, { headers: { host: 'evil.example' } });
  assert.equal(evil.status, 403);
});

test('a cache keeps metadata apart for pages that may read it', async (t) => {
  const auth = { jwt: [ISSUER], apiKeys: [] };
  for (const allowedOrigins of [['https://app.example.com'], []]) {
    const own = await startEdge({ auth, allowedOrigins }, BY_NAME);
    t.after(() => own[Symbol.asyncDispose]());
    const { headers } = await send(`${own.url}/.well-known/oauth-protected-resource`, {});
    assert.match(headers['cache-control'] ?? '', /max-age/);
    assert.equal(headers.vary, allowedOrigins.length > 0 ? 'origin' : undefined);
  }
});

test('2024-11-05 over HTTP can be switched off', async (t) => {
  const auth = { jwt: [ISSUER], apiKeys: [] };
  const own = await startEdge({ legacySse: false, auth }, BY_NAME);
  t.after(() => own[Symbol.asyncDispose]());
  assert.equal((await send(`${own.url}/sse`, { headers: { accept: 'text/event-stream' } })).status, 404);
  assert.equal((await send(`${own.url}/.well-known/oauth-protected-resource/sse`, {})).status, 404);
  assert.equal((await post(`${own.url}/messages?sessionId=x`, PING)).status, 404);
});

// SEC-15
test('a configured host and origin are accepted', async (t) => {
  const own = await startEdge({ allowedHosts: ['gateway.internal'], publicUrl: 'https://mcp.example.com' });
  t.after(() => own[Symbol.asyncDispose]());
  const id = await initialize(`${own.url}/mcp`);
  for (const headers of [
    { host: 'gateway.internal:3000' },
    { host: 'mcp.example.com', origin: 'https://mcp.example.com' },
    { host: `localhost:${own.port}`, origin: `http://localhost:${own.port}` },
  ]) {
    assert.equal((await post(`${own.url}/mcp`, PING, id, headers)).status, 200);
  }
});
