/** Tests the credentials that the gateway gets for upstreams, with a real issuer, real upstreams and all transports. */
import assert from 'node:assert/strict';
import { generateKeyPairSync } from 'node:crypto';
import { readFile, writeFile } from 'node:fs/promises';
import { test } from 'node:test';
import { createRemoteJWKSet, exportJWK, jwtVerify } from 'jose';
import { initialize, messagesOf, post, rpc, send } from '../downstream/client.ts';
import { EXPECTED_REQUESTS, TRANSPORTS, useAsModern, useAsSession } from '../support/all-methods.ts';
import { type Guard, startGuard } from '../support/guarded-upstream.ts';
import { type OpenGateway, openGateway } from '../support/open-gateway.ts';
import { startEverything } from '../support/everything-gateway.ts';
import { type RealIssuer, startRealIssuer } from '../support/real-issuer.ts';
import { waitUntil } from '../support/wait-until.ts';
import { type Members, membersOf } from '../support/members.ts';

const LIMIT = { timeout: 120_000 };
const CANARY = 'canary-0123456789';
const CLIENT = { authorization: `Bearer ${CANARY}`, cookie: `session=${CANARY}`, 'x-api-key': CANARY };

/** Returns whether a token of the issuer is for this resource. */
function checkOf({ issuer, jwksUrl }: RealIssuer, resource: () => string) {
  const keys = createRemoteJWKSet(new URL(jwksUrl), { cooldownDuration: 0 });
  return async (authorization: string | undefined): Promise<boolean> => {
    const token = /^Bearer (.+)$/.exec(authorization ?? '')?.[1];
    if (token === undefined) return false;
    try {
      await jwtVerify(token, keys, { issuer, audience: resource() });
      return true;
    } catch {
      return false;
    }
  };
}

async function statusOf({ operatorUrl }: OpenGateway): Promise<Members> {
  const { text } = await send(`${operatorUrl}/status`, {});
  return membersOf(JSON.parse(text).upstreams[0]);
}

const { privateKey, publicKey } = generateKeyPairSync('ec', { namedCurve: 'P-256' });
const pem = privateKey.export({ type: 'pkcs8', format: 'pem' });

async function issuerOfAllMethods(): Promise<RealIssuer> {
  return await startRealIssuer('jwt', [
    {
      client_id: 'poster',
      client_secret: 'the-secret-of-the-poster-client',
      token_endpoint_auth_method: 'client_secret_post',
    },
    {
      client_id: 'signer',
      token_endpoint_auth_method: 'private_key_jwt',
      token_endpoint_auth_signing_alg: 'ES256',
      jwks: { keys: [{ ...(await exportJWK(publicKey)), kid: 'k1', alg: 'ES256', use: 'sig' }] },
    },
  ]);
}

const METHODS: Readonly<Record<string, Members>> = {
  client_secret_basic: { clientId: 'machine', clientSecret: 'the-secret-of-the-machine-client' },
  client_secret_post: {
    clientId: 'poster',
    clientSecret: 'the-secret-of-the-poster-client',
    method: 'client_secret_post',
  },
  private_key_jwt: { clientId: 'signer', privateKey: pem, keyId: 'k1' },
};

for (const [method, client] of Object.entries(METHODS)) {
  test(`clientCredentials with ${method} at a real issuer opens the upstream`, LIMIT, async () => {
    await using issuer = await issuerOfAllMethods();
    await using behind = await startEverything();
    await using guard: Guard = await startGuard(
      behind.url,
      checkOf(issuer, () => guard.url),
    );
    const auth = { kind: 'clientCredentials', issuer: issuer.issuer, scopes: ['mcp'], ...client };
    await using gateway = await openGateway({ up: { url: guard.url, prefix: '', auth } });
    const session = await initialize(gateway.url);
    const called = await post(
      gateway.url,
      rpc(1, 'tools/call', { name: 'echo', arguments: { message: 'hi' } }),
      session,
    );
    assert.match(JSON.stringify(messagesOf(called)), /Echo: hi/);
    assert.deepEqual(
      guard.requests.filter(({ isAccepted }) => !isAccepted),
      [],
    );
    assert.equal(issuer.paths.filter((path) => path === '/token').length, 1, 'all requests share one token');
  });
}

for (const transport of ['legacy', 'modern', 'sse'] as const) {
  for (const kind of ['static', 'clientCredentials'] as const) {
    // SEC-13
    test(`requests over ${transport} carry ${kind} credentials, none of a client`, LIMIT, async () => {
      await using issuer = await startRealIssuer();
      await using behind = await startEverything();
      const target = transport === 'sse' ? `${new URL(behind.url).origin}/sse` : behind.url;
      const fixed = 'Bearer the-static-credential-of-the-gateway';
      const isToken = checkOf(issuer, () => guard.url);
      await using guard: Guard = await startGuard(target, kind === 'static' ? (given) => given === fixed : isToken);
      const { client } = issuer;
      const auth = { kind, issuer: issuer.issuer, clientId: client.id, clientSecret: client.secret, scopes: ['mcp'] };
      const own = kind === 'static' ? { headers: { Authorization: fixed }, auth: { kind } } : { auth };
      await using gateway = await openGateway({
        up: { url: guard.url, prefix: '', rawUris: true, ...TRANSPORTS[transport], ...own },
      });
      const session = await useAsSession(gateway.url, CLIENT);
      await useAsModern(gateway.url, CLIENT);
      await gateway.stop();

      assert.deepEqual(
        guard.requests.filter(({ isAccepted }) => !isAccepted),
        [],
      );
      const seen = new Set(guard.requests.map(({ what }) => what));
      const missing = EXPECTED_REQUESTS[transport].filter((what) => !seen.has(what));
      assert.deepEqual(missing, [], `seen: ${[...seen].join(', ')}`);
      const text = JSON.stringify(guard.requests);
      assert.ok(!text.includes(CANARY), 'a credential of a client has reached the upstream');
      assert.ok(!text.includes(session), 'the session id of a client has reached the upstream');
      assert.ok(guard.requests.every(({ headers }) => headers.cookie === undefined));
    });
  }
}

const TOOL = { name: 'echo', arguments: { message: 'hi' } };

for (const era of ['legacy', 'modern'] as const) {
  test(`a ${era} call refused with 401 runs once, after one renewal of the token`, LIMIT, async () => {
    await using issuer = await startRealIssuer();
    await using behind = await startEverything();
    const isToken = checkOf(issuer, () => guard.url);
    await using guard: Guard = await startGuard(behind.url, isToken);
    const { client } = issuer;
    const auth = {
      kind: 'clientCredentials',
      issuer: issuer.issuer,
      clientId: client.id,
      clientSecret: client.secret,
      scopes: ['mcp'],
    };
    await using gateway = await openGateway({ up: { url: guard.url, prefix: '', era, auth } });
    const session = await initialize(gateway.url);
    let lastId = 0;
    const call = async () =>
      JSON.stringify(messagesOf(await post(gateway.url, rpc(++lastId, 'tools/call', TOOL), session)));
    assert.match(await call(), /Echo: hi/);
    const revoked = guard.requests.at(-1)?.headers.authorization;
    guard.accept(async (given) => given !== revoked && (await isToken(given)));
    const before = guard.requests.length;
    const answers = await Promise.all([call(), call(), call(), call()]);
    for (const answer of answers) assert.match(answer, /Echo: hi/);
    const calls = guard.requests.slice(before).filter(({ what }) => what === 'POST tools/call');
    assert.equal(calls.filter(({ isAccepted }) => isAccepted).length, 4, 'each call has run once');
    assert.ok(calls.filter(({ isAccepted }) => !isAccepted).length <= 4, 'each call was refused once at most');
    assert.equal(issuer.paths.filter((path) => path === '/token').length, 2, 'the calls share one renewal');
  });
}

test('a second 401 means needs-authorization until the credentials are accepted again', LIMIT, async () => {
  await using issuer = await startRealIssuer();
  await using behind = await startEverything();
  const isToken = checkOf(issuer, () => guard.url);
  await using guard: Guard = await startGuard(behind.url, isToken);
  const { client } = issuer;
  const auth = {
    kind: 'clientCredentials',
    issuer: issuer.issuer,
    clientId: client.id,
    clientSecret: client.secret,
    scopes: ['mcp'],
  };
  await using gateway = await openGateway({ up: { url: guard.url, prefix: '', auth } });
  const session = await initialize(gateway.url);
  const tools = async () => messagesOf(await post(gateway.url, rpc(1, 'tools/list'), session)).at(-1)?.result;
  const listed = await tools();
  assert.match(JSON.stringify(messagesOf(await post(gateway.url, rpc(4, 'tools/call', TOOL), session))), /Echo: hi/);
  guard.accept(() => false);
  const before = guard.requests.length;
  const refused = messagesOf(await post(gateway.url, rpc(2, 'tools/call', TOOL), session)).at(-1)?.error;
  assert.partialDeepStrictEqual(refused, { data: { code: 'upstream-unavailable', executed: 'no', retryable: false } });
  const calls = guard.requests.slice(before).filter(({ what }) => what === 'POST tools/call');
  assert.equal(calls.length, 2, 'sent once more, and not again');
  await waitUntil(async () => (await statusOf(gateway))['state'] === 'needs-authorization');
  const status = await statusOf(gateway);
  assert.match(String(status['reason']), /got no credentials that it accepts \(HTTP 401\)/);
  assert.match(await gateway.metrics(), /linkspan_upstream_state_info\{upstream="up",state="needs-authorization"\} 1/);
  assert.deepEqual(await tools(), listed, 'the lists stay');
  guard.accept(isToken);
  await waitUntil(async () => (await statusOf(gateway))['state'] === 'ready');
  assert.match(JSON.stringify(messagesOf(await post(gateway.url, rpc(3, 'tools/call', TOOL), session))), /Echo: hi/);
});

test('a refusal of the issuer means needs-authorization, and clients do not read it', LIMIT, async () => {
  await using issuer = await startRealIssuer();
  await using behind = await startEverything();
  await using guard: Guard = await startGuard(behind.url, () => true);
  const auth = {
    kind: 'clientCredentials',
    issuer: issuer.issuer,
    clientId: 'machine',
    clientSecret: 'a-wrong-secret-0123456789',
  };
  await using gateway = await openGateway({ up: { url: guard.url, prefix: '', auth, start: 'eager' } });
  await waitUntil(async () => (await statusOf(gateway))['state'] === 'needs-authorization');
  assert.match(String((await statusOf(gateway))['reason']), /the token endpoint answered invalid_client/);
  const session = await initialize(gateway.url);
  const { text } = await post(gateway.url, rpc(2, 'tools/call', TOOL), session);
  assert.ok(!text.includes('invalid_client'), text);
  assert.deepEqual(guard.requests, [], 'nothing was sent without a credential');
  assert.ok(!gateway.lines.join('').includes('a-wrong-secret'), 'the secret is in the log');
});

test('a call waits for no issuer that is down, and works once it is up', LIMIT, async () => {
  await using issuer = await startRealIssuer();
  await using behind = await startEverything();
  await using guard: Guard = await startGuard(
    behind.url,
    checkOf(issuer, () => guard.url),
  );
  const { client } = issuer;
  const auth = {
    kind: 'clientCredentials',
    tokenUrl: `${issuer.issuer}/token`,
    clientId: client.id,
    clientSecret: client.secret,
    scopes: ['mcp'],
  };
  issuer.setDown(true);
  await using gateway = await openGateway({ up: { url: guard.url, prefix: '', auth, start: 'eager' } });
  await waitUntil(async () => (await statusOf(gateway))['state'] === 'failed');
  issuer.setDown(false);
  await waitUntil(async () => (await statusOf(gateway))['state'] === 'ready');
});

test('a reload of another setting keeps the token of an upstream', LIMIT, async () => {
  await using issuer = await startRealIssuer();
  await using behind = await startEverything();
  await using guard: Guard = await startGuard(
    behind.url,
    checkOf(issuer, () => guard.url),
  );
  const { client } = issuer;
  const auth = {
    kind: 'clientCredentials',
    issuer: issuer.issuer,
    clientId: client.id,
    clientSecret: client.secret,
    scopes: ['mcp'],
  };
  await using gateway = await openGateway({ up: { url: guard.url, prefix: '', auth } });
  const session = await initialize(gateway.url);
  const call = async (id: number) => (await post(gateway.url, rpc(id, 'tools/call', TOOL), session)).text;
  assert.match(await call(1), /Echo: hi/);
  issuer.setDown(true);
  const file = membersOf(JSON.parse(await readFile(gateway.file, 'utf8')));
  const own = { ...membersOf(file['gateway']), logLevel: 'warn' };
  await writeFile(gateway.file, JSON.stringify({ ...file, gateway: own }));
  await waitUntil(async () => /config_reloads_total\{.*"applied".*\} 1/.test(await gateway.metrics()));
  assert.match(await call(2), /Echo: hi/);
});
