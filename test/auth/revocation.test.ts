/** Tests credentials that end or change while requests use them. */
import assert from 'node:assert/strict';
import { hash } from 'node:crypto';
import type { ServerResponse } from 'node:http';
import { test } from 'node:test';
import { ApiKeys } from '../../src/auth/api-key.ts';
import { createAuthenticator } from '../../src/auth/authenticate.ts';
import type { StoredKey } from '../../src/store/api-key-store.ts';
import { waitUntil } from '../support/wait-until.ts';
import { ENDPOINT, SILENT, signingKey, TestIssuer } from './issuer.ts';

const OPTIONS = { timeout: 120_000 };
const KEY = await signingKey('RS256', 'k1');
const FILE = { jwt: [], apiKeys: [], keyFile: '/keys.json' };
const ANN: StoredKey = { name: 'ann', sha256: hash('sha256', 'ann-key'), groups: ['sales'] };
const HEADERS = { authorization: ['Bearer ann-key'] };

/** An authenticator with keys that a test replaces. */
function withKeys(...stored: readonly StoredKey[]) {
  let keys = new ApiKeys([], stored);
  const time = { ms: 1_800_000_000_000 };
  const used: string[] = [];
  const authenticator = createAuthenticator(FILE, {
    log: SILENT,
    now: () => time.ms,
    keys: () => keys,
    onKeyUsed: ({ label }) => used.push(label),
  });
  return {
    authenticator,
    time,
    used,
    replace: (...next: readonly StoredKey[]) => {
      keys = new ApiKeys([], next, keys);
    },
  };
}

// SEC-08
test('a cached key with other groups has them at its next request', OPTIONS, async () => {
  const { authenticator, replace } = withKeys(ANN);
  await authenticator.authenticate(HEADERS, ENDPOINT);
  assert.deepEqual(authenticator.known(HEADERS, ENDPOINT)?.groups, ['sales']);
  replace({ ...ANN, groups: ['support'] });
  assert.equal(authenticator.known(HEADERS, ENDPOINT), undefined);
  const verdict = await authenticator.authenticate(HEADERS, ENDPOINT);
  assert.deepEqual(verdict.kind === 'principal' ? verdict.principal.groups : undefined, ['support']);
  assert.equal(verdict.kind === 'principal' && authenticator.isOver(verdict.principal), false);
});

// SEC-08
test('a removed key is refused at its next request, cached or not', OPTIONS, async () => {
  const { authenticator, replace } = withKeys(ANN);
  const verdict = await authenticator.authenticate(HEADERS, ENDPOINT);
  assert.ok(verdict.kind === 'principal');
  replace();
  assert.equal(authenticator.known(HEADERS, ENDPOINT), undefined);
  assert.equal((await authenticator.authenticate(HEADERS, ENDPOINT)).kind, 'refused');
  assert.ok(authenticator.isOver(verdict.principal));
  replace(ANN);
  assert.equal((await authenticator.authenticate(HEADERS, ENDPOINT)).kind, 'principal');
});

test('a key is refused from its expiry on, also if it was cached just before', OPTIONS, async () => {
  const { authenticator, time } = withKeys({ ...ANN, expiresAt: new Date(1_800_000_001_000).toISOString() });
  const verdict = await authenticator.authenticate(HEADERS, ENDPOINT);
  assert.ok(verdict.kind === 'principal' && !authenticator.isOver(verdict.principal));
  time.ms += 1_000;
  assert.equal(authenticator.known(HEADERS, ENDPOINT), undefined);
  assert.equal((await authenticator.authenticate(HEADERS, ENDPOINT)).kind, 'refused');
  assert.ok(authenticator.isOver(verdict.principal));
});

test('the use of a key is reported at most once a minute', OPTIONS, async () => {
  const { authenticator, time, used } = withKeys(ANN);
  for (let second = 0; second < 120; second += 10) {
    await authenticator.authenticate(HEADERS, ENDPOINT);
    time.ms += 10_000;
  }
  assert.deepEqual(used, ['ann', 'ann']);
});

test('a lookup costs the same with 100 000 keys as with one', OPTIONS, () => {
  const many = Array.from({ length: 100_000 }, (_, n) => ({ name: `k${n}`, sha256: hash('sha256', `key ${n}`) }));
  const keys = new ApiKeys([], many);
  // Comparing each key with each would take 10^10 steps.
  for (const { name, sha256 } of many) assert.equal(keys.find(sha256)?.label, name);
});

test('a token outlives a change of the scopes that clients are told to request', OPTIONS, async () => {
  await using issuer = await TestIssuer.start(KEY);
  const { issuer: name, jwksUrl } = issuer;
  const entry = { issuer: name, jwksUrl, audiences: [], algorithms: ['RS256'], requiredScopes: [] };
  const told = { ...entry, advertisedScopes: ['a'], scopesOnDemand: [{ scope: 'w', advertised: 'w' }] };
  const [before, after, other] = [entry, told, { ...told, leewayMs: 0 }].map((one) =>
    createAuthenticator({ ...FILE, jwt: [one] }, { log: SILENT }),
  );
  assert.ok(before !== undefined && after !== undefined && other !== undefined);
  const headers = { authorization: [`Bearer ${await issuer.token()}`] };
  const verdict = await before.authenticate(headers, ENDPOINT);
  assert.ok(verdict.kind === 'principal');
  before.replaceBy(after, () => after);
  assert.deepEqual([after.isOver(verdict.principal), other.isOver(verdict.principal)], [false, true]);
  assert.equal(after.known(headers, ENDPOINT), verdict.principal);
});

for (const what of ['removed', 'kept'] as const) {
  test(`a token in verification is judged by the next config: issuer ${what}`, OPTIONS, async () => {
    await using issuer = await TestIssuer.start(KEY);
    const held: ServerResponse[] = [];
    issuer.answer = (_request, response) => void held.push(response);
    const entry = {
      issuer: issuer.issuer,
      jwksUrl: issuer.jwksUrl,
      audiences: [],
      algorithms: ['RS256'],
      requiredScopes: [],
    };
    const [before, after] = [[entry], what === 'kept' ? [entry] : []].map((jwt) =>
      createAuthenticator({ ...FILE, jwt }, { log: SILENT }),
    );
    assert.ok(before !== undefined && after !== undefined);
    const headers = { authorization: [`Bearer ${await issuer.token()}`] };
    const verdict = before.authenticate(headers, ENDPOINT);
    await waitUntil(() => held.length === 1);
    before.replaceBy(after, () => after);
    issuer.answer = undefined;
    held[0]?.setHeader('content-type', 'application/json').end(JSON.stringify({ keys: issuer.keys }));
    const { kind } = await verdict;
    assert.equal(kind, what === 'kept' ? 'principal' : 'refused');
    assert.equal(before.known(headers, ENDPOINT), undefined, 'a replaced authenticator knows nobody');
  });
}

// R17
test('a stream of a token ends after its expiry and the leeway of its issuer', OPTIONS, async () => {
  await using issuer = await TestIssuer.start(KEY);
  const nowS = Math.floor(Date.now() / 1_000);
  let nowMs = nowS * 1_000;
  const entry = {
    issuer: issuer.issuer,
    jwksUrl: issuer.jwksUrl,
    audiences: [],
    algorithms: ['RS256'],
    requiredScopes: [],
  };
  const jwt = [{ ...entry, leewayMs: 5_000 }];
  const authenticator = createAuthenticator({ jwt, apiKeys: [] }, { log: SILENT, now: () => nowMs });
  const token = await issuer.token({ exp: nowS + 60 });
  const verdict = await authenticator.authenticate({ authorization: [`Bearer ${token}`] }, ENDPOINT);
  assert.ok(verdict.kind === 'principal');
  nowMs += 64_999;
  assert.equal(authenticator.isOver(verdict.principal), false);
  nowMs += 1;
  assert.equal(authenticator.isOver(verdict.principal), true);
});

// SEC-08
test('a token is over when its issuer has other rules than those that accepted it', OPTIONS, async () => {
  await using issuer = await TestIssuer.start(KEY);
  const entry = {
    issuer: issuer.issuer,
    jwksUrl: issuer.jwksUrl,
    audiences: [],
    algorithms: ['RS256'],
  };
  const made = (...requiredScopes: readonly string[]) =>
    createAuthenticator({ jwt: [{ ...entry, requiredScopes }], apiKeys: [] }, { log: SILENT });
  const before = made();
  const verdict = await before.authenticate({ authorization: [`Bearer ${await issuer.token()}`] }, ENDPOINT);
  assert.ok(verdict.kind === 'principal');
  const { principal } = verdict;
  assert.equal(before.isOver(principal), false);
  assert.equal(made().isOver(principal), false, 'an equal rule');
  assert.equal(made('mcp').isOver(principal), true);
  const ofReplica = { ...principal };
  assert.equal(made('mcp').isOver(ofReplica), false, 'another replica has accepted it');
  const without = createAuthenticator(FILE, { log: SILENT });
  assert.equal(without.isOver(ofReplica), true, 'its issuer is not configured here');
});

// SEC-05
test('a remembered token is refused once its expiry and the leeway are over', OPTIONS, async () => {
  await using issuer = await TestIssuer.start(KEY);
  const nowS = Math.floor(Date.now() / 1_000);
  let nowMs = nowS * 1_000;
  const { issuer: name, jwksUrl } = issuer;
  const jwt = [{ issuer: name, jwksUrl, audiences: [], algorithms: ['RS256'], requiredScopes: [], leewayMs: 5_000 }];
  const authenticator = createAuthenticator({ jwt, apiKeys: [] }, { log: SILENT, now: () => nowMs });
  const headers = { authorization: [`Bearer ${await issuer.token({ exp: nowS + 10 })}`] };
  assert.equal((await authenticator.authenticate(headers, ENDPOINT)).kind, 'principal');
  nowMs += 14_999;
  assert.equal((await authenticator.authenticate(headers, ENDPOINT)).kind, 'principal');
  nowMs += 1;
  assert.equal(authenticator.known(headers, ENDPOINT), undefined);
  assert.equal((await authenticator.authenticate(headers, ENDPOINT)).kind, 'refused');
});

// SEC-08
test('a token is judged by the rules that its issuer has since a reload', OPTIONS, async () => {
  await using issuer = await TestIssuer.start(KEY);
  const { issuer: name, jwksUrl } = issuer;
  const entry = { issuer: name, jwksUrl, audiences: [], algorithms: ['RS256'] };
  const before = createAuthenticator({ jwt: [{ ...entry, requiredScopes: [] }], apiKeys: [] }, { log: SILENT });
  const headers = { authorization: [`Bearer ${await issuer.token()}`] };
  assert.equal((await before.authenticate(headers, ENDPOINT)).kind, 'principal');
  const stricter = { jwt: [{ ...entry, requiredScopes: ['mcp'] }], apiKeys: [] };
  const after = createAuthenticator(stricter, { log: SILENT }, before);
  before.replaceBy(after, () => after);
  const verdict = await before.authenticate(headers, ENDPOINT);
  assert.ok(verdict.kind === 'refused' && verdict.status === 403, JSON.stringify(verdict));
});

// REL-31
test('other rules of an issuer cost no keys, which it may be unable to send again', OPTIONS, async () => {
  await using issuer = await TestIssuer.start(KEY);
  const { issuer: name, jwksUrl } = issuer;
  const entry = { issuer: name, jwksUrl, audiences: [], algorithms: ['RS256'], requiredScopes: [] };
  const before = createAuthenticator({ jwt: [entry], apiKeys: [] }, { log: SILENT });
  const headers = { authorization: [`Bearer ${await issuer.token()}`] };
  assert.equal((await before.authenticate(headers, ENDPOINT)).kind, 'principal');
  issuer.answer = (_request, response) => response.writeHead(500).end();
  const tolerant = createAuthenticator({ jwt: [{ ...entry, leewayMs: 60_000 }], apiKeys: [] }, { log: SILENT }, before);
  assert.equal((await tolerant.authenticate(headers, ENDPOINT)).kind, 'principal');
  const elsewhere = { ...entry, jwksUrl: `${jwksUrl}/other` };
  const moved = createAuthenticator({ jwt: [elsewhere], apiKeys: [] }, { log: SILENT }, tolerant);
  const verdict = await moved.authenticate(headers, ENDPOINT);
  assert.ok(verdict.kind === 'refused' && verdict.status === 503, JSON.stringify(verdict));
});
