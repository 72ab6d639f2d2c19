/** Tests every route and method of the ports with every kind of bad credentials. The routes are those of the live apps. */
import assert from 'node:assert/strict';
import { createHmac, hash } from 'node:crypto';
import { once } from 'node:events';
import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { request } from 'node:http';
import { createServer } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, test } from 'node:test';
import { exportSPKI, type JWK, importJWK } from 'jose';
import { pino } from 'pino';
import { createApp, createEndpoints } from '../../src/downstream/http/app.ts';
import { createEdgeMemory } from '../../src/downstream/memory/edge-memory.ts';
import { memoryEventLogs } from '../../src/downstream/streams/memory-event-log.ts';
import { createAdminApp } from '../../src/operator/admin/admin-app.ts';
import { createOperatorApp } from '../../src/operator/app.ts';
import { ADMIN_PATH } from '../../src/operator/admin/routes.ts';
import { createMetrics } from '../../src/telemetry/metrics.ts';
import { signingKey, TestIssuer } from '../auth/issuer.ts';
import { BOTH, initialize, rpc } from '../downstream/client.ts';
import { ACCEPTING, BY_NAME, configWith } from '../downstream/edge.ts';
import { HonestFront } from '../downstream/honest-front.ts';
import { type RunningGateway, startGateway } from '../support/gateway.ts';
import { waitUntil } from '../support/wait-until.ts';

const TIMEOUT = { timeout: 300_000 };
const METHODS = ['GET', 'HEAD', 'POST', 'PUT', 'PATCH', 'DELETE', 'OPTIONS', 'TRACE', 'PROPFIND'];
const [GOOD_KEY, REVOKED_KEY, EXPIRED_KEY] = [
  'good-key-0123456789',
  'revoked-key-0123456789',
  'expired-key-0123456789',
];
/** After the end of this file, on any machine. */
const LATER = Math.floor(Date.now() / 1_000) + 3_600;
const OPERATOR_KEY = 'operator-key-0123456789';
const PUBLIC_URL = 'http://gateway.example.com';

/** Returns the paths of the routes of an app, with its parameters filled in. */
function pathsOf(app: { readonly routes: readonly { readonly path: string }[] }): readonly string[] {
  const paths = app.routes.map(({ path }) => path).filter((path) => path !== '/*' && path !== '*');
  return [...new Set(paths.flatMap((path) => ['spy', 'nope'].map((name) => path.replace(/:\w+/, name))))];
}

/** The paths of the client's port. Those of metadata need no credentials. */
function clientPaths(): readonly string[] {
  const [config, metrics, log, front] = [
    configWith({}),
    createMetrics('0'),
    pino({ level: 'silent' }),
    new HonestFront(),
  ];
  const memory = createEdgeMemory(config, metrics);
  const openEventLog = memoryEventLogs({ events: 1, bytes: 1 }, memory.events);
  const endpoints = createEndpoints({ ...ACCEPTING, front, config, log, metrics, memory, openEventLog });
  const origin = 'http://127.0.0.1';
  return pathsOf(createApp({ front, endpoints, authenticator: BY_NAME, config, origin, log, metrics }).app);
}

/** Sends one request with these raw headers. */
async function ask(method: string, url: string, authorization: readonly string[]) {
  const headers = ['host', new URL(url).host, 'accept', BOTH, 'content-type', 'application/json'];
  const sending = request(url, {
    method,
    headers: [...headers, ...authorization.flatMap((value) => ['authorization', value])],
    agent: false,
  });
  sending.end(['POST', 'PUT', 'PATCH'].includes(method) ? rpc(1, 'tools/list') : undefined);
  const { promise, resolve, reject } = Promise.withResolvers<{ status: number; challenge: string | undefined }>();
  sending.on('error', reject).on('response', (response) => {
    resolve({ status: response.statusCode ?? 0, challenge: response.headers['www-authenticate'] });
    response.destroy();
  });
  return await promise;
}

interface Bad {
  readonly name: string;
  readonly authorization: readonly string[];
  /** Added to the URL. */
  readonly query?: string;
  readonly status: 400 | 401 | 403;
}

const KEY = await signingKey('RS256', 'main');
let dir = '';
let issuer: TestIssuer;
let gateway: RunningGateway;
let bad: readonly Bad[] = [];
/** Bytes that upstreams have received. */
let upstreamBytes = 0;
const spy = createServer((socket) =>
  socket.on('data', (chunk) => (upstreamBytes += chunk.length)).on('error', () => undefined),
);

const part = (value: object) => Buffer.from(JSON.stringify(value)).toString('base64url');

async function publicPem(jwk: JWK): Promise<string> {
  const key = await importJWK(jwk, 'RS256');
  assert.ok(!(key instanceof Uint8Array));
  return await exportSPKI(key);
}

async function badCredentials(): Promise<readonly Bad[]> {
  const bearer = (token: string) => [`Bearer ${token}`];
  const scope = 'mcp';
  const aud = [`${PUBLIC_URL}/mcp`, `${PUBLIC_URL}/mcp/spy`, `${PUBLIC_URL}/mcp/nope`];
  const good = await issuer.token({ aud, scope, exp: LATER });
  const [header = '', body = '', signature = ''] = good.split('.');
  const foreign = await signingKey('RS256', 'main');
  const hs256 = `${part({ alg: 'HS256', kid: 'main' })}.${body}`;
  const mac = createHmac('sha256', await publicPem(KEY.jwk))
    .update(hs256)
    .digest('base64url');
  const claims = { aud, scope, sub: 'admin' };
  return [
    { name: 'no credentials', authorization: [], status: 401 },
    { name: 'an unknown key', authorization: bearer('who-knows'), status: 401 },
    { name: 'an expired token', authorization: bearer(await issuer.token({ ...claims, exp: 1 })), status: 401 },
    {
      name: 'a foreign issuer',
      authorization: bearer(await issuer.token({ ...claims, iss: 'https://evil.example' })),
      status: 401,
    },
    { name: 'a foreign key', authorization: bearer(await issuer.token(claims, {}, foreign)), status: 401 },
    {
      name: 'another audience',
      authorization: bearer(await issuer.token({ ...claims, aud: 'https://other.example' })),
      status: 401,
    },
    { name: 'alg none', authorization: bearer(`${part({ alg: 'none' })}.${body}.`), status: 401 },
    { name: 'HS256 with the public key', authorization: bearer(`${hs256}.${mac}`), status: 401 },
    { name: 'tampered claims', authorization: bearer(`${header}.${part(claims)}.${signature}`), status: 401 },
    { name: 'no scope', authorization: bearer(await issuer.token({ aud, scope: 'other', exp: LATER })), status: 403 },
    { name: 'a revoked key', authorization: bearer(REVOKED_KEY), status: 401 },
    { name: 'an expired key', authorization: bearer(EXPIRED_KEY), status: 401 },
    { name: 'two headers', authorization: [...bearer(GOOD_KEY), ...bearer(GOOD_KEY)], status: 400 },
    { name: 'a key in the query', authorization: [], query: `?access_token=${GOOD_KEY}`, status: 401 },
    { name: 'Basic', authorization: [`Basic ${Buffer.from(`x:${GOOD_KEY}`).toString('base64')}`], status: 401 },
    { name: 'a malformed header', authorization: [`Bearer ${GOOD_KEY} ${GOOD_KEY}`], status: 400 },
    { name: 'an empty token', authorization: ['Bearer '], status: 400 },
    { name: 'the key of an operator', authorization: bearer(OPERATOR_KEY), status: 401 },
  ];
}

const keyFileOf = (...keys: readonly object[]) => JSON.stringify({ version: 1, keys });

before(async () => {
  dir = await mkdtemp(join(tmpdir(), 'linkspan-routes-'));
  spy.listen(0, '127.0.0.1');
  await once(spy, 'listening');
  const address = spy.address();
  assert.ok(typeof address === 'object' && address !== null);
  issuer = await TestIssuer.start(KEY);
  const keyFile = join(dir, 'keys.json');
  const good = { name: 'good', sha256: hash('sha256', GOOD_KEY) };
  const expired = { name: 'expired', sha256: hash('sha256', EXPIRED_KEY), expiresAt: '2026-01-01T00:00:00Z' };
  await writeFile(keyFile, keyFileOf(good, expired, { name: 'revoked', sha256: hash('sha256', REVOKED_KEY) }), {
    mode: 0o600,
  });
  const jwt = [{ issuer: issuer.issuer, jwksUrl: issuer.jwksUrl, requiredScopes: ['mcp'] }];
  const operatorKeys = [{ name: 'ops', sha256: hash('sha256', OPERATOR_KEY) }];
  gateway = await startGateway({
    // With identity tokens, their keys are served.
    mcpServers: { spy: { url: `http://127.0.0.1:${address.port}/mcp`, start: 'lazy', auth: { kind: 'identity' } } },
    // The upstream never answers, and nothing here waits for its lists.
    gateway: { publicUrl: PUBLIC_URL, auth: { jwt, keyFile }, operatorKeys, lists: { wait: '0s' } },
  });
  // The key was in use before it was revoked.
  await initialize(`${gateway.url}/mcp/nope-yet`, undefined, { authorization: `Bearer ${REVOKED_KEY}` }).catch(
    () => undefined,
  );
  await writeFile(keyFile, keyFileOf(good, expired), { mode: 0o600 });
  const isRefused = async () => (await ask('POST', `${gateway.url}/mcp`, [`Bearer ${REVOKED_KEY}`])).status === 401;
  await waitUntil(isRefused);
  upstreamBytes = 0;
  bad = await badCredentials();
});

after(async () => {
  await gateway.stop();
  await issuer.stop();
  spy.close();
  await rm(dir, { recursive: true });
});

// SEC-01
test('each route of clients refuses each kind of bad credentials, whatever the method', TIMEOUT, async () => {
  const paths = clientPaths();
  const guarded = paths.filter((path) => !path.startsWith('/.well-known/'));
  for (const expected of ['/mcp', '/mcp/spy', '/mcp/nope/', '/sse', '/sse/spy', '/messages']) {
    assert.ok(guarded.includes(expected), `${expected} is not among ${guarded.join(' ')}`);
  }
  let asked = 0;
  for (const path of guarded) {
    for (const method of METHODS) {
      const answers = bad.map(async ({ name, authorization, query = '', status }) => {
        const got = await ask(method, `${gateway.url}${path}${query}`, authorization);
        assert.equal(got.status, status, `${method} ${path} with ${name}`);
        assert.match(got.challenge ?? '', /^Bearer /, `${method} ${path} with ${name}`);
        assert.match(got.challenge ?? '', /resource_metadata="http:\/\/gateway\.example\.com\/\.well-known\//);
        asked++;
      });
      await Promise.all(answers);
    }
  }
  assert.equal(asked, guarded.length * METHODS.length * bad.length);
  assert.equal(upstreamBytes, 0, 'an upstream got bytes of a refused request');
});

// SEC-01
test('metadata needs no credentials, and any other path has nothing', TIMEOUT, async () => {
  for (const path of clientPaths().filter((each) => each.startsWith('/.well-known/'))) {
    for (const method of METHODS) {
      const found = path.endsWith('/oauth-authorization-server') ? 302 : 200;
      const expected = method === 'GET' || method === 'HEAD' ? found : 405;
      assert.equal((await ask(method, `${gateway.url}${path}`, [])).status, expected, `${method} ${path}`);
    }
  }
  for (const path of ['/', '/metrics', '/admin/v1/status', '/status', '/mcp/a/b', '/.well-known/other']) {
    for (const method of METHODS) {
      assert.equal(
        (await ask(method, `${gateway.url}${path}`, [`Bearer ${GOOD_KEY}`])).status,
        404,
        `${method} ${path}`,
      );
    }
  }
  assert.equal(upstreamBytes, 0);
});

/** The paths of the operator's port, with those of the admin API. */
function operatorPaths(): readonly string[] {
  const unused = () => assert.fail('not called');
  const port = new Proxy(Object.create(null), { get: unused });
  const log = pino({ level: 'silent' });
  const admin = createAdminApp({ port, operators: unused, version: '0', log, onRefused: unused, onLimit: unused });
  const app = createOperatorApp({
    metrics: createMetrics('0'),
    version: '0',
    allowedHosts: [],
    startedAtMs: 0,
    isLocal: true,
    admin,
    onRefused: unused,
    ready: unused,
    upstreams: unused,
    config: unused,
  });
  return pathsOf(app).map((path) => path.replace('{id}', 'x'));
}

// SEC-01
test('the operator port has no open routes but these', TIMEOUT, async () => {
  const paths = operatorPaths().filter((path) => !path.startsWith(`${ADMIN_PATH}/`));
  const open = ['/livez', '/metrics', '/readyz', '/startupz', '/status', '/version'];
  assert.deepEqual(paths.toSorted(), open);
  for (const path of open) {
    for (const method of METHODS) {
      const expected = method === 'GET' || method === 'HEAD' ? 200 : 405;
      assert.equal((await ask(method, `${gateway.operatorUrl}${path}`, [])).status, expected, `${method} ${path}`);
    }
  }
});

// SEC-01
test('each admin route refuses credentials of clients and bad ones', TIMEOUT, async () => {
  const paths = operatorPaths().filter((path) => path.startsWith(`${ADMIN_PATH}/`) && !path.includes('*'));
  assert.ok(paths.length > 10, paths.join(' '));
  const foreign: readonly Bad[] = [
    ...bad,
    { name: 'a valid key of a client', authorization: [`Bearer ${GOOD_KEY}`], status: 401 },
  ];
  for (const path of paths.filter((each) => each !== `${ADMIN_PATH}/openapi.json`)) {
    for (const method of METHODS) {
      await Promise.all(
        foreign
          .filter(({ name }) => name !== 'the key of an operator')
          .map(async ({ name, authorization, query = '' }) => {
            const { status } = await ask(method, `${gateway.operatorUrl}${path}${query}`, authorization);
            assert.ok(status === 401 || status === 400, `${method} ${path} with ${name}: ${status}`);
          }),
      );
    }
  }
  const { status } = await ask('GET', `${gateway.operatorUrl}${ADMIN_PATH}/status`, [`Bearer ${OPERATOR_KEY}`]);
  assert.equal(status, 200);
  assert.equal(upstreamBytes, 0);
});

test('good credentials are let in by the same gateway, and reach the upstream', TIMEOUT, async () => {
  for (const path of ['/mcp', '/mcp/spy']) {
    const token = await issuer.token({ aud: `${PUBLIC_URL}${path}`, scope: 'mcp' });
    for (const good of [token, GOOD_KEY]) {
      assert.ok((await initialize(`${gateway.url}${path}`, undefined, { authorization: `Bearer ${good}` })) !== '');
    }
  }
  void ask('POST', `${gateway.url}/mcp/spy`, [`Bearer ${GOOD_KEY}`]).catch(() => undefined);
  await waitUntil(() => upstreamBytes > 0);
});
