/** Tests tokens of a real authorization server, from discovery to a tool call. */
import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import {
  Client,
  type OAuthClientProvider,
  type StoredOAuthClientInformation,
  type StoredOAuthTokens,
  StreamableHTTPClientTransport,
  UnauthorizedError,
} from '@modelcontextprotocol/client';
import { UnauthorizedError as Unauthorized1 } from '@modelcontextprotocol/sdk/client/auth.js';
import { Client as Client1 } from '@modelcontextprotocol/sdk/client/index.js';
import { SSEClientTransport } from '@modelcontextprotocol/sdk/client/sse.js';
import { StreamableHTTPClientTransport as Transport1 } from '@modelcontextprotocol/sdk/client/streamableHttp.js';
import { createRemoteJWKSet, type JWTPayload, jwtVerify } from 'jose';
import { post, rpc, send } from '../downstream/client.ts';
import { startEverything } from '../support/everything-gateway.ts';
import { EXCHANGE } from '../support/exchange-grant.ts';
import { type Guard, startGuard } from '../support/guarded-upstream.ts';
import { type HttpUpstream, legacyUpstream } from '../support/http-upstream.ts';
import { openGateway } from '../support/open-gateway.ts';
import { waitUntil } from '../support/wait-until.ts';
import { type RealIssuer, signInByBrowser, startRealIssuer } from '../support/real-issuer.ts';

const TIMEOUT = { timeout: 120_000 };
const REDIRECT = 'http://127.0.0.1:9/callback';

let upstream: HttpUpstream;
before(async () => {
  const answers = { 'tools/call': () => ({ content: [{ type: 'text', text: 'echoed' }] }) };
  upstream = await legacyUpstream({ tools: [{ name: 'echo', inputSchema: { type: 'object' } }], answers });
});
after(() => upstream[Symbol.asyncDispose]());

const servers = () => ({ up: { url: upstream.url } });
const jwtOf = ({ issuer, jwksUrl }: RealIssuer) => ({
  auth: { jwt: [{ issuer, jwksUrl, requiredScopes: ['mcp'], types: ['at+jwt'] }] },
});

async function statusOf(url: string, token: string): Promise<number> {
  const params = { protocolVersion: '2025-11-25', capabilities: {}, clientInfo: { name: 'test', version: '1' } };
  const headers = { authorization: `Bearer ${token}` };
  return (await post(url, rpc(0, 'initialize', params), undefined, headers)).status;
}

/** The memory of a client that signs in. */
class Memory implements OAuthClientProvider {
  readonly redirectUrl = REDIRECT;
  readonly clientMetadata = {
    client_name: 'test',
    redirect_uris: [REDIRECT],
    grant_types: ['authorization_code'],
    response_types: ['code'],
    token_endpoint_auth_method: 'none',
    application_type: 'native',
  };
  authorizationUrl: URL | undefined;

  static of(client: StoredOAuthClientInformation): Memory {
    const memory = new Memory();
    memory.saveClientInformation(client);
    return memory;
  }

  #client: StoredOAuthClientInformation | undefined;
  #tokens: StoredOAuthTokens | undefined;
  #verifier = '';

  clientInformation() {
    return this.#client;
  }

  saveClientInformation(client: StoredOAuthClientInformation) {
    this.#client = client;
  }

  tokens() {
    return this.#tokens;
  }

  saveTokens(tokens: StoredOAuthTokens) {
    this.#tokens = tokens;
  }

  redirectToAuthorization(url: URL) {
    this.authorizationUrl = url;
  }

  saveCodeVerifier(verifier: string) {
    this.#verifier = verifier;
  }

  codeVerifier() {
    return this.#verifier;
  }
}

function connectionTo(url: string, memory: Memory) {
  const transport = new StreamableHTTPClientTransport(new URL(url), { authProvider: memory });
  return { transport, client: new Client({ name: 'test', version: '1' }) };
}

/** Signs in at the page to which a client was sent. */
async function signInAgain(memory: Memory, transport: StreamableHTTPClientTransport): Promise<void> {
  assert.ok(memory.authorizationUrl !== undefined);
  const callback = await signInByBrowser(memory.authorizationUrl, REDIRECT);
  await transport.finishAuth(callback.searchParams);
}

/** Returns a client that has signed in. */
async function signedIn(url: string, memory = new Memory()) {
  const first = connectionTo(url, memory);
  await assert.rejects(first.client.connect(first.transport), UnauthorizedError);
  await signInAgain(memory, first.transport);
  const second = connectionTo(url, memory);
  await second.client.connect(second.transport);
  return { ...second, memory };
}

//
test('the SDK v2 client signs in through our metadata and calls a tool', TIMEOUT, async () => {
  await using issuer = await startRealIssuer();
  await using gateway = await openGateway(servers(), jwtOf(issuer));
  const { client, memory } = await signedIn(gateway.url);
  assert.equal(memory.authorizationUrl?.origin, issuer.issuer);
  assert.equal(memory.authorizationUrl.searchParams.get('resource'), gateway.url);
  assert.equal(memory.authorizationUrl.searchParams.get('scope'), 'mcp');
  const { tools } = await client.listTools();
  assert.deepEqual(
    tools.map(({ name }) => name),
    ['up__echo'],
  );
  await client.close();
});

/** Returns a gateway whose only tool needs a scope that its clients get on demand, and a client that may have it at the issuer. */
async function stepUpPlace() {
  // A client that registers itself has the scopes that it asked for first.
  const issuer = await startRealIssuer('jwt', [
    {
      client_id: 'app',
      redirect_uris: [REDIRECT],
      grant_types: ['authorization_code'],
      response_types: ['code'],
      token_endpoint_auth_method: 'none',
      application_type: 'native',
    },
  ]);
  const { auth } = jwtOf(issuer);
  const access = {
    roles: { caller: { upstreams: ['up'] } },
    grants: [{ roles: ['caller'], scopes: ['other'] }],
  };
  const jwt = auth.jwt.map((entry) => ({ ...entry, scopesOnDemand: ['other'] }));
  const gateway = await openGateway(servers(), { auth: { jwt }, access });
  const stop = async () => {
    await gateway[Symbol.asyncDispose]();
    await issuer[Symbol.asyncDispose]();
  };
  return { url: gateway.url, memory: Memory.of({ client_id: 'app' }), [Symbol.asyncDispose]: stop };
}

const ECHO = { name: 'up__echo', arguments: {} };
const ECHOED = [{ type: 'text', text: 'echoed' }];

// P-009
test('the SDK v2 client signs in again for the scope that a call needs', TIMEOUT, async () => {
  await using place = await stepUpPlace();
  const { client, transport, memory } = await signedIn(place.url, place.memory);
  assert.equal(memory.tokens()?.scope, 'mcp');
  await assert.rejects(client.callTool(ECHO), UnauthorizedError);
  assert.equal(memory.authorizationUrl?.searchParams.get('scope'), 'mcp other');
  await signInAgain(memory, transport);
  assert.deepEqual((await client.callTool(ECHO)).content, ECHOED);
  assert.equal(memory.tokens()?.scope, 'mcp other');
  await client.close();
});

// P-009
test('the SDK v1 client signs in again for the scope, and goes on with its session', TIMEOUT, async () => {
  await using place = await stepUpPlace();
  const { client: other, memory } = await signedIn(place.url, place.memory);
  await other.close();
  const transport = new Transport1(new URL(place.url), { authProvider: memory });
  const client = new Client1({ name: 'test', version: '1' });
  await client.connect(transport);
  const { sessionId } = transport;
  await assert.rejects(client.callTool(ECHO), Unauthorized1);
  assert.equal(memory.authorizationUrl?.searchParams.get('scope'), 'mcp other');
  const callback = await signInByBrowser(memory.authorizationUrl, REDIRECT);
  await transport.finishAuth(callback.searchParams.get('code') ?? '');
  assert.deepEqual((await client.callTool(ECHO)).content, ECHOED);
  assert.equal(transport.sessionId, sessionId);
  await client.close();
});

// SEC-13
test('an upstream gets the token that the issuer exchanges for that of its user', TIMEOUT, async () => {
  const exchanger = { client_id: 'linkspan', client_secret: 'the-secret-of-the-exchanging-client' };
  await using issuer = await startRealIssuer('jwt', [{ ...exchanger, grant_types: [EXCHANGE] }]);
  await using behind = await startEverything();
  const keys = createRemoteJWKSet(new URL(issuer.jwksUrl));
  const claims: JWTPayload[] = [];
  await using guard: Guard = await startGuard(behind.url, async (authorization = '') => {
    const expected = { issuer: issuer.issuer, audience: guard.url, typ: 'at+jwt' };
    const verified = await jwtVerify(authorization.slice('Bearer '.length), keys, expected).catch(() => undefined);
    if (verified !== undefined) claims.push(verified.payload);
    return verified !== undefined;
  });
  const { client_id: clientId, client_secret: clientSecret } = exchanger;
  const auth = { kind: 'exchange', issuer: issuer.issuer, clientId, clientSecret };
  await using gateway = await openGateway({ up: { url: guard.url, auth } }, jwtOf(issuer));
  const { client, memory } = await signedIn(gateway.url);
  const token = memory.tokens()?.access_token ?? '';
  await waitUntil(async () => (await client.listTools()).tools.length > 0);
  const { content } = await client.callTool({ name: 'up__echo', arguments: { message: 'hi' } });
  assert.deepEqual(content, [{ type: 'text', text: 'Echo: hi' }]);
  await client.close();
  assert.ok(
    guard.requests.every(({ isAccepted }) => isAccepted),
    'nothing else reaches the upstream',
  );
  assert.ok(guard.requests.some(({ what }) => what === 'POST tools/call'));
  for (const { sub, act, scope, client_id: azp } of claims) {
    assert.deepEqual([sub, act, scope, azp], ['ann', { sub: clientId }, 'mcp', clientId]);
  }
  const seen = JSON.stringify(guard.requests);
  for (const secret of [token, clientSecret]) assert.ok(secret !== '' && !seen.includes(secret));
});

//
test('a client of 2025-03-26 finds the issuer at our origin', TIMEOUT, async () => {
  await using issuer = await startRealIssuer();
  await using gateway = await openGateway(servers(), jwtOf(issuer));
  const response = await fetch(new URL('/.well-known/oauth-authorization-server', gateway.url));
  const found: { readonly token_endpoint?: string; readonly registration_endpoint?: string } = JSON.parse(
    await response.text(),
  );
  assert.equal(found.token_endpoint, `${issuer.issuer}/token`);
  assert.equal(found.registration_endpoint, `${issuer.issuer}/reg`);
  await using open = await openGateway(servers());
  assert.equal((await fetch(new URL('/.well-known/oauth-authorization-server', open.url))).status, 404);
});

//
test('a token is good for the endpoint that it was asked for, and no other', TIMEOUT, async () => {
  await using issuer = await startRealIssuer();
  await using gateway = await openGateway(servers(), jwtOf(issuer));
  const endpoint = `${gateway.url}/up`;
  const tokens = { merged: await issuer.token(gateway.url), one: await issuer.token(endpoint) };
  assert.deepEqual([await statusOf(gateway.url, tokens.merged), await statusOf(endpoint, tokens.merged)], [200, 401]);
  assert.deepEqual([await statusOf(gateway.url, tokens.one), await statusOf(endpoint, tokens.one)], [401, 200]);
  const { origin, pathname } = new URL(endpoint);
  const metadata = await send(`${origin}/.well-known/oauth-protected-resource${pathname}`, {});
  assert.equal(JSON.parse(metadata.text).resource, endpoint);
});

for (const [path, other, published] of [
  ['/sse', '/sse/up', 'up__echo'],
  ['/sse/up', '/sse', 'echo'],
] as const) {
  //
  test(`a client of HTTP+SSE signs in at ${path}`, TIMEOUT, async () => {
    await using issuer = await startRealIssuer();
    await using gateway = await openGateway(servers(), jwtOf(issuer));
    const url = new URL(path, gateway.url);
    const memory = new Memory();
    const connection = () => ({
      transport: new SSEClientTransport(url, { authProvider: memory }),
      client: new Client1({ name: 'test', version: '1' }),
    });
    const first = connection();
    await assert.rejects(first.client.connect(first.transport), Unauthorized1);
    assert.equal(memory.authorizationUrl?.searchParams.get('resource'), url.href);
    const callback = await signInByBrowser(memory.authorizationUrl, REDIRECT);
    await first.transport.finishAuth(callback.searchParams.get('code') ?? '');
    const { client, transport } = connection();
    await client.connect(transport);
    const { tools } = await client.listTools();
    assert.deepEqual(
      tools.map(({ name }) => name),
      [published],
    );
    await client.close();

    const streamAt = async (at: string, resource: string) => {
      const token = await issuer.token(new URL(resource, gateway.url).href);
      const headers = { accept: 'text/event-stream', authorization: `Bearer ${token}` };
      const response = await fetch(new URL(at, gateway.url), { headers });
      await response.body?.cancel();
      return response.status;
    };
    const modern = path.replace('/sse', '/mcp');
    assert.equal(await streamAt(path, modern), 200, 'a token for the same endpoint of Streamable HTTP');
    assert.deepEqual([await streamAt(other, path), await streamAt(other, modern)], [401, 401]);
  });
}

// SEC-06
test('a real token without the scope gets 403', TIMEOUT, async () => {
  await using issuer = await startRealIssuer();
  await using gateway = await openGateway(servers(), jwtOf(issuer));
  assert.equal(await statusOf(gateway.url, await issuer.token(gateway.url, 'other')), 403);
  assert.equal(await statusOf(gateway.url, await issuer.token(gateway.url, '')), 403);
  assert.equal(await statusOf(gateway.url, await issuer.token(gateway.url, 'other mcp')), 200);
});

// R18
test('keys are rotated and fetched again, and their outage is no refusal', TIMEOUT, async () => {
  await using issuer = await startRealIssuer();
  await using gateway = await openGateway(servers(), jwtOf(issuer));
  const old = await issuer.token(gateway.url);
  assert.equal(await statusOf(gateway.url, old), 200);
  const sameKey = await issuer.token(gateway.url);
  await issuer.rotateKeys();
  const fresh = await issuer.token(gateway.url);
  assert.equal(await statusOf(gateway.url, fresh), 200, 'the new key is fetched at once');

  await issuer.rotateKeys();
  const unknown = await issuer.token(gateway.url);
  const known = await statusOf(gateway.url, fresh);
  issuer.setDown(true);
  assert.equal(known, 200);
  assert.equal(await statusOf(gateway.url, sameKey), 401, 'its key was withdrawn');
  await using other = await openGateway(servers(), jwtOf(issuer));
  assert.equal(await statusOf(other.url, unknown), 503, 'without any key nothing can be judged');
  issuer.setDown(false);
});

test('opaque tokens of a real issuer are introspected', TIMEOUT, async () => {
  await using issuer = await startRealIssuer('opaque');
  const { id: clientId, secret: clientSecret } = issuer.client;
  const entry = {
    issuer: issuer.issuer,
    endpoint: issuer.introspectionUrl,
    clientId,
    clientSecret,
    requiredScopes: ['mcp'],
  };
  await using gateway = await openGateway(servers(), { auth: { introspection: [entry] } });
  assert.equal(await statusOf(gateway.url, await issuer.token('https://other.example.com')), 401);
  assert.equal(await statusOf(gateway.url, await issuer.token(gateway.url, 'other')), 403);
  assert.equal(await statusOf(gateway.url, await issuer.token(gateway.url)), 200);
  assert.equal(await statusOf(gateway.url, 'made-up'), 401);
  const token = await issuer.token(gateway.url);
  issuer.setDown(true);
  assert.equal(await statusOf(gateway.url, token), 503);
});
