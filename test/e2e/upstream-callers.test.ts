/** Tests the credentials of upstreams that depend on the caller: exchanged tokens, and tokens that the gateway signs. */
import assert from 'node:assert/strict';
import { createHash } from 'node:crypto';
import { test } from 'node:test';
import { setTimeout as sleep } from 'node:timers/promises';
import { createRemoteJWKSet, decodeJwt, jwtVerify } from 'jose';
import { initialize, messagesOf, post, rpc, send } from '../downstream/client.ts';
import { type ExchangeIssuer, startExchangeIssuer } from '../support/exchange-issuer.ts';
import { startGateway } from '../support/gateway.ts';
import { type Guard, startGuard } from '../support/guarded-upstream.ts';
import { modernPost } from '../support/modern-wire.ts';
import { openGateway } from '../support/open-gateway.ts';
import { startEverything } from '../support/everything-gateway.ts';
import { waitUntil } from '../support/wait-until.ts';

const LIMIT = { timeout: 120_000 };
const API_KEY = 'an-api-key-of-a-robot-0123456789';
const apiKeys = [{ name: 'robot', sha256: createHash('sha256').update(API_KEY).digest('hex') }];
const TOOL = { name: 'echo', arguments: { message: 'hi' } };
const PEOPLE = ['ann', 'bob'] as const;

const jwtOf = ({ issuer, jwksUrl }: ExchangeIssuer) => [{ issuer, jwksUrl, audiences: ['gateway'] }];
const subOf = (authorization: string | undefined) => decodeJwt((authorization ?? '').slice('Bearer '.length)).sub;

for (const era of ['legacy', 'modern'] as const) {
  // SEC-13
  test(`a ${era} upstream gets an exchanged token of each caller, and no other`, LIMIT, async () => {
    await using issuer = await startExchangeIssuer();
    await using behind = await startEverything();
    await using guard: Guard = await startGuard(
      behind.url,
      async (given) => (await issuer.claimsOf(given, guard.url)) !== undefined,
    );
    const { id: clientId, secret: clientSecret } = issuer.client;
    const auth = { kind: 'exchange', issuer: issuer.issuer, clientId, clientSecret };
    const up = { url: guard.url, era, prefix: '', rawUris: true, auth, isolation: 'principal' };
    await using gateway = await openGateway({ up }, { auth: { jwt: jwtOf(issuer), apiKeys } });
    const tokens = await Promise.all(PEOPLE.map((name) => issuer.tokenFor(name, 'gateway')));
    await Promise.all(
      PEOPLE.map(async (name, at) => {
        const headers = { authorization: `Bearer ${tokens[at]}` };
        const session = await initialize(gateway.url, '2025-11-25', headers);
        // A list does not wait for a slow start.
        await waitUntil(async () =>
          (await post(gateway.url, rpc(1, 'tools/list'), session, headers)).text.includes('"echo"'),
        );
        const params = { ...TOOL, arguments: { message: `from-${name}` } };
        const old = await post(gateway.url, rpc(2, 'tools/call', params), session, headers);
        const modern = await modernPost(gateway.url, 'tools/call', params, { headers });
        for (const { text } of [old, modern]) assert.ok(text.includes(`Echo: from-${name}`), text);
      }),
    );
    assert.ok(guard.requests.every(({ isAccepted }) => isAccepted));
    for (const name of PEOPLE) {
      const calls = guard.requests.filter(({ body }) => body.includes(`from-${name}`));
      assert.equal(calls.length, 2);
      assert.deepEqual(new Set(calls.map(({ headers }) => subOf(headers.authorization))), new Set([name]));
    }
    assert.deepEqual(issuer.exchanges.toSorted(), [...PEOPLE], 'one exchange for each caller');
    const seen = JSON.stringify(guard.requests);
    for (const token of tokens) assert.ok(!seen.includes(token), 'the token of a caller has reached the upstream');

    const robot = { authorization: `Bearer ${API_KEY}` };
    const before = guard.requests.length;
    const refused = await modernPost(gateway.url, 'tools/call', TOOL, { headers: robot });
    assert.match(refused.text, /the caller has to sign in again, with an access token/);
    assert.equal(guard.requests.length, before, 'nothing was sent for a caller without a token');
    const { text } = await send(`${gateway.operatorUrl}/status`, {});
    assert.equal(JSON.parse(text).upstreams[0].state, 'ready', 'one caller says nothing about the upstream');
    for (const secret of [...tokens, clientSecret]) assert.ok(!gateway.lines.join('').includes(secret), 'in the log');
  });
}

test('after a reload, tokens with different scopes are one principal as after a start', LIMIT, async () => {
  await using issuer = await startExchangeIssuer();
  await using behind = await startEverything();
  const { id: clientId, secret: clientSecret } = issuer.client;
  const auth = { kind: 'exchange', issuer: issuer.issuer, clientId, clientSecret };
  const fileOf = (up: Readonly<Record<string, unknown>>) => ({
    mcpServers: { up },
    gateway: { auth: { jwt: jwtOf(issuer) } },
  });
  await using gateway = await startGateway(fileOf({ url: behind.url, auth }));
  const statusWith = async (scope: string, session: string) => {
    const headers = { authorization: `Bearer ${await issuer.tokenFor('ann', 'gateway', scope)}` };
    return (await post(gateway.endpoint(), rpc(1, 'ping'), session, headers)).status;
  };
  const begin = async () => {
    const headers = { authorization: `Bearer ${await issuer.tokenFor('ann', 'gateway', 'read write')}` };
    return await initialize(gateway.endpoint(), '2025-11-25', headers);
  };
  const applied = async (up: Readonly<Record<string, unknown>>) => {
    const count = () => gateway.logs().split('"config applied"').length;
    const before = count();
    await gateway.configure(fileOf(up));
    await waitUntil(() => count() > before);
  };
  assert.equal(await statusWith('read', await begin()), 404);
  await applied({ url: behind.url });
  assert.equal(await statusWith('read', await begin()), 200);
  await applied({ url: behind.url, auth });
  assert.equal(await statusWith('read', await begin()), 404);
});

test('tokens of one principal with different scopes share nothing at an upstream', LIMIT, async () => {
  await using issuer = await startExchangeIssuer();
  await using behind = await startEverything();
  await using guard: Guard = await startGuard(
    behind.url,
    async (given) => (await issuer.claimsOf(given, guard.url)) !== undefined,
  );
  const { id: clientId, secret: clientSecret } = issuer.client;
  const auth = { kind: 'exchange', issuer: issuer.issuer, clientId, clientSecret };
  const up = { url: guard.url, prefix: '', rawUris: true, auth };
  const rates = [{ name: 'three', to: { anyone: true }, limit: 3, window: '1h' }];
  await using gateway = await openGateway({ up }, { auth: { jwt: jwtOf(issuer) }, rates });
  const callWith = async (scope: string, given?: string) => {
    const headers = { authorization: `Bearer ${await issuer.tokenFor('ann', 'gateway', scope)}` };
    const session = given ?? (await initialize(gateway.url, '2025-11-25', headers));
    const called = await post(gateway.url, rpc(1, 'tools/call', TOOL), session, headers);
    const carried = guard.requests.findLast(({ what }) => what === 'POST tools/call');
    const scopes = decodeJwt((carried?.headers.authorization ?? '').slice('Bearer '.length))['scope'];
    return { session, status: called.status, text: called.text, scopes };
  };
  const all = await callWith('read write');
  assert.equal(all.scopes, 'read write');
  const few = await callWith('read');
  assert.equal(few.scopes, 'read', 'a token with fewer scopes gets the rights of one with more');
  const before = guard.requests.length;
  const foreign = await callWith('read', all.session);
  assert.equal(foreign.status, 404, foreign.text);
  assert.equal(guard.requests.length, before);
  // The order of scopes means nothing, and a renewed token continues the session.
  const again = await callWith('write read', all.session);
  assert.match(again.text, /Echo: hi/);
  assert.match((await callWith('write')).text, /rate-limited/, 'quotas are those of the person');
});

for (const prefix of ['', 'up__']) {
  test(`a caller whose token was refused calls at once with another one: prefix "${prefix}"`, LIMIT, async () => {
    await using issuer = await startExchangeIssuer();
    await using behind = await startEverything();
    const { id: clientId, secret: clientSecret } = issuer.client;
    const auth = { kind: 'exchange', issuer: issuer.issuer, clientId, clientSecret };
    const up = { url: behind.url, prefix, rawUris: true, auth };
    // The issuer exchanges no token for "other".
    const jwt = [{ issuer: issuer.issuer, jwksUrl: issuer.jwksUrl, audiences: ['gateway', 'other'] }];
    await using gateway = await openGateway({ up }, { auth: { jwt, apiKeys } });
    const callWith = async (token: string) => {
      const headers = { authorization: `Bearer ${token}` };
      const params = { ...TOOL, name: `${prefix}echo` };
      return (await modernPost(gateway.url, 'tools/call', params, { headers })).text;
    };
    for (let times = 0; times < 2; times++)
      assert.match(await callWith(API_KEY), /sign in again, with an access token.*"retryable":false/s);
    const refused = await issuer.tokenFor('ann', 'other');
    // Each refusal makes the pause longer than the test waits.
    for (let times = 0; times < 8; times++) {
      await callWith(refused);
      await callWith(await issuer.tokenFor('ann', 'other', ''));
    }
    assert.match(await callWith(refused), /the caller has to sign in again/);
    // An alert about starts that fail is about the upstream, not about the tokens of callers.
    assert.match(await gateway.metrics(), /^linkspan_upstream_start_failures_total\{upstream="up"\} 0$/m);
    assert.match(await callWith(await issuer.tokenFor('ann', 'gateway')), /Echo: hi/);
  });
}

// O-049
for (const [era, status] of [
  ['legacy', 429],
  ['modern', 503],
] as const) {
  test(`an issuer that answers ${status} for one caller stops no other: ${era}`, LIMIT, async () => {
    await using issuer = await startExchangeIssuer();
    await using behind = await startEverything();
    const { id: clientId, secret: clientSecret } = issuer.client;
    const auth = { kind: 'exchange', issuer: issuer.issuer, clientId, clientSecret };
    const up = { url: behind.url, era, prefix: '', rawUris: true, auth };
    await using gateway = await openGateway({ up }, { auth: { jwt: jwtOf(issuer) } });
    const callAs = async (name: string) => {
      const headers = { authorization: `Bearer ${await issuer.tokenFor(name, 'gateway')}` };
      return (await modernPost(gateway.url, 'tools/call', TOOL, { headers })).text;
    };
    issuer.failing.set('ann', status);
    for (let times = 0; times < 6; times++) {
      assert.match(await callAs('ann'), /the issuer did not give them out; try again/);
      await sleep(150);
    }
    const bob = await callAs('bob');
    assert.match(bob, /Echo: hi/, bob);
    const { text } = await send(`${gateway.operatorUrl}/status`, {});
    assert.equal(JSON.parse(text).upstreams[0].state, 'ready');
  });
}

for (const era of ['legacy', 'modern'] as const) {
  // SEC-13
  test(`a ${era} upstream reads who calls from a token that the gateway has signed`, LIMIT, async () => {
    await using issuer = await startExchangeIssuer();
    await using behind = await startEverything();
    let origin = '';
    await using guard: Guard = await startGuard(behind.url, async (given) => {
      const keys = createRemoteJWKSet(new URL('/.well-known/jwks.json', origin));
      const token = (given ?? '').slice('Bearer '.length);
      const options = { issuer: origin, audience: guard.url, requiredClaims: ['exp', 'iat', 'jti', 'sub', 'sub_id'] };
      return await jwtVerify(token, keys, options).then(
        () => true,
        () => false,
      );
    });
    const up = { url: guard.url, era, prefix: '', rawUris: true, auth: { kind: 'identity', lifetime: '1m' } };
    await using gateway = await openGateway({ up }, { auth: { jwt: jwtOf(issuer), apiKeys } });
    ({ origin } = new URL(gateway.url));
    const callers = {
      ann: await issuer.tokenFor('ann', 'gateway'),
      bob: await issuer.tokenFor('bob', 'gateway'),
      'key:robot': API_KEY,
    };
    for (const [sub, token] of Object.entries(callers)) {
      const headers = { authorization: `Bearer ${token}` };
      const session = await initialize(gateway.url, '2025-11-25', headers);
      const params = { ...TOOL, arguments: { message: `from-${sub}` } };
      const called = messagesOf(await post(gateway.url, rpc(2, 'tools/call', params), session, headers));
      assert.match(JSON.stringify(called), /Echo: from-/);
      const [call, ...others] = guard.requests.filter(({ body }) => body.includes(`from-${sub}`));
      assert.equal(others.length, 0);
      const claims = decodeJwt((call?.headers.authorization ?? '').slice('Bearer '.length));
      assert.equal(claims.sub, sub);
      assert.equal(claims.exp, (claims.iat ?? 0) + 60);
      const subId = sub.startsWith('key:')
        ? { format: 'opaque', id: sub }
        : { format: 'iss_sub', iss: issuer.issuer, sub };
      assert.deepEqual(claims['sub_id'], subId);
    }
    assert.ok(guard.requests.every(({ isAccepted }) => isAccepted));
    const seen = JSON.stringify(guard.requests);
    for (const token of Object.values(callers)) assert.ok(!seen.includes(token));
  });
}

test('the keys of identity tokens are not served unless an upstream gets such tokens', LIMIT, async () => {
  await using gateway = await openGateway({ up: { url: 'http://127.0.0.1:9/mcp' } });
  const { status } = await send(new URL('/.well-known/jwks.json', gateway.url).href, {});
  assert.equal(status, 404);
});
