import assert from 'node:assert/strict';
import { hash } from 'node:crypto';
import { once } from 'node:events';
import { createServer, type ServerResponse } from 'node:http';
import { test } from 'node:test';
import { ApiKeys } from '../../src/auth/api-key.ts';
import { type ConfigAuthenticator, createAuthenticator } from '../../src/auth/authenticate.ts';
import type { IntrospectionConfig } from '../../src/config/values/config.ts';
import { waitUntil } from '../support/wait-until.ts';
import { ENDPOINT, SILENT } from './issuer.ts';

const OPTIONS = { timeout: 120_000 };
const ISSUER = 'https://id.example.com';
type Members = Readonly<Record<string, unknown>>;

/** An issuer that answers introspection requests by the token. */
async function startIssuer(answers: Readonly<Record<string, Members>> = {}) {
  const asked: { readonly token: string; readonly hint: string; readonly authorization: string | undefined }[] = [];
  const held: ServerResponse[] = [];
  const state = { holds: false, status: 200, type: 'application/json', error: {} };
  const server = createServer((request, response) => {
    void (async () => {
      let body = '';
      for await (const chunk of request.setEncoding('utf8')) body += String(chunk);
      const form = new URLSearchParams(body);
      const [token, hint] = [form.get('token') ?? '', form.get('token_type_hint') ?? ''];
      asked.push({ token, hint, authorization: request.headers.authorization });
      if (state.holds) return void held.push(response);
      const answer = { active: token in answers, ...answers[token], ...state.error };
      response.writeHead(state.status, { 'content-type': state.type }).end(JSON.stringify(answer));
    })();
  }).listen(0, '127.0.0.1');
  await once(server, 'listening');
  const address = server.address();
  assert.ok(typeof address === 'object' && address !== null);
  const config: IntrospectionConfig = {
    issuer: ISSUER,
    endpoint: `http://127.0.0.1:${address.port}/introspect`,
    clientId: 'gateway',
    clientSecret: 's3cret',
    audiences: [],
    requiredScopes: [],
    tokenPrefix: '',
  };
  return {
    asked,
    held,
    state,
    config,
    [Symbol.asyncDispose]: async () => {
      server.close();
      server.closeAllConnections();
      await Promise.resolve();
    },
  };
}

/** Returns an authenticator, and a function that asks it. */
function authenticatorOf(config: IntrospectionConfig, own: Partial<IntrospectionConfig> = {}) {
  const time = { ms: 1_800_000_000_000 };
  const deps = { log: SILENT, now: () => time.ms, clock: () => time.ms };
  const introspection = [{ ...config, ...own }];
  const authenticator = createAuthenticator({ jwt: [], apiKeys: [], introspection }, deps);
  const ask = (token: string, address = '192.0.2.1', endpoint = ENDPOINT) =>
    authenticator.authenticate({ authorization: [`Bearer ${token}`] }, endpoint, address);
  return { authenticator, ask, time };
}

const GOOD = { sub: 'alice', aud: ENDPOINT, client_id: 'desk', scope: 'mcp tools', exp: 1_800_000_600 };

// SEC-24
test('limit tokenScopes: a token with more scopes is refused', OPTIONS, async () => {
  const scope = Array.from({ length: 1_000 }, (_, i) => `s${i}`).join(' ');
  await using issuer = await startIssuer({ most: { ...GOOD, scope }, more: { ...GOOD, scope: `${scope} mcp` } });
  const { ask } = authenticatorOf(issuer.config);
  assert.equal((await ask('most')).kind, 'principal');
  const verdict = await ask('more');
  assert.ok(verdict.kind === 'refused' && verdict.status === 401, JSON.stringify(verdict));
  assert.equal(verdict.why, 'has more than 1000 scopes');
});

test('an active token has its claims, and is asked about once a minute', OPTIONS, async () => {
  await using issuer = await startIssuer({ good: { ...GOOD, groups: ['sales'] } });
  const { authenticator, ask, time } = authenticatorOf(issuer.config);
  const verdict = await ask('good');
  assert.ok(verdict.kind === 'principal', JSON.stringify(verdict));
  const { label, issuer: name, clientId, scopes, claims } = verdict.principal;
  assert.deepEqual([label, name, clientId, scopes], ['alice', ISSUER, 'desk', ['mcp', 'tools']]);
  assert.deepEqual(claims?.['groups'], ['sales']);
  for (let n = 0; n < 5; n++) await ask('good');
  assert.deepEqual(issuer.asked.length, 1);
  const [first] = issuer.asked;
  assert.equal(first?.hint, 'access_token');
  assert.equal(first?.authorization, `Basic ${Buffer.from('gateway:s3cret').toString('base64')}`);
  assert.equal(authenticator.isOver(verdict.principal), false);
  time.ms += 60_000;
  assert.equal((await ask('good')).kind, 'principal');
  assert.equal(issuer.asked.length, 2);
  time.ms += 16 * 60_000;
  assert.equal(authenticator.isOver(verdict.principal), true, 'its streams end, so that a revocation is noticed');
});

test('a member of an active token that is null is as one that is not there', OPTIONS, async () => {
  const none = Object.fromEntries(['iss', 'exp', 'nbf', 'cnf', 'token_use', 'groups'].map((name) => [name, null]));
  await using issuer = await startIssuer({
    alice: { ...GOOD, ...none, client_id: null },
    desk: { ...GOOD, ...none, sub: null, client_id: null, azp: 'desk' },
  });
  const { ask } = authenticatorOf(issuer.config);
  for (const name of ['alice', 'desk', 'alice']) {
    const verdict = await ask(name);
    assert.ok(verdict.kind === 'principal', JSON.stringify(verdict));
    const { label, subject, clientId, claims } = verdict.principal;
    assert.deepEqual(
      [label, subject, clientId],
      name === 'desk' ? ['desk', undefined, 'desk'] : ['alice', 'alice', undefined],
    );
    assert.equal(claims?.['groups'], null, 'conditions read what the issuer has written');
  }
  assert.equal(issuer.asked.length, 2);
});

test('a token that lasts ends its streams after a quarter of an hour', OPTIONS, async () => {
  const { exp: _exp, ...lasting } = GOOD;
  await using issuer = await startIssuer({ lasting });
  const { authenticator, ask, time } = authenticatorOf(issuer.config);
  const verdict = await ask('lasting');
  assert.ok(verdict.kind === 'principal', JSON.stringify(verdict));
  time.ms += 15 * 60_000 - 1;
  assert.equal(authenticator.isOver(verdict.principal), false);
  time.ms += 1;
  assert.equal(authenticator.isOver(verdict.principal), true);
});

test('a token that expires soon is asked about again from its expiry on', OPTIONS, async () => {
  await using issuer = await startIssuer({ short: { ...GOOD, exp: 1_800_000_020 } });
  const { ask, time } = authenticatorOf(issuer.config);
  for (const afterMs of [0, 19_999, 20_000]) {
    time.ms = 1_800_000_000_000 + afterMs;
    assert.equal((await ask('short')).kind, 'principal');
    assert.equal(issuer.asked.length, afterMs === 20_000 ? 2 : 1);
  }
});

// R17
test('a stream of an introspected token ends at its expiry and the leeway', OPTIONS, async () => {
  await using issuer = await startIssuer({ short: { ...GOOD, exp: 1_800_000_060 } });
  const { authenticator, ask, time } = authenticatorOf(issuer.config);
  const verdict = await ask('short');
  assert.ok(verdict.kind === 'principal', JSON.stringify(verdict));
  time.ms += 89_999;
  assert.equal(authenticator.isOver(verdict.principal), false);
  time.ms += 1;
  assert.equal(authenticator.isOver(verdict.principal), true);
});

// R17
test('an active token may begin within the leeway for clocks', OPTIONS, async () => {
  await using issuer = await startIssuer({
    soon: { ...GOOD, nbf: 1_800_000_030 },
    later: { ...GOOD, nbf: 1_800_000_031 },
  });
  const { ask } = authenticatorOf(issuer.config);
  assert.deepEqual([(await ask('soon')).kind, (await ask('later')).kind], ['principal', 'refused']);
});

test('a client that acts for itself is not the user of the same name', OPTIONS, async () => {
  const own = { aud: ENDPOINT, client_id: 'desk' };
  await using issuer = await startIssuer({ own, user: { ...own, sub: 'desk' } });
  const { ask } = authenticatorOf(issuer.config);
  const [client, user] = [await ask('own'), await ask('user')];
  assert.ok(client.kind === 'principal' && user.kind === 'principal');
  assert.deepEqual([client.principal.label, client.principal.subject], ['desk', undefined]);
  assert.notEqual(client.principal.key, user.principal.key);
});

//
test('an active token may spell the host of its audience in capitals', OPTIONS, async () => {
  const capitals = { ...GOOD, aud: [ENDPOINT.replace('gw.example.com', 'GW.Example.com')] };
  await using issuer = await startIssuer({ capitals, path: { ...GOOD, aud: ENDPOINT.toUpperCase() } });
  const { ask } = authenticatorOf(issuer.config);
  assert.equal((await ask('capitals')).kind, 'principal');
  assert.equal((await ask('path')).kind, 'refused');
});

const FAULTS: readonly (readonly [what: string, claims: Members])[] = [
  ['another audience', { ...GOOD, aud: 'https://elsewhere.example.com' }],
  ['no audience', { ...GOOD, aud: undefined }],
  ['another issuer', { ...GOOD, iss: 'https://other.example.com' }],
  ['neither subject nor client', { ...GOOD, sub: undefined, client_id: undefined }],
  ['an empty subject', { ...GOOD, sub: '' }],
  ['an expiry in the past', { ...GOOD, exp: 1_799_999_960 }],
  ['an expiry as text', { ...GOOD, exp: '1800000600' }],
  ['a start in the future', { ...GOOD, nbf: 1_800_000_060 }],
  ['the use of a refresh token', { ...GOOD, token_use: 'refresh_token' }],
  ['a key that its holder must prove', { ...GOOD, cnf: { jkt: 'x' } }],
];

for (const [what, claims] of FAULTS) {
  // SEC-03
  test(`an active token with ${what} is refused`, OPTIONS, async () => {
    await using issuer = await startIssuer({ bad: claims });
    const { ask } = authenticatorOf(issuer.config);
    const verdict = await ask('bad');
    assert.ok(verdict.kind === 'refused', 'let in');
    assert.equal(verdict.status, 401);
    assert.match(verdict.challenge ?? '', /error="invalid_token"/);
  });
}

// SEC-06
test('an active token without a required scope gets 403 with all of them', OPTIONS, async () => {
  await using issuer = await startIssuer({ good: GOOD });
  const { ask } = authenticatorOf(issuer.config, { requiredScopes: ['mcp', 'admin'] });
  const verdict = await ask('good');
  assert.ok(verdict.kind === 'refused' && verdict.status === 403);
  assert.match(verdict.challenge ?? '', /error="insufficient_scope".*scope="mcp admin"/);
});

test('an inactive token is remembered, and asked about once by many requests', OPTIONS, async () => {
  await using issuer = await startIssuer();
  const { ask, time } = authenticatorOf(issuer.config);
  const verdicts = await Promise.all(Array.from({ length: 20 }, () => ask('unknown')));
  assert.ok(verdicts.every((verdict) => verdict.kind === 'refused' && verdict.status === 401));
  await ask('unknown');
  assert.equal(issuer.asked.length, 1);
  time.ms += 30_000;
  await ask('unknown');
  assert.equal(issuer.asked.length, 2);
});

const OUTAGES: readonly (readonly [what: string, status: number, type: string, error?: Members])[] = [
  ['500', 500, 'application/json'],
  ['401, since our secret is wrong', 401, 'application/json'],
  ['400, since it does not know us', 400, 'application/json', { error: 'invalid_client' }],
  ['403, since we may not ask', 403, 'application/json', { error: 'access_denied' }],
  ['404', 404, 'text/html'],
  ['429', 429, 'text/plain'],
  ['a page', 200, 'text/html'],
  ['a signed answer that nobody asked for', 200, 'application/token-introspection+jwt'],
];

for (const [what, status, type, error = {}] of OUTAGES) {
  test(`an issuer that answers ${what}: 503`, OPTIONS, async () => {
    await using issuer = await startIssuer({ good: GOOD });
    const { ask, time } = authenticatorOf(issuer.config);
    Object.assign(issuer.state, { status, type, error });
    for (const token of ['good', 'other', 'good']) {
      const verdict = await ask(token);
      assert.ok(verdict.kind === 'refused' && verdict.status === 503, JSON.stringify(verdict));
      assert.equal(verdict.challenge, undefined);
    }
    assert.equal(issuer.asked.length, 1, 'a failing issuer is left alone for a second');
    Object.assign(issuer.state, { status: 200, type: 'application/json', error: {} });
    time.ms += 1_000;
    assert.equal((await ask('good')).kind, 'principal');
  });
}

test('an issuer that fails anew after an answer is asked again after a second', OPTIONS, async () => {
  await using issuer = await startIssuer({ good: GOOD });
  const { ask, time } = authenticatorOf(issuer.config);
  for (const passesMs of [0, 1_000, 2_000]) {
    time.ms += passesMs;
    issuer.state.status = 500;
    assert.equal((await ask(`failing-${passesMs}`)).kind, 'refused');
  }
  time.ms += 4_000;
  issuer.state.status = 200;
  assert.equal((await ask('good')).kind, 'principal');
  issuer.state.status = 500;
  assert.equal((await ask('failing-anew')).kind, 'refused');
  issuer.state.status = 200;
  time.ms += 1_000;
  const verdict = await ask('unknown');
  assert.equal(verdict.kind === 'refused' && verdict.status, 401, 'it was asked');
});

const ABOUT_ONE_TOKEN: readonly (readonly [status: number, type: string, error: Members])[] = [
  [400, 'text/html', {}],
  [400, 'application/json', { error: 'invalid_request' }],
  [403, 'text/html', {}],
  [413, 'text/plain', {}],
  [431, 'application/json', { message: 'too large' }],
];

for (const [status, type, error] of ABOUT_ONE_TOKEN) {
  test(`a token that is answered with ${status} ${type} is 503 alone`, OPTIONS, async () => {
    await using issuer = await startIssuer({ good: GOOD });
    const { ask } = authenticatorOf(issuer.config);
    Object.assign(issuer.state, { status, type, error });
    const verdict = await ask('odd');
    assert.ok(verdict.kind === 'refused' && verdict.status === 503, JSON.stringify(verdict));
    assert.equal(verdict.why, 'issuer refuses to judge it');
    Object.assign(issuer.state, { status: 200, type: 'application/json', error: {} });
    assert.equal((await ask('good')).kind, 'principal');
  });
}

test('a client with many unknown tokens leaves slots for another address', OPTIONS, async () => {
  await using issuer = await startIssuer({ good: GOOD });
  const { ask } = authenticatorOf(issuer.config);
  issuer.state.holds = true;
  const flood = Array.from({ length: 300 }, (_, n) => ask(`made-up-${n}`, '198.51.100.7'));
  await waitUntil(() => issuer.held.length === 8);
  issuer.state.holds = false;
  assert.equal((await ask('good', '192.0.2.1')).kind, 'principal');
  for (const response of issuer.held) {
    response.writeHead(200, { 'content-type': 'application/json' }).end('{"active":false}');
  }
  const statuses = (await Promise.all(flood)).map((verdict) => (verdict.kind === 'refused' ? verdict.status : 200));
  assert.equal(statuses.filter((status) => status === 503).length, 300 - 8 - 256, 'too many that wait are undecided');
  assert.equal(statuses.filter((status) => status === 401).length, 8 + 256);
});

test('a token is shown only to the issuer of its beginning, and an API key to none', OPTIONS, async () => {
  await using issuer = await startIssuer({ gho_x: GOOD });
  await using other = await startIssuer();
  const introspection = [
    { ...other.config, issuer: 'https://other.example.com' },
    { ...issuer.config, tokenPrefix: 'gho_' },
  ];
  const apiKeys = [{ name: 'ci', sha256: '4c9e1cbb9a5b7a7f0ffd1d4dee8d4d32b9d11b0cd0ff05eb3a04e0ab2f1c9c4b' }];
  const authenticator = createAuthenticator({ jwt: [], apiKeys, introspection }, { log: SILENT, now: () => 1.8e12 });
  const ask = (token: string) => authenticator.authenticate({ authorization: [`Bearer ${token}`] }, ENDPOINT);
  assert.equal((await ask('gho_x')).kind, 'principal');
  assert.deepEqual([issuer.asked.length, other.asked.length], [1, 0]);
  assert.equal((await ask('else')).kind, 'refused');
  assert.deepEqual([issuer.asked.length, other.asked.length], [1, 1]);
});

test('an API key is shown to no issuer, also one that is unknown, expired or removed', OPTIONS, async () => {
  await using issuer = await startIssuer();
  const stored = ['current', 'expired', 'removed'].map((name) => ({
    name,
    sha256: hash('sha256', `key-${name}`),
    ...(name === 'expired' ? { expiresAt: '2020-01-01T00:00:00Z' } : {}),
  }));
  let keys = new ApiKeys([], stored);
  const config = { jwt: [], apiKeys: [], introspection: [issuer.config] };
  const authenticator = createAuthenticator(config, { log: SILENT, keys: () => keys });
  const ask = (token: string) => authenticator.authenticate({ authorization: [`Bearer ${token}`] }, ENDPOINT);
  keys = new ApiKeys([], stored.slice(0, 2), keys);
  assert.equal((await ask('key-current')).kind, 'principal');
  for (const [token, why] of [
    ['key-expired', 'expired API key'],
    ['key-removed', 'revoked API key'],
    ['lsk_of-another-gateway', 'unknown API key'],
  ] as const) {
    const verdict = await ask(token);
    assert.ok(verdict.kind === 'refused', 'let in');
    assert.deepEqual([verdict.status, verdict.why], [401, why], token);
  }
  assert.deepEqual(issuer.asked, []);
  await ask('a-token-of-the-issuer');
  assert.equal(issuer.asked.length, 1);
});

test('another config asks about no token again whose issuer has the same rules', OPTIONS, async () => {
  await using issuer = await startIssuer({ good: GOOD });
  const deps = { log: SILENT, now: () => 1.8e12 };
  const withRule = (own: Partial<IntrospectionConfig>, before?: ConfigAuthenticator) => {
    const made = createAuthenticator(
      { jwt: [], apiKeys: [], introspection: [{ ...issuer.config, ...own }] },
      deps,
      before,
    );
    before?.replaceBy(made, () => made);
    return made;
  };
  const ask = async (authenticator: ConfigAuthenticator, token: string) =>
    (await authenticator.authenticate({ authorization: [`Bearer ${token}`] }, ENDPOINT)).kind;
  const first = withRule({});
  assert.deepEqual([await ask(first, 'good'), await ask(first, 'bad')], ['principal', 'refused']);
  const second = withRule({}, first);
  assert.notEqual(second.known({ authorization: ['Bearer good'] }, ENDPOINT), undefined);
  assert.deepEqual([await ask(second, 'good'), await ask(second, 'bad')], ['principal', 'refused']);
  assert.equal(issuer.asked.length, 2);
  const third = withRule({ requiredScopes: ['admin'] }, second);
  assert.equal(third.known({ authorization: ['Bearer good'] }, ENDPOINT), undefined);
  assert.equal(await ask(third, 'good'), 'refused');
  assert.equal(issuer.asked.length, 3);
});
