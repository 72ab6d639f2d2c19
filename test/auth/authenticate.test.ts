import assert from 'node:assert/strict';
import { createSign, generateKeyPairSync, hash } from 'node:crypto';
import { test } from 'node:test';
import { pino } from 'pino';
import { type Authenticator, type AuthVerdict, createAuthenticator } from '../../src/auth/authenticate.ts';
import { protectedResourceMetadata } from '../../src/auth/metadata.ts';
import type { JwtIssuerConfig } from '../../src/config/values/config.ts';
import { createLogger } from '../../src/telemetry/log.ts';
import { LOCAL, type Principal } from '../../src/policy/principal.ts';
import { BAD_TOKENS, KEY, KEYS } from './bad-tokens.ts';
import { ENDPOINT, SILENT, signingKey, TestIssuer } from './issuer.ts';

const OPTIONS = { timeout: 120_000 };
const RESOURCE_METADATA = 'resource_metadata="https://gw.example.com/.well-known/oauth-protected-resource/mcp"';

function accepts(issuer: TestIssuer, more: Partial<JwtIssuerConfig> = {}): JwtIssuerConfig {
  return {
    issuer: issuer.issuer,
    jwksUrl: issuer.jwksUrl,
    audiences: [],
    algorithms: ['RS256', 'ES256', 'EdDSA', 'PS256'],
    requiredScopes: [],
    ...more,
  };
}

async function start(): Promise<TestIssuer> {
  const issuer = await TestIssuer.start(KEY);
  issuer.keys = KEYS;
  return issuer;
}

function apiKey(name: string, key: string) {
  return { name, sha256: hash('sha256', key) };
}

function ask(authenticator: Authenticator, token: string, endpoint = ENDPOINT): Promise<AuthVerdict> {
  return authenticator.authenticate({ authorization: [`Bearer ${token}`] }, endpoint);
}

function principal(verdict: AuthVerdict): Principal {
  assert.ok(verdict.kind === 'principal', JSON.stringify(verdict));
  return verdict.principal;
}

function refusal(verdict: AuthVerdict, status: number) {
  assert.ok(verdict.kind === 'refused', 'let in');
  assert.equal(verdict.status, status, verdict.why);
  return verdict;
}

// SEC-02
test('an invalid token is refused with a challenge', { timeout: 120_000 }, async (t) => {
  await using issuer = await start();
  let clockMs = 0;
  const authenticator = createAuthenticator(
    { jwt: [accepts(issuer, { requiredScopes: [] })], apiKeys: [apiKey('ci', 'the-key-of-ci')] },
    { log: SILENT, clock: () => clockMs },
  );
  // A valid token must be accepted, or the table proves nothing.
  principal(await ask(authenticator, await issuer.token()));
  assert.ok(BAD_TOKENS.length >= 120, `${BAD_TOKENS.length} cases`);

  for (const { name, make } of BAD_TOKENS) {
    await t.test(name, async () => {
      const token = await make(issuer);
      // Each unknown key may be looked up.
      clockMs += 30_000;
      const { fetches } = issuer;
      for (const _again of [1, 2]) {
        const { challenge = '' } = refusal(await ask(authenticator, token), 401);
        assert.ok(challenge.startsWith('Bearer '), challenge);
        assert.ok(challenge.includes(RESOURCE_METADATA), challenge);
        assert.ok(challenge.includes('error="invalid_token"'), challenge);
        assert.ok(token.length < 8 || !challenge.includes(token.slice(0, 40)), 'a refusal does not repeat the token');
      }
      // One for an unknown key, or because the keys are old.
      assert.ok(issuer.fetches - fetches <= 1, `${issuer.fetches - fetches} fetches`);
    });
  }
});

// R18
test('a new key whose tokens have no key id is accepted at once', OPTIONS, async () => {
  await using issuer = await TestIssuer.start(KEY);
  let clockMs = 0;
  const [next, other] = [await signingKey('ES256', 'next'), await signingKey('ES256', 'other')];
  const jwt = [accepts(issuer)];
  const authenticator = createAuthenticator({ jwt, apiKeys: [] }, { log: SILENT, clock: () => clockMs });
  const asked = async (key = KEY, claims = {}) =>
    ask(authenticator, await issuer.token(claims, { kid: undefined }, key));
  principal(await asked());
  issuer.keys = [next.jwk];
  clockMs += 1_000;
  for (const verdict of await Promise.all([1, 2, 3].map((n) => asked(next, { n })))) principal(verdict);
  assert.equal(issuer.fetches, 2);
  // A bad signature causes one fetch a minute.
  for (const afterMs of [0, 60_000, 1_000]) {
    clockMs += afterMs;
    assert.equal(refusal(await asked(other), 401).why, 'bad signature');
  }
  assert.equal(issuer.fetches, 3);
});

//
test('a request without credentials gets a challenge without an error', OPTIONS, async () => {
  await using issuer = await start();
  const jwt = [accepts(issuer, { requiredScopes: ['mcp', 'offline_access'] })];
  const authenticator = createAuthenticator({ jwt, apiKeys: [] }, { log: SILENT });
  for (const authorization of [[], ['Basic YTpi']]) {
    const { challenge } = refusal(await authenticator.authenticate({ authorization }, ENDPOINT), 401);
    assert.equal(challenge, `Bearer ${RESOURCE_METADATA}, scope="mcp"`);
  }
});

// SEC-04
test('several or malformed Authorization headers get 400, even with a valid token', OPTIONS, async () => {
  await using issuer = await start();
  const authenticator = createAuthenticator({ jwt: [accepts(issuer)], apiKeys: [] }, { log: SILENT });
  const good = `Bearer ${await issuer.token()}`;
  principal(await authenticator.authenticate({ authorization: [good] }, ENDPOINT));
  for (const authorization of [
    [good, good],
    [good, 'Basic YTpi'],
    ['Basic YTpi', good],
    [`${good}, ${good}`],
    [`${good} `],
    [`${good} x`],
    [''],
    ['Bearer'],
  ]) {
    const { challenge = '' } = refusal(await authenticator.authenticate({ authorization }, ENDPOINT), 400);
    assert.ok(challenge.includes('error="invalid_request"'), challenge);
  }
});

const GOOD_HEADERS = [
  {},
  { typ: 'JWT' },
  { typ: 'jwt' },
  { typ: 'at+jwt' },
  { typ: 'AT+JWT' },
  { typ: 'application/at+jwt' },
];

for (const header of GOOD_HEADERS) {
  test(`a token with the header ${JSON.stringify(header)} is good`, OPTIONS, async () => {
    await using issuer = await start();
    const authenticator = createAuthenticator({ jwt: [accepts(issuer)], apiKeys: [] }, { log: SILENT });
    principal(await ask(authenticator, await issuer.token({}, header)));
  });
}

for (const alg of ['RS256', 'PS256', 'ES256', 'EdDSA']) {
  test(`${alg} is accepted`, OPTIONS, async () => {
    await using issuer = await TestIssuer.start(await signingKey(alg, 'k'));
    const jwt = [accepts(issuer)];
    const authenticator = createAuthenticator({ jwt, apiKeys: [] }, { log: SILENT });
    principal(await ask(authenticator, await issuer.token()));
    principal(await ask(authenticator, await issuer.token({}, { kid: undefined })));
  });
}

const CLOCKS = [
  { name: 'expired 29 s ago', claims: (s: number) => ({ exp: s - 29 }), ok: true },
  { name: 'expired 31 s ago', claims: (s: number) => ({ exp: s - 31 }), ok: false },
  { name: 'valid from 29 s on', claims: (s: number) => ({ nbf: s + 29 }), ok: true },
  { name: 'valid from 31 s on', claims: (s: number) => ({ nbf: s + 31 }), ok: false },
];

for (const { name, claims, ok } of CLOCKS) {
  // R17
  test(`a token that is ${name} is ${ok ? 'good' : 'refused'}`, OPTIONS, async () => {
    await using issuer = await start();
    const nowS = 1_800_000_000;
    const now = () => nowS * 1_000;
    const authenticator = createAuthenticator({ jwt: [accepts(issuer)], apiKeys: [] }, { log: SILENT, now });
    const verdict = await ask(authenticator, await issuer.token({ exp: nowS + 60, ...claims(nowS) }));
    assert.equal(verdict.kind, ok ? 'principal' : 'refused');
  });
}

//
test('a token, cached or not, is accepted for its audience only', OPTIONS, async () => {
  await using issuer = await start();
  const authenticator = createAuthenticator({ jwt: [accepts(issuer)], apiKeys: [] }, { log: SILENT });
  const files = `${ENDPOINT}/files`;
  const token = await issuer.token({ aud: [ENDPOINT, 'https://elsewhere.example.com'] });
  const forBoth = await issuer.token({ aud: [ENDPOINT, files] });
  for (const _again of [1, 2, 3]) {
    principal(await ask(authenticator, token));
    refusal(await ask(authenticator, token, files), 401);
    principal(await ask(authenticator, forBoth, files));
  }
});

//
test('a token may name another URI of its endpoint, and no other endpoint', OPTIONS, async () => {
  await using issuer = await start();
  const authenticator = createAuthenticator({ jwt: [accepts(issuer)], apiKeys: [] }, { log: SILENT });
  const sse = 'https://gw.example.com/sse';
  const askSse = async (aud: string) => {
    const authorization = [`Bearer ${await issuer.token({ aud })}`];
    return await authenticator.authenticate({ authorization }, sse, '', [ENDPOINT]);
  };
  principal(await askSse(sse));
  principal(await askSse(ENDPOINT));
  refusal(await askSse(`${ENDPOINT}/files`), 401);
  refusal(await ask(authenticator, await issuer.token({ aud: sse })), 401);
});

//
test('case does not matter in scheme and host of an audience, and in nothing else', OPTIONS, async () => {
  await using issuer = await start();
  const [own, configured] = [[], ['https://Api.example.com/A?b=C', 'api://Linkspan']].map((audiences) =>
    createAuthenticator({ jwt: [accepts(issuer, { audiences })], apiKeys: [] }, { log: SILENT }),
  );
  assert.ok(own !== undefined && configured !== undefined);
  const cases = [
    [own, 'HTTPS://GW.Example.com/mcp', true],
    [own, 'https://gw.example.com/MCP', false],
    [own, 'https://gw.example.com/mcp/', false],
    [own, 'https://GW.example.com:443/mcp', false],
    [own, 'https://gw.example.com@evil.example.com/mcp', false],
    [configured, 'https://API.example.com/A?b=C', true],
    [configured, 'https://api.example.com/a?b=C', false],
    [configured, 'https://api.example.com/A?b=c', false],
    [configured, 'api://Linkspan', true],
    [configured, 'api://linkspan', false],
  ] as const;
  for (const [authenticator, aud, isAccepted] of cases) {
    const verdict = await ask(authenticator, await issuer.token({ aud: ['https://elsewhere.example.com', aud] }));
    assert.equal(verdict.kind === 'principal', isAccepted, aud);
  }
});

test('configured audiences replace the endpoint as audience', OPTIONS, async () => {
  await using issuer = await start();
  const jwt = [accepts(issuer, { audiences: ['api://linkspan', 'api://other'] })];
  const authenticator = createAuthenticator({ jwt, apiKeys: [] }, { log: SILENT });
  principal(await ask(authenticator, await issuer.token({ aud: 'api://other' })));
  refusal(await ask(authenticator, await issuer.token()), 401);
});

test('a principal is the issuer, the subject and the client together', OPTIONS, async () => {
  await using issuer = await start();
  const authenticator = createAuthenticator({ jwt: [accepts(issuer)], apiKeys: [] }, { log: SILENT });
  const claims = [
    { sub: 'alice' },
    { sub: 'alice', client_id: 'a' },
    { sub: 'alice', client_id: 'b' },
    { sub: 'alice', client_id: '' },
    { sub: 'alice","a', client_id: 'b' },
    { sub: 'alice', client_id: 'a","b' },
    { sub: 'alicea' },
    { sub: 'alice\u0000a' },
    { sub: 'alice ' },
    { sub: 'Alice' },
    { sub: 'bob', client_id: 'a' },
  ];
  const keys = new Set<string>();
  for (const each of claims) {
    const before = principal(await ask(authenticator, await issuer.token(each)));
    const after = principal(await ask(authenticator, await issuer.token({ ...each, jti: 'another' })));
    assert.equal(before.key, after.key);
    assert.equal(before.label, each.sub);
    keys.add(before.key);
  }
  assert.equal(keys.size, claims.length);
  assert.ok(!keys.has(LOCAL.key));

  const {
    scopes,
    issuer: iss,
    subject,
    clientId,
  } = principal(await ask(authenticator, await issuer.token({ scope: 'a  b', azp: 'desk' })));
  assert.deepEqual(
    { scopes, iss, subject, clientId },
    { scopes: ['a', 'b'], iss: issuer.issuer, subject: 'alice', clientId: 'desk' },
  );
});

test('the same subject of two issuers is two principals', OPTIONS, async () => {
  await using issuer = await start();
  const second = 'https://second.example.com';
  const jwt = [accepts(issuer), accepts(issuer, { issuer: second })];
  const authenticator = createAuthenticator({ jwt, apiKeys: [] }, { log: SILENT });
  const one = principal(await ask(authenticator, await issuer.token()));
  const other = principal(await ask(authenticator, await issuer.token({ iss: second })));
  assert.notEqual(one.key, other.key);
});

// SEC-05
test('tokens with a common prefix keep their own principals in any order', OPTIONS, async () => {
  await using issuer = await start();
  const authenticator = createAuthenticator({ jwt: [accepts(issuer)], apiKeys: [] }, { log: SILENT });
  const tokens = new Map<string, string>();
  for (const shared of [0, 20, 64, 500]) {
    for (const who of ['alice', 'bob', 'carol']) {
      const sub = `${who}-${shared}`;
      tokens.set(sub, await issuer.token({ iss: issuer.issuer, pad: 'x'.repeat(shared), sub }));
    }
  }
  const asked = [...tokens, ...[...tokens].toReversed(), ...tokens];
  for (const [sub, token] of asked) assert.equal(principal(await ask(authenticator, token)).label, sub);
  await Promise.all(
    asked.map(async ([sub, token]) => assert.equal(principal(await ask(authenticator, token)).label, sub)),
  );
});

// SEC-05
test('a token is verified again after a minute, and refused once expired', OPTIONS, async () => {
  await using issuer = await start();
  let nowMs = Date.now();
  let clockMs = 0;
  const deps = { log: SILENT, now: () => nowMs, clock: () => clockMs };
  const authenticator = createAuthenticator({ jwt: [accepts(issuer)], apiKeys: [] }, deps);
  const pass = (ms: number) => {
    nowMs += ms;
    clockMs += ms;
  };
  const token = await issuer.token({ exp: Math.floor(nowMs / 1_000) + 900 });
  principal(await ask(authenticator, token));
  issuer.keys = [];
  pass(9 * 60_000 - 1);
  principal(await ask(authenticator, token));
  pass(60_000 - 1);
  principal(await ask(authenticator, token));
  assert.equal(issuer.fetches, 1);
  pass(1);
  refusal(await ask(authenticator, token), 401);

  issuer.keys = KEYS;
  pass(60_000);
  principal(await ask(authenticator, token));
  pass(5 * 60_000);
  refusal(await ask(authenticator, token), 401);
});

// SEC-05
test('known() returns only principals whose token was verified recently', OPTIONS, async () => {
  await using issuer = await start();
  let nowMs = Date.now();
  const config = { jwt: [accepts(issuer)], apiKeys: [apiKey('ci', 'the-key-of-ci')] };
  const authenticator = createAuthenticator(config, { log: SILENT, now: () => nowMs });
  const known = (token: string, endpoint = ENDPOINT) =>
    authenticator.known({ authorization: [`Bearer ${token}`] }, endpoint);

  const bad = await issuer.token({ aud: ['https://elsewhere.example.com'] });
  for (const token of [await issuer.token(), 'the-key-of-ci']) {
    assert.equal(known(token), undefined);
    const who = principal(await ask(authenticator, token));
    assert.equal(known(token), who);
    assert.equal(known(`${token}x`), undefined);
    assert.equal(known(token, `${ENDPOINT}/files`), undefined);
    const twice = { authorization: [`Bearer ${token}`, `Bearer ${token}`] };
    assert.equal(authenticator.known(twice, ENDPOINT), undefined);
    nowMs += 60_000;
    assert.equal(known(token), undefined);
  }
  for (const token of [bad, 'no-key']) {
    refusal(await ask(authenticator, token), 401);
    assert.equal(known(token), undefined);
  }
  assert.equal(authenticator.known({ authorization: [] }, ENDPOINT), undefined);
});

// SEC-05
test('each request on a connection is known by its own header and endpoint', OPTIONS, async () => {
  await using issuer = await start();
  let nowMs = Date.now();
  const authenticator = createAuthenticator({ jwt: [accepts(issuer)], apiKeys: [] }, { log: SILENT, now: () => nowMs });
  const connection = {};
  const known = (token: string, endpoint = ENDPOINT) =>
    authenticator.known({ authorization: [`Bearer ${token}`] }, endpoint, connection);

  const tokens = [await issuer.token({ sub: 'ann' }), await issuer.token({ sub: 'bob', long: 'x'.repeat(5_000) })];
  const principals = await Promise.all(tokens.map(async (token) => principal(await ask(authenticator, token))));
  for (const index of [0, 0, 1, 1, 0, 1]) {
    const token = tokens[index] ?? '';
    assert.equal(known(token), principals[index]);
    assert.equal(known(token, `${ENDPOINT}/files`), undefined);
    assert.equal(known(token.slice(0, -1)), undefined);
  }
  nowMs += 60_000;
  for (const token of tokens) assert.equal(known(token), undefined);
});

// SEC-06
test('a token without a required scope gets exactly the required scopes', OPTIONS, async () => {
  await using issuer = await start();
  const jwt = [accepts(issuer, { requiredScopes: ['mcp', 'tools'] })];
  const authenticator = createAuthenticator({ jwt, apiKeys: [] }, { log: SILENT });
  for (const lacking of [
    {},
    { scope: '' },
    { scope: 'mcp' },
    { scope: 'mcp,tools' },
    { scope: 'mcptools' },
    { scope: 7 },
    { scp: [7] },
  ]) {
    const { challenge = '' } = refusal(await ask(authenticator, await issuer.token(lacking)), 403);
    assert.ok(challenge.includes('error="insufficient_scope"'), challenge);
    assert.ok(challenge.includes('scope="mcp tools"'), challenge);
    assert.ok(challenge.includes(RESOURCE_METADATA), challenge);
  }
  for (const enough of [
    { scope: 'tools mcp' },
    { scope: 'a mcp b tools' },
    { scp: ['mcp', 'tools'] },
    { scp: 'mcp tools' },
  ]) {
    principal(await ask(authenticator, await issuer.token(enough)));
  }
});

//
test('clients request the advertised scopes, and tokens need the required ones', OPTIONS, async () => {
  await using issuer = await start();
  const scopes = { requiredScopes: ['mcp'], advertisedScopes: ['https://gw.example.com/mcp/mcp'] };
  const config = { jwt: [accepts(issuer, scopes)], apiKeys: [] };
  const authenticator = createAuthenticator(config, { log: SILENT });
  principal(await ask(authenticator, await issuer.token({ scp: 'mcp' })));
  const refusals = [
    refusal(await authenticator.authenticate({ authorization: [] }, ENDPOINT), 401),
    refusal(await ask(authenticator, await issuer.token({ exp: 1 })), 401),
    refusal(await ask(authenticator, await issuer.token({ scp: 'other' })), 403),
  ];
  for (const { challenge = '' } of refusals) {
    assert.ok(challenge.includes('scope="https://gw.example.com/mcp/mcp"'), challenge);
  }
  assert.deepEqual(protectedResourceMetadata(ENDPOINT, config)?.scopes_supported, scopes.advertisedScopes);
});

test('a challenge without a token names only scopes that all issuers require', OPTIONS, async () => {
  await using issuer = await start();
  const jwt = [
    accepts(issuer, { requiredScopes: ['mcp', 'a'] }),
    accepts(issuer, { issuer: 'https://second.example.com', requiredScopes: ['mcp', 'b'] }),
  ];
  const authenticator = createAuthenticator({ jwt, apiKeys: [] }, { log: SILENT });
  const anonymous = refusal(await authenticator.authenticate({ authorization: [] }, ENDPOINT), 401);
  assert.ok(anonymous.challenge?.includes('scope="mcp"'), anonymous.challenge);
  const wrong = refusal(await ask(authenticator, await issuer.token({ exp: 1 })), 401);
  assert.ok(wrong.challenge?.includes('scope="mcp a"'), wrong.challenge);
});

// R18
test('an expired token is refused, also where its key is not looked up', OPTIONS, async () => {
  await using issuer = await start();
  let clockMs = 0;
  const deps = { log: SILENT, clock: () => clockMs };
  const authenticator = createAuthenticator({ jwt: [accepts(issuer)], apiKeys: [] }, deps);
  principal(await ask(authenticator, await issuer.token()));
  clockMs += 1_000;
  refusal(await ask(authenticator, await issuer.token({}, { kid: 'made-up' })), 401);
  clockMs += 1_000;
  const nowS = Math.floor(Date.now() / 1_000);
  const statusOf = async (exp: unknown) => {
    const verdict = await ask(authenticator, await issuer.token({ exp }, { kid: 'retired' }));
    return verdict.kind === 'refused' ? verdict.status : verdict.kind;
  };
  assert.equal(await statusOf(nowS - 40), 401);
  assert.equal(await statusOf(nowS - 10), 503, 'within the leeway');
  assert.equal(await statusOf(nowS + 100), 503);
  assert.equal(await statusOf('1'), 503);
});

// R18
test('a token whose key cannot be fetched is neither valid nor invalid', OPTIONS, async () => {
  await using issuer = await start();
  const token = await issuer.token();
  const other = await issuer.token({}, { kid: 'new' });
  const authenticator = createAuthenticator({ jwt: [accepts(issuer)], apiKeys: [] }, { log: SILENT });
  principal(await ask(authenticator, token));
  await issuer.stop();
  const { challenge } = refusal(await ask(authenticator, other), 503);
  assert.equal(challenge, undefined);
  principal(await ask(authenticator, await issuer.token({ sub: 'bob' })));
  refusal(await ask(authenticator, await issuer.token({ exp: 1 })), 401);
});

test('a token signed with a too weak key is undecided', OPTIONS, async () => {
  const pair = generateKeyPairSync('rsa', { modulusLength: 1024 });
  await using issuer = await start();
  issuer.keys = [...KEYS, { ...pair.publicKey.export({ format: 'jwk' }), kid: 'weak' }];
  const authenticator = createAuthenticator({ jwt: [accepts(issuer)], apiKeys: [] }, { log: SILENT });
  const [, body = ''] = (await issuer.token()).split('.');
  const text = `${Buffer.from('{"alg":"RS256","kid":"weak"}').toString('base64url')}.${body}`;
  const signature = createSign('sha256').update(text).sign(pair.privateKey).toString('base64url');
  refusal(await ask(authenticator, `${text}.${signature}`), 503);
});

test('tokens with the id of a key that cannot be used cause one line in the log', OPTIONS, async () => {
  const pair = generateKeyPairSync('rsa', { modulusLength: 1024 });
  await using issuer = await start();
  issuer.keys = [...KEYS, { ...pair.publicKey.export({ format: 'jwk' }), kid: 'weak' }];
  const lines: string[] = [];
  const log = pino({ level: 'error' }, { write: (line: string) => void lines.push(line) });
  let nowMs = 0;
  const authenticator = createAuthenticator({ jwt: [accepts(issuer)], apiKeys: [] }, { log, clock: () => nowMs });
  const [, body = ''] = (await issuer.token()).split('.');
  const token = `${Buffer.from('{"alg":"RS256","kid":"weak"}').toString('base64url')}.${body}`;
  for (let n = 0; n < 5; n++) refusal(await ask(authenticator, `${token}.forged${n}`), 503);
  assert.equal(lines.length, 1);
  nowMs += 60_000;
  refusal(await ask(authenticator, `${token}.forged`), 503);
  assert.equal(lines.length, 2);
});

test('only the exact API key is accepted', OPTIONS, async () => {
  await using issuer = await start();
  const key = 'lk_3fA9-very.long~key+with/all==';
  for (const jwt of [[], [accepts(issuer)]]) {
    const apiKeys = [apiKey('ci', key), apiKey('cd', 'another'), apiKey('ci', 'replacement')];
    const authenticator = createAuthenticator({ jwt, apiKeys }, { log: SILENT });
    const ci = principal(await ask(authenticator, key));
    assert.deepEqual(ci, {
      key: 'key:ci',
      label: 'ci',
      scopes: [],
      keyName: 'ci',
      keyId: hash('sha256', key).slice(0, 12),
    });
    assert.notEqual(principal(await ask(authenticator, 'another')).key, ci.key);
    assert.equal(principal(await ask(authenticator, 'replacement')).key, ci.key);
    for (const near of [key.slice(0, -1), `${key}=`, key.toUpperCase(), hash('sha256', key), 'ci']) {
      const { challenge = '' } = refusal(await ask(authenticator, near), 401);
      assert.equal(challenge.includes('resource_metadata'), jwt.length > 0);
    }
  }
});

test('a JWT is never looked up as an API key', OPTIONS, async () => {
  await using issuer = await start();
  const expired = await issuer.token({ exp: 1 });
  for (const jwt of [[], [accepts(issuer)]]) {
    const authenticator = createAuthenticator({ jwt, apiKeys: [apiKey('token', expired)] }, { log: SILENT });
    refusal(await ask(authenticator, expired), 401);
  }
});

test('a key with dots that is not a JWT is accepted as an API key', OPTIONS, async () => {
  const authenticator = createAuthenticator({ jwt: [], apiKeys: [apiKey('ci', 'team.ci.2026')] }, { log: SILENT });
  principal(await ask(authenticator, 'team.ci.2026'));
});

test('what was opened without credentials is over once they are asked for', () => {
  const [open, closed] = [[], [apiKey('ci', 'one')]].map((apiKeys) =>
    createAuthenticator({ jwt: [], apiKeys }, { log: SILENT }),
  );
  assert.deepEqual([open?.isOver(LOCAL), closed?.isOver(LOCAL)], [false, true]);
});

// SEC-08
test('a gateway that asks for credentials since a reload has no local principal', OPTIONS, async () => {
  const open = createAuthenticator({ jwt: [], apiKeys: [] }, { log: SILENT });
  const closed = createAuthenticator({ jwt: [], apiKeys: [apiKey('ci', 'the-key')] }, { log: SILENT }, open);
  const ofKey = principal(await ask(closed, 'the-key'));
  assert.equal(open.isOver(ofKey), true, 'a gateway without credentials knows no key');
  open.replaceBy(closed, () => closed);
  assert.equal(open.known({ authorization: [] }, ENDPOINT), undefined);
  refusal(await open.authenticate({ authorization: [] }, ENDPOINT), 401);
  assert.equal(principal(await ask(open, 'the-key')), ofKey);
});

test('where tokens are exchanged, other rights in a token make another principal', OPTIONS, async () => {
  await using issuer = await start();
  const deps = { log: SILENT, exchangesTokens: () => true };
  const authenticator = createAuthenticator({ jwt: [accepts(issuer)], apiKeys: [] }, deps);
  const principalOf = async (claims: Record<string, unknown>) =>
    principal(await ask(authenticator, await issuer.token(claims)));
  const same = [{ scope: 'a b' }, { scope: 'b a b', jti: 'another' }];
  const others = [
    { scope: 'a' },
    { scope: 'a b', authorization_details: [{ type: 'payment' }] },
    { scope: 'a b', act: { sub: 'agent' } },
  ];
  const principals = await Promise.all([...same, ...others].map(principalOf));
  const [first, second] = principals;
  assert.equal(second?.key, first?.key);
  assert.equal(new Set(principals.map(({ key }) => key)).size, 4);
  assert.equal(new Set(principals.map(({ person }) => person)).size, 1, 'one person');
  assert.notEqual(first?.person, undefined);
});

test('without credentials configured everyone is the local principal', OPTIONS, async () => {
  const authenticator = createAuthenticator({ jwt: [], apiKeys: [] }, { log: SILENT });
  for (const authorization of [[], ['Bearer x'], ['nonsense', '']]) {
    assert.equal(principal(await authenticator.authenticate({ authorization }, ENDPOINT)), LOCAL);
    assert.equal(authenticator.known({ authorization }, ENDPOINT), LOCAL);
  }
});

test('the log has the origin alone of the URLs of an issuer that fails', OPTIONS, async () => {
  const origin = 'http://127.0.0.1:1';
  const issuer = { issuer: 'https://id.example', audiences: [], algorithms: ['RS256'], requiredScopes: [] };
  const introspection = {
    ...issuer,
    issuer: 'https://other.example',
    endpoint: `${origin}/ask?code=s3cret`,
    clientId: 'gateway',
    clientSecret: 's3cret',
    tokenPrefix: 'opaque-',
  };
  let lines = '';
  const log = createLogger('info', { write: (line) => void (lines += line) });
  const jwt = [{ ...issuer, jwksUrl: `${origin}/keys?code=s3cret` }];
  const authenticator = createAuthenticator({ jwt, introspection: [introspection], apiKeys: [] }, { log });
  const token = [{ alg: 'RS256', kid: 'one' }, { iss: issuer.issuer, exp: 9e9 }, {}]
    .map((part) => Buffer.from(JSON.stringify(part)).toString('base64url'))
    .join('.');
  refusal(await ask(authenticator, token), 503);
  refusal(await ask(authenticator, 'opaque-token'), 503);
  assert.match(lines, /"jwksUrl":"http:\/\/127\.0\.0\.1:1\/…"/);
  assert.match(lines, /"endpoint":"http:\/\/127\.0\.0\.1:1\/…"/);
  assert.doesNotMatch(lines, /s3cret/);
});

test('a key id that is too long is neither looked up nor remembered', OPTIONS, async () => {
  await using issuer = await start();
  const authenticator = createAuthenticator({ jwt: [accepts(issuer)], apiKeys: [] }, { log: SILENT });
  const { why } = refusal(await ask(authenticator, await issuer.token({}, { kid: 'k'.repeat(257) })), 401);
  assert.deepEqual([why, issuer.fetches], ['malformed key id', 0]);
});

test('an expired token without a key id is expired, whatever other keys there are', OPTIONS, async () => {
  await using issuer = await start();
  const other = await signingKey('RS256', 'other');
  issuer.keys = [KEY.jwk, other.jwk];
  const authenticator = createAuthenticator({ jwt: [accepts(issuer)], apiKeys: [] }, { log: SILENT });
  const { why } = refusal(await ask(authenticator, await issuer.token({ exp: 1 }, { kid: undefined })), 401);
  assert.deepEqual([why, issuer.fetches], ['expired', 1]);
});
