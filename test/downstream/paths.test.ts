import assert from 'node:assert/strict';
import { once } from 'node:events';
import { request } from 'node:http';
import { after, before, test } from 'node:test';
import { createAuthenticator } from '../../src/auth/authenticate.ts';
import { pino } from 'pino';
import { LIMITS } from '../../src/limits.ts';
import { getEvents, initialize, post, rpc, send } from './client.ts';
import { type Edge, startEdge } from './edge.ts';

const HTML = 'text/html,application/xhtml+xml,*/*;q=0.8';
const BOUNDED = { timeout: 120_000 };

let edge: Edge;

before(async () => {
  edge = await startEdge();
});
after(() => edge[Symbol.asyncDispose]());

for (const path of ['/mcp/', '/mcp/files/']) {
  // N-12
  test(`a path with a trailing slash is served at ${path}`, BOUNDED, async () => {
    const id = await initialize(`${edge.url}${path}`);
    const { status } = await post(`${edge.url}${path.slice(0, -1)}`, rpc(1, 'ping'), id);
    assert.equal(status, 200);
    assert.equal((await post(`${edge.url}${path}`, rpc(1, 'ping'), id)).status, 200);
  });
}

for (const path of ['/sse/', '/sse/files/']) {
  // N-12
  test(`a client of 2024-11-05 gets its stream at ${path}`, BOUNDED, async () => {
    const events = await getEvents(`${edge.url}${path}`, undefined);
    await events.until(({ seen }) => seen.length > 0);
    assert.match(events.seen[0]?.data ?? '', /^\/messages\?sessionId=/);
    events.close();
  });
}

for (const path of ['/', '/v1', '/mcp/files/more', '/messages/']) {
  // N-12
  test(`the refusal of a POST to ${path} names the endpoint`, BOUNDED, async () => {
    const { status, text } = await post(`${edge.url}${path}`, rpc(1, 'ping'));
    assert.equal(status, 404);
    assert.partialDeepStrictEqual(JSON.parse(text), {
      jsonrpc: '2.0',
      error: {
        code: -31004,
        message: `Not found: nothing is served here; the MCP endpoint is ${edge.url}/mcp`,
        data: { code: 'not-found' },
      },
    });
  });
}

// N-12
test('a browser at / gets a page with the URL to use', BOUNDED, async () => {
  const { status, headers, text } = await send(`${edge.url}/`, { headers: { accept: HTML } });
  assert.equal(status, 404);
  assert.match(headers['content-type'] ?? '', /^text\/html/);
  assert.ok(text.includes(`<pre>${edge.url}/mcp</pre>`));
  const other = await send(`${edge.url}/`, { headers: { accept: '*/*' } });
  assert.match(other.headers['content-type'] ?? '', /^application\/json/);
});

/** Opens the event stream of a session and closes it at once. Resolves with the status. */
async function openStream(url: string, sessionId: string): Promise<number> {
  const headers = { accept: 'text/event-stream', 'mcp-session-id': sessionId };
  const opening = request(url, { headers, agent: false }).end();
  const [response] = await once(opening, 'response');
  opening.on('error', () => undefined).destroy();
  return Number(response.statusCode);
}

// N-12
test('limit streamOpensPerMinute: a session that reopens its stream is refused', BOUNDED, async () => {
  const [storm, calm] = [await initialize(`${edge.url}/mcp`), await initialize(`${edge.url}/mcp`)];
  for (let i = 0; i < LIMITS.streamOpensPerMinute; i++) assert.equal(await openStream(`${edge.url}/mcp`, storm), 200);
  const refused = await send(`${edge.url}/mcp`, {
    headers: { accept: 'text/event-stream', 'mcp-session-id': storm },
  });
  assert.equal(refused.status, 429);
  assert.equal(refused.headers['retry-after'], '60');
  assert.equal(JSON.parse(refused.text).error.data.code, 'too-many-requests');
  assert.equal(await openStream(`${edge.url}/mcp`, calm), 200);
  assert.equal((await post(`${edge.url}/mcp`, rpc(1, 'ping'), storm)).status, 200);
  assert.match(await edge.metrics.text(), /^linkspan_limit_reached_total\{limit="streamOpensPerMinute"\} 1$/m);
});

// N-12
test('a token of an unreachable issuer gets a message of its own', BOUNDED, async () => {
  const issuer = 'https://id.example.com';
  const jwt = [
    { issuer, jwksUrl: 'http://127.0.0.1:9/jwks', audiences: [], algorithms: ['RS256'], requiredScopes: [] },
  ];
  const authenticator = createAuthenticator({ jwt, apiKeys: [] }, { log: pino({ level: 'silent' }) });
  await using closed = await startEdge({}, authenticator);
  const part = (value: object) => Buffer.from(JSON.stringify(value)).toString('base64url');
  const expires = Math.floor(Date.now() / 1_000) + 600;
  const token = `${part({ alg: 'RS256', kid: 'k' })}.${part({ iss: issuer, sub: 'me', aud: `${closed.url}/mcp`, exp: expires })}.c2ln`;
  const { status, text } = await post(`${closed.url}/mcp`, rpc(1, 'ping'), undefined, {
    authorization: `Bearer ${token}`,
  });
  assert.equal(status, 503);
  const { error } = JSON.parse(text);
  assert.equal(error.data.code, 'auth-unavailable');
  assert.match(error.message, /^Credentials cannot be checked now/);
});
