import assert from 'node:assert/strict';
import { test } from 'node:test';
import { pino } from 'pino';
import type { UpstreamAuth } from '../../src/config/values/credentials.ts';
import { IdentityKeys } from '../../src/credentials/identity-keys.ts';
import { upstreamCredentials } from '../../src/credentials/upstream-credentials.ts';
import { GatewayError } from '../../src/errors.ts';
import { Egress } from '../../src/egress/egress.ts';
import { Callers } from '../../src/policy/callers.ts';
import type { Principal } from '../../src/policy/principal.ts';
import { MemoryKeyStore } from '../../src/store/memory/key-store.ts';
import { type ExchangeIssuer, startExchangeIssuer } from '../support/exchange-issuer.ts';
import { waitUntil } from '../support/wait-until.ts';

/** Ann with a token that ends then; its bound for streams is earlier for an introspected one. */
const ann = (endMs: number, expiresAtMs = endMs): Principal => ({
  key: 'ann',
  label: 'ann',
  scopes: [],
  expiresAtMs,
  claims: { exp: endMs / 1_000 },
});

/** Credentials by exchange at this issuer. */
function exchanging(issuer: ExchangeIssuer, egress: Egress) {
  const clock = { ms: Date.now() };
  const callers = new Callers(
    () => undefined,
    () => clock.ms,
  );
  return { callers, clock, requests: exchangingFor(callers, clock, issuer, egress) };
}

function exchangingFor(callers: Callers, clock: { readonly ms: number }, issuer: ExchangeIssuer, egress: Egress) {
  return credentialsFor(callers, clock, exchangeAuth(issuer), egress).requests;
}

const exchangeAuth = (issuer: ExchangeIssuer) =>
  ({
    kind: 'exchange',
    issuer: issuer.issuer,
    clientId: issuer.client.id,
    method: 'client_secret_basic',
    clientSecret: issuer.client.secret,
    scopes: [],
    stepUpScopes: [],
    parameters: {},
  }) as const;

function credentialsFor(callers: Callers, clock: { readonly ms: number }, auth: UpstreamAuth, egress: Egress) {
  return upstreamCredentials(auth, {
    upstream: 'up',
    egress,
    callers,
    identity: new IdentityKeys(),
    log: pino({ level: 'silent' }),
    onLimit: () => undefined,
    onAttempt: () => undefined,
    clock: () => clock.ms,
  });
}

test('a caller that is not known yet is told to wait, and then goes on at once', async () => {
  await using egress = new Egress();
  const callers = new Callers(() => undefined);
  const identity = new IdentityKeys();
  identity.use(new MemoryKeyStore());
  const shared = { upstream: 'up', egress, callers, identity, log: pino({ level: 'silent' }) };
  const parts = { ...shared, onLimit: () => undefined, onAttempt: () => undefined };
  const exchanged = { issuer: 'https://issuer.invalid', clientId: 'g', method: 'client_secret_basic' } as const;
  const { requests: byToken } = upstreamCredentials(
    { kind: 'exchange', ...exchanged, clientSecret: 's', scopes: [], stepUpScopes: [], parameters: {} },
    parts,
  );
  const { requests } = upstreamCredentials({ kind: 'identity', audience: 'up', lifetimeMs: 60_000 }, parts);
  const expected = (error: unknown) => {
    assert.ok(error instanceof GatewayError);
    const says =
      'the gateway has no credentials for upstream "up": it does not know the caller yet; try again in a minute';
    assert.equal(error.detail.message, says);
    assert.equal(error.detail.retryable, true);
    return true;
  };
  await assert.rejects(byToken.acquire('ann'), expected);
  await assert.rejects(requests.acquire('ann'), expected);
  callers.remember({ key: 'ann', label: 'ann', scopes: [] }, undefined);
  // Without the pause after the failure.
  await requests.acquire('ann');
});

test('a user whose token was revoked goes on with another one that ends earlier', async () => {
  await using issuer = await startExchangeIssuer();
  await using egress = new Egress();
  const { callers, requests } = exchanging(issuer, egress);
  const nowMs = Date.now();
  callers.remember(ann(nowMs + 200_000), 'a token that the issuer does not accept any more');
  await assert.rejects(requests.acquire('ann'), /the caller has to sign in again/);
  callers.remember(ann(nowMs + 100_000), await issuer.tokenFor('ann', 'gateway'));
  // Without the pause after the failure.
  await requests.acquire('ann');
  assert.deepEqual(issuer.exchanges, ['ann']);
});

// O-070
test('a newer token of a user is exchanged at once', async () => {
  await using issuer = await startExchangeIssuer();
  await using egress = new Egress();
  const { callers, requests } = exchanging(issuer, egress);
  const endMs = Date.now() + 100_000;
  callers.remember(ann(endMs), await issuer.tokenFor('ann', 'gateway'));
  const first = await requests.acquire('ann');
  assert.equal(requests.current('ann'), first);
  callers.remember(ann(endMs + 1_000), await issuer.tokenFor('ann', 'gateway'));
  assert.notEqual(await requests.acquire('ann'), first);
  assert.deepEqual(issuer.exchanges, ['ann', 'ann']);
});

// O-070
test('an exchanged token is not used after the end of the token of its user', async () => {
  await using issuer = await startExchangeIssuer();
  await using egress = new Egress();
  const { callers, requests, clock } = exchanging(issuer, egress);
  const token = await issuer.tokenFor('ann', 'gateway');
  callers.remember(ann(clock.ms + 60_000), token);
  const first = await requests.acquire('ann');
  clock.ms += 59_999;
  assert.equal(requests.current('ann'), first);
  clock.ms++;
  assert.equal(requests.current('ann'), undefined);
  await assert.rejects(requests.acquire('ann'), /the caller has to sign in again/);
  assert.deepEqual(issuer.exchanges, ['ann'], 'a token that has ended is not sent');
  callers.remember(ann(clock.ms + 60_000), token);
  // Without the pause after the failure.
  await requests.acquire('ann');
});

test('a reload with other secrets forgets the credentials, and an equal one keeps them', async () => {
  await using issuer = await startExchangeIssuer();
  await using egress = new Egress();
  const { callers, clock } = exchanging(issuer, egress);
  const auth = exchangeAuth(issuer);
  const credentials = credentialsFor(callers, clock, auth, egress);
  const { requests } = credentials;
  callers.remember(ann(clock.ms + 60_000), await issuer.tokenFor('ann', 'gateway'));
  const first = await requests.acquire('ann');
  credentials.update({ ...auth, scopes: [] });
  assert.equal(requests.current('ann'), first);
  credentials.update({ ...auth, clientSecret: 'another' });
  assert.equal(requests.current('ann'), undefined);
  await assert.rejects(requests.acquire('ann'), /an operator has to correct them/);
});

// O-070
test('a token that is exchanged while that of its user ends is not used', async (t) => {
  await using issuer = await startExchangeIssuer();
  await using egress = new Egress();
  const { callers, requests, clock } = exchanging(issuer, egress);
  callers.remember(ann(clock.ms + 60_000), await issuer.tokenFor('ann', 'gateway'));
  const fetch = egress.fetch.bind(egress);
  t.mock.method(egress, 'fetch', async (...request: Parameters<Egress['fetch']>) => {
    const response = await fetch(...request);
    if (request[0].endsWith('/token')) clock.ms += 60_000;
    return response;
  });
  await assert.rejects(requests.acquire('ann'), /the caller has to sign in again/);
  assert.deepEqual(issuer.exchanges, ['ann']);
});

// O-070
test('a user with an introspected token goes on after a time without calls', async () => {
  await using issuer = await startExchangeIssuer();
  await using egress = new Egress();
  const { callers, requests, clock } = exchanging(issuer, egress);
  const endMs = clock.ms + 8 * 3_600_000;
  callers.remember(ann(endMs, clock.ms + 900_000), await issuer.tokenFor('ann', 'gateway'));
  await requests.acquire('ann');
  clock.ms += 3_600_000;
  await requests.acquire('ann');
  assert.deepEqual(issuer.exchanges, ['ann', 'ann']);
});

// O-070
test('an exchanged token is renewed in the background once its user has a later end', async () => {
  await using issuer = await startExchangeIssuer();
  await using egress = new Egress();
  const { callers, requests, clock } = exchanging(issuer, egress);
  const token = await issuer.tokenFor('ann', 'gateway');
  callers.remember(ann(clock.ms + 60_000), token);
  const first = await requests.acquire('ann');
  clock.ms += 50_000;
  assert.equal(requests.current('ann'), first);
  await new Promise(setImmediate);
  callers.remember(ann(clock.ms + 60_000), token);
  assert.equal(requests.current('ann'), first);
  await waitUntil(() => requests.current('ann') !== first);
  clock.ms += 20_000;
  assert.notEqual(requests.current('ann'), undefined);
  assert.deepEqual(issuer.exchanges, ['ann', 'ann']);
});

// O-070
test('a token of a user that was denied once goes on after the end of its replacement', async () => {
  await using issuer = await startExchangeIssuer();
  await using egress = new Egress();
  const { callers, requests, clock } = exchanging(issuer, egress);
  const [long, short] = [await issuer.tokenFor('ann', 'gateway'), await issuer.tokenFor('ann', 'gateway', '')];
  const endMs = clock.ms + 3_600_000;
  callers.remember(ann(endMs), long);
  issuer.failing.set('ann', 404);
  await assert.rejects(requests.acquire('ann'), /try again/);
  issuer.failing.clear();
  clock.ms += 1_000;
  await requests.acquire('ann');
  callers.remember(ann(clock.ms + 300_000), short);
  await requests.acquire('ann');
  clock.ms += 300_000;
  callers.remember(ann(endMs), long);
  await requests.acquire('ann');
});

// O-070
test('two introspected tokens of a user that are extended cost one exchange each', async () => {
  await using issuer = await startExchangeIssuer();
  await using egress = new Egress();
  const { callers, requests, clock } = exchanging(issuer, egress);
  const tokens = [await issuer.tokenFor('ann', 'gateway'), await issuer.tokenFor('ann', 'gateway', '')];
  for (let turn = 0; turn < 8; turn++) {
    callers.remember(ann(clock.ms + 3_600_000, clock.ms + 900_000), tokens[turn % 2]);
    if (turn > 1) assert.notEqual(requests.current('ann'), undefined, 'calls wait for an exchange');
    await requests.acquire('ann');
    clock.ms += 30_000;
  }
  assert.deepEqual(issuer.exchanges, ['ann', 'ann']);
});

// O-070
for (const [what, endMs] of [
  ['ends with the older one', Date.now() + 3_600_000],
  ['ends never', Infinity],
] as const) {
  test(`a newer token of a user that ${what} is exchanged at once`, async () => {
    await using issuer = await startExchangeIssuer();
    await using egress = new Egress();
    const { callers, requests } = exchanging(issuer, egress);
    callers.remember(ann(endMs), 'a token that the issuer does not accept any more');
    callers.remember(ann(endMs), await issuer.tokenFor('ann', 'gateway'));
    const first = await requests.acquire('ann');
    callers.remember(ann(endMs), await issuer.tokenFor('ann', 'gateway', ''));
    assert.notEqual(await requests.acquire('ann'), first);
  });
}

// O-049 O-070
test('a user that one upstream refuses waits for no exchange at another one', async () => {
  await using issuer = await startExchangeIssuer();
  await using refusing = await startExchangeIssuer();
  await using egress = new Egress();
  const { callers, requests, clock } = exchanging(issuer, egress);
  const refused = exchangingFor(callers, clock, refusing, egress);
  const tokens = [await issuer.tokenFor('ann', 'gateway'), await issuer.tokenFor('ann', 'gateway', '')];
  const endMs = clock.ms + 3_600_000;
  for (let turn = 0; turn < 8; turn++) {
    callers.remember(ann(endMs - (turn % 2)), tokens[turn % 2]);
    if (turn > 1) assert.notEqual(requests.current('ann'), undefined, 'calls wait for an exchange');
    await requests.acquire('ann');
    await assert.rejects(refused.acquire('ann'), /sign in again/);
    clock.ms += 30_000;
  }
  assert.deepEqual(issuer.exchanges, ['ann', 'ann']);
});
