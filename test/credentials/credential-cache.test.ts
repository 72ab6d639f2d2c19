import assert from 'node:assert/strict';
import { test } from 'node:test';
import { CredentialCache } from '../../src/credentials/credential-cache.ts';
import { TokenDeniedError } from '../../src/credentials/token-request.ts';
import { GatewayError } from '../../src/errors.ts';
import { LIMITS, type LimitName } from '../../src/limits.ts';
import type { Proof } from '../../src/policy/callers.ts';
import type { Credential } from '../../src/upstream/http/request-credentials.ts';
import { NeedsAuthorizationError } from '../../src/upstream/rpc/needs-authorization-error.ts';

/** A cache with a clock of its own, over an issuer that numbers its tokens. */
function cacheOf(lifeMs = 100_000) {
  const state = {
    ms: 1_000,
    asked: [] as string[],
    failure: undefined as Error | undefined,
    /** Scopes that the issuer does not give out, and why. */
    refusedScope: '',
    /** The newest subject. */
    subject: 'one',
    refusedSubject: '',
    subjectLifeMs: Infinity,
    /** The end of each credential. */
    padding: '',
    scopeFailure: new NeedsAuthorizationError('invalid_scope', { isOfScopes: true }) as Error,
  };
  const limits: LimitName[] = [];
  const subjects: { token: string; endMs: number; verification: number }[] = [];
  let verifications = 0;
  const verify = (token: string) => {
    const known = subjects.find((subject) => subject.token === token);
    if (known === undefined) subjects.unshift({ token, endMs: Infinity, verification: ++verifications });
    else known.verification = ++verifications;
  };
  const subjectsOf = (): readonly Proof[] | undefined => {
    if (state.subject === '') return undefined;
    if (state.subject !== subjects[0]?.token) verify(state.subject);
    return subjects;
  };
  const cache = new CredentialCache({
    upstream: 'up',
    acquire: async (audience, scopes, subject) => {
      state.asked.push([audience, ...scopes].join(' '));
      await Promise.resolve();
      if (state.failure !== undefined) throw state.failure;
      if (subject?.token === state.refusedSubject)
        throw new NeedsAuthorizationError('invalid_grant', { actor: 'caller' });
      if (scopes.includes(state.refusedScope)) throw state.scopeFailure;
      const credential = { headers: ['authorization', `Bearer ${audience}-${state.asked.length}${state.padding}`] };
      return { credential, lifeMs, subjectLifeMs: state.subjectLifeMs };
    },
    subjectsOf,
    scopes: { base: ['read'], stepUp: ['write', 'admin', 'audit'] },
    onAttempt: () => undefined,
    onLimit: (limit) => limits.push(limit),
    clock: () => state.ms,
    random: () => 0,
  });
  return { cache, state, limits, verify };
}

const tokenOf = (credential: Credential | undefined) => credential?.headers[1];

test('simultaneous requests for a credential share one, and each audience has its own', async () => {
  const { cache, state } = cacheOf();
  const got = await Promise.all(['a', 'a', 'b', 'a'].map((audience) => cache.acquire(audience)));
  assert.deepEqual(got.map(tokenOf), ['Bearer a-2', 'Bearer a-2', 'Bearer b-2', 'Bearer a-2']);
  assert.deepEqual(state.asked, ['a', 'b']);
  assert.equal(cache.current('c'), undefined);
});

test('a credential is renewed before it expires, while requests use the old one', async () => {
  const { cache, state } = cacheOf(100_000);
  const first = await cache.acquire('');
  state.ms += 79_999;
  assert.equal(cache.current(''), first);
  assert.equal(state.asked.length, 1);
  state.ms += 1;
  assert.equal(cache.current(''), first);
  assert.equal(cache.current(''), first);
  assert.equal(state.asked.length, 2, 'one renewal');
  const second = await cache.acquire('');
  assert.equal(second, first, 'nobody waits for the renewal');
  await new Promise(setImmediate);
  assert.equal(tokenOf(cache.current('')), 'Bearer -2');
});

test('an expired credential is not used, also if it cannot be renewed', async () => {
  const { cache, state } = cacheOf(100_000);
  await cache.acquire('');
  state.failure = new Error('the issuer is down');
  state.ms += 95_000;
  assert.equal(cache.current(''), undefined);
  await assert.rejects(cache.acquire(''), { code: 'upstream-unavailable' });
});

test('a credential of unknown life is used until the upstream refuses it', async () => {
  const { cache, state } = cacheOf(Infinity);
  const first = await cache.acquire('');
  state.ms += 10 ** 12;
  assert.equal(cache.current(''), first);
  assert.notEqual(await cache.renew('', first), first);
});

test('a failed issuer is asked again after 1 s, doubling to 30 s', async () => {
  const { cache, state } = cacheOf();
  state.failure = new Error('down');
  const waits: number[] = [];
  for (let tries = 0; tries < 7; tries++) {
    await assert.rejects(cache.acquire(''));
    const { length } = state.asked;
    const failedMs = state.ms;
    while (state.asked.length === length) {
      state.ms += 500;
      await cache.acquire('').catch(() => undefined);
    }
    waits.push(state.ms - failedMs);
  }
  assert.deepEqual(waits, [1_000, 2_000, 4_000, 8_000, 16_000, 30_000, 30_000]);
});

test('refused requests share one renewal, and an upstream causes one in 5 s', async () => {
  const { cache, state } = cacheOf();
  const first = await cache.acquire('');
  const renewed = await Promise.all([cache.renew('', first), cache.renew('', first), cache.renew('', first)]);
  assert.equal(new Set(renewed).size, 1);
  assert.equal(state.asked.length, 2);
  const [second] = renewed;
  assert.ok(second !== undefined);
  assert.equal(await cache.renew('', first), second, 'refused late, for the credential before');
  assert.equal(await cache.renew('', second), undefined);
  assert.equal(state.asked.length, 2);
  state.ms += 5_000;
  assert.notEqual(await cache.renew('', second), second);
});

test('a client reads whether somebody has to act, and nothing of the issuer', async () => {
  const { cache, state } = cacheOf();
  state.failure = new NeedsAuthorizationError('invalid_client: secret words');
  const final = await cache.acquire('').catch((thrown: unknown) => thrown);
  assert.ok(final instanceof GatewayError);
  assert.deepEqual([final.detail.executed, final.detail.retryable], ['no', false]);
  assert.equal(final.cause, state.failure);
  assert.doesNotMatch(final.message, /secret words/);
});

test('a refusal of one subject does not delay another, an issuer that is down does', async () => {
  const { cache, state } = cacheOf();
  state.failure = new NeedsAuthorizationError('invalid_grant', { actor: 'caller' });
  for (let times = 0; times < 2; times++) await assert.rejects(cache.acquire('a'), /the caller has to sign in again/);
  assert.equal(state.asked.length, 1);
  state.subject = 'two';
  for (let times = 0; times < 2; times++) await assert.rejects(cache.acquire('a'));
  assert.equal(state.asked.length, 2);
  state.failure = new Error('down');
  state.subject = 'three';
  await assert.rejects(cache.acquire('a'), /try again/);
  state.subject = 'four';
  await assert.rejects(cache.acquire('a'), /try again/);
  assert.equal(state.asked.length, 3);
});

// O-070
test('a newer subject gets a credential of its own at once, in one request', async () => {
  const { cache, state } = cacheOf(Infinity);
  const first = await cache.acquire('a');
  state.subject = 'two';
  assert.equal(cache.current('a'), undefined, 'the credential of the older subject is still used');
  const got = await Promise.all([cache.acquire('a'), cache.acquire('a')]);
  assert.deepEqual(got.map(tokenOf), ['Bearer a-2', 'Bearer a-2']);
  assert.notEqual(got[0], first);
  assert.equal(cache.current('a'), got[0]);
  state.subject = '';
  assert.equal(cache.current('a'), got[0], 'a subject that is not known any more changes nothing');
});

// O-070
test('a newer subject that is refused does not use the credential of the older one', async () => {
  const { cache, state } = cacheOf();
  await cache.acquire('a');
  state.subject = state.refusedSubject = 'two';
  for (let times = 0; times < 2; times++) await assert.rejects(cache.acquire('a'), /the caller has to sign in again/);
  assert.equal(state.asked.length, 2);
});

// O-070
test('a newer subject that is denied does not use the credential of the older one', async () => {
  const { cache, state } = cacheOf();
  const first = await cache.acquire('a');
  state.failure = new TokenDeniedError('access_denied');
  state.ms += 80_000;
  assert.equal(cache.current('a'), first, 'renewed in the background');
  await new Promise(setImmediate);
  assert.equal(cache.current('a'), first, 'a failed renewal loses no good token');
  state.subject = 'two';
  for (let times = 0; times < 2; times++) await assert.rejects(cache.acquire('a'), /try again/);
  assert.equal(state.asked.length, 3, 'asked at once, and then after the pause');
  state.failure = new Error('down');
  state.ms += 2_000;
  await assert.rejects(cache.acquire('a'), /try again/, 'the older one is lost also while the issuer is down');
  state.failure = undefined;
  state.ms += 4_000;
  assert.equal(tokenOf(await cache.acquire('a')), 'Bearer a-5');
});

// O-070
test('after a refused renewal a newer subject is asked about at once', async () => {
  const { cache, state } = cacheOf();
  const first = await cache.acquire('a');
  state.refusedSubject = 'one';
  state.ms += 80_000;
  assert.equal(cache.current('a'), first);
  await new Promise(setImmediate);
  state.subject = 'two';
  assert.equal(cache.current('a'), undefined);
  assert.equal(tokenOf(await cache.acquire('a')), 'Bearer a-3');
});

// O-070
test('a newer subject without the further scopes does not use those of the older one', async () => {
  const { cache, state } = cacheOf();
  const first = await cache.acquire('a');
  const second = await cache.extend('a', first, ['write']);
  state.subject = 'two';
  state.refusedScope = 'write';
  const third = await cache.acquire('a');
  assert.ok(third !== first && third !== second);
  assert.deepEqual(state.asked, ['a', 'a write', 'a write', 'a']);
});

// O-070
test('while the issuer is down a newer subject uses the credential of the older one', async () => {
  const { cache, state } = cacheOf();
  const first = await cache.acquire('a');
  state.subject = 'two';
  state.failure = new Error('down');
  assert.equal(await cache.acquire('a'), first);
  assert.equal(await cache.acquire('a'), first);
  assert.equal(state.asked.length, 2, 'nobody waits for the issuer again');
  state.failure = undefined;
  state.ms += 1_000;
  assert.equal(cache.current('a'), first, 'it is asked in the background');
  await new Promise(setImmediate);
  assert.equal(tokenOf(cache.current('a')), 'Bearer a-3');
});

// O-070
test('a newer subject does not use the older one once the issuer may be up again', async () => {
  const { cache, state } = cacheOf();
  const first = await cache.acquire('a');
  state.failure = new Error('down');
  state.ms += 80_000;
  assert.equal(cache.current('a'), first);
  await new Promise(setImmediate);
  state.subject = 'two';
  assert.equal(cache.current('a'), first, 'nobody waits for the issuer again');
  state.failure = undefined;
  state.ms += 1_000;
  assert.equal(cache.current('a'), undefined);
  assert.equal(tokenOf(await cache.acquire('a')), 'Bearer a-3');
});

// O-070
test('a newer subject that could not be asked about does not use the older one later', async () => {
  const { cache, state } = cacheOf();
  const first = await cache.acquire('a');
  state.subject = 'two';
  state.failure = new Error('down');
  assert.equal(await cache.acquire('a'), first);
  state.ms += 31_000;
  assert.equal(cache.current('a'), undefined);
  assert.equal(await cache.acquire('a'), first, 'the issuer is still down');
});

// O-070
test('a newer subject that has got a credential does not use that of the older one', async () => {
  const { cache, state } = cacheOf();
  await cache.acquire('a');
  state.subject = 'two';
  state.subjectLifeMs = 10_000;
  await cache.acquire('a');
  state.ms += 10_000;
  state.failure = new Error('down');
  await assert.rejects(cache.acquire('a'), /try again/);
});

// O-070
test('an older subject that is verified after the refusal of a newer one goes on', async () => {
  const { cache, state, verify } = cacheOf();
  const first = await cache.acquire('a');
  state.subject = state.refusedSubject = 'two';
  await assert.rejects(cache.acquire('a'), /sign in again/);
  verify('one');
  assert.equal(cache.current('a'), first);
  verify('two');
  state.ms += 40_000;
  assert.equal(cache.current('a'), first, 'the newer one is not asked about while the older one can be used');
  assert.equal(state.asked.length, 2);
  state.ms += 60_000;
  assert.equal(tokenOf(await cache.acquire('a')), 'Bearer a-3');
});

/** A cache whose newer subject was denied, after which the older one was verified. Its credential is `first`. */
async function withDeniedNewer() {
  const made = cacheOf();
  const { cache, state, verify } = made;
  const first = await cache.acquire('a');
  state.subject = 'two';
  state.failure = new TokenDeniedError('access_denied');
  await assert.rejects(cache.acquire('a'), /try again/);
  verify('one');
  return { ...made, first };
}

// O-070
test('a newer subject that was denied is asked about again after the pause', async () => {
  const { cache, state, first } = await withDeniedNewer();
  assert.equal(cache.current('a'), first);
  state.ms += 1_000;
  assert.equal(await cache.acquire('a'), first, 'it is denied again');
  assert.equal(state.asked.length, 3);
  state.failure = undefined;
  state.ms += 2_000;
  assert.equal(tokenOf(await cache.acquire('a')), 'Bearer a-4');
});

// O-070
test('an older subject goes on also after the second denial of a newer one', async () => {
  const { cache, state, verify, first } = await withDeniedNewer();
  verify('two');
  state.ms += 1_000;
  assert.equal(await cache.acquire('a'), first, 'it is denied again');
  assert.equal(cache.current('a'), first);
});

// O-070
test('an older subject goes on while the issuer of a denied newer one is down', async () => {
  const { cache, state, first } = await withDeniedNewer();
  state.failure = new Error('down');
  state.ms += 1_000;
  assert.equal(await cache.acquire('a'), first);
  assert.equal(cache.current('a'), first);
});

// O-070
for (const denial of [
  new TokenDeniedError('invalid_token'),
  new NeedsAuthorizationError('gone', { actor: 'caller' }),
]) {
  test(`after a 401 and ${denial.name} of the newest subject the older one goes on`, async () => {
    const { cache, state, verify } = cacheOf();
    const older = await cache.acquire('a');
    state.subject = 'two';
    const newer = await cache.acquire('a');
    verify('two');
    verify('one');
    state.failure = denial;
    assert.equal(await cache.renew('a', newer), older, 'the request that was refused');
    assert.equal(cache.current('a'), older);
    assert.equal(await cache.renew('a', newer), older, 'another one that was under way');
  });
}

// A-020 O-070
test('the further scopes of one subject are got for another one when it needs them', async () => {
  const { cache, state, verify } = cacheOf();
  const first = await cache.acquire('a');
  state.subject = 'two';
  const second = await cache.acquire('a');
  const extended = await cache.extend('a', second, ['write']);
  assert.ok(extended !== undefined);
  state.refusedSubject = 'two';
  await assert.rejects(cache.renew('a', extended), /sign in again/);
  verify('one');
  assert.equal(cache.current('a'), first);
  const third = await cache.extend('a', first, ['write']);
  assert.equal(cache.current('a'), third);
  assert.ok(third !== undefined && third !== first);
  assert.equal(await cache.extend('a', third, ['write']), undefined, 'the token with the scope is refused as well');
  assert.deepEqual(state.asked, ['a', 'a', 'a write', 'a write', 'a write']);
});

// O-070
test('a credential is not used after the end of its subject', async () => {
  const { cache, state } = cacheOf(Infinity);
  state.subjectLifeMs = 60_000;
  const first = await cache.acquire('a');
  state.ms += 59_999;
  assert.equal(cache.current('a'), first);
  state.ms += 1;
  assert.equal(cache.current('a'), undefined);
  assert.deepEqual(state.asked, ['a']);
});

// O-043
test('a refused credential stays for other requests until another one arrives', async () => {
  const { cache, state } = cacheOf();
  const first = await cache.acquire('');
  const renewing = cache.renew('', first);
  assert.equal(cache.current(''), first);
  const second = await renewing;
  assert.notEqual(second, first);
  assert.equal(cache.current(''), second);
  assert.ok(second !== undefined);
  state.ms += 5_000;
  state.failure = new Error('down');
  await assert.rejects(cache.renew('', second), /try again/);
  assert.equal(cache.current(''), second, 'the issuer is down');
  await assert.rejects(cache.renew('', second), /try again/);
  assert.equal(state.asked.length, 3, 'refusals wait for the pause');
  state.failure = undefined;
  state.ms += 1_000;
  assert.equal(tokenOf(await cache.renew('', second)), 'Bearer -4');
});

test('a credential that upstream and issuer have refused is not used any more', async () => {
  const { cache, state } = cacheOf();
  const first = await cache.acquire('');
  state.failure = new NeedsAuthorizationError('invalid_client');
  await assert.rejects(cache.renew('', first), /an operator has to correct them/);
  assert.equal(cache.current(''), undefined);
});

test('while the gateway itself is refused, other subjects wait for the pause', async () => {
  const { cache, state } = cacheOf();
  state.failure = new NeedsAuthorizationError('invalid_client');
  for (const subject of ['one', 'two', 'three']) {
    state.subject = subject;
    await assert.rejects(cache.acquire('a'), /an operator has to correct them/);
  }
  assert.equal(state.asked.length, 1);
});

test('a request with another subject does not join that of a refused one', async () => {
  const { cache, state } = cacheOf();
  state.refusedSubject = 'one';
  const first = cache.acquire('a');
  state.subject = 'two';
  const second = cache.acquire('a');
  assert.equal(tokenOf(await second), 'Bearer a-2');
  assert.equal(await first, await second, 'the older one goes on with the newer one');
});

//
test('step-up asks for the union of scopes, once, and renewals keep it', async () => {
  const { cache, state } = cacheOf();
  const first = await cache.acquire('a');
  const wider = await Promise.all([1, 2, 3].map(() => cache.extend('a', first, ['read', 'write'])));
  assert.equal(new Set(wider).size, 1, 'simultaneous refusals share one request');
  const [second] = wider;
  assert.ok(second !== undefined);
  assert.equal(cache.current('a'), second);
  assert.equal(await cache.extend('a', second, ['write']), undefined, 'the token with the scope is refused as well');
  const third = await cache.extend('a', second, ['audit']);
  assert.equal(cache.current('a'), third);
  assert.equal(await cache.extend('a', first, ['write']), third, 'refused late, for the credential before');
  await cache.acquire('b');
  state.ms += 100_000;
  await cache.acquire('a');
  assert.deepEqual(state.asked, ['a', 'a write', 'a write audit', 'b', 'a write audit']);
});

//
test('simultaneous needs of different scopes are met one after the other', async () => {
  const { cache, state } = cacheOf();
  const first = await cache.acquire('');
  const needs = [['write'], ['admin'], ['audit'], ['admin', 'audit']];
  const got = await Promise.all(needs.map((needed) => cache.extend('', first, needed)));
  assert.ok(got.every((credential) => credential !== undefined && credential !== first));
  assert.deepEqual(state.asked, ['', ' write', ' write admin', ' write admin audit']);
});

//
test('step-up asks for no scope that the settings do not name', async () => {
  const { cache, state } = cacheOf();
  const first = await cache.acquire('');
  for (const needed of [['write', 'root'], ['root'], ['read'], ['']]) {
    assert.equal(await cache.extend('', first, needed), undefined, needed.join(' '));
  }
  assert.deepEqual(state.asked, ['']);
});

//
test('scopes that the issuer refuses are asked for again after an hour', async () => {
  const { cache, state } = cacheOf(10_000_000);
  const first = await cache.acquire('');
  state.refusedScope = 'admin';
  for (let times = 0; times < 3; times++) assert.equal(await cache.extend('', first, ['admin']), undefined);
  assert.equal(cache.current(''), first, 'the credential stays');
  assert.deepEqual(state.asked, ['', ' admin']);
  const second = await cache.extend('', first, ['write']);
  assert.equal(cache.current(''), second, 'other scopes are not concerned');
  assert.ok(second !== undefined);
  state.ms += 3_600_000;
  state.refusedScope = '';
  assert.notEqual(await cache.extend('', second, ['admin']), undefined);
  assert.deepEqual(state.asked.slice(2), [' write', ' write admin']);
});

//
test('an issuer that is down during a step-up is asked again after 30 s', async () => {
  const { cache, state } = cacheOf(10_000_000);
  const first = await cache.acquire('');
  state.refusedScope = 'write';
  state.scopeFailure = new Error('down');
  assert.equal(await cache.extend('', first, ['write']), undefined);
  assert.equal(await cache.extend('', first, ['write']), undefined);
  assert.deepEqual(state.asked, ['', ' write']);
  state.ms += 30_000;
  state.refusedScope = '';
  assert.notEqual(await cache.extend('', first, ['write']), undefined);
});

test('scopes that the issuer gives out no more are left out of the next credential', async () => {
  const { cache, state } = cacheOf();
  const first = await cache.acquire('');
  const second = await cache.extend('', first, ['write']);
  assert.ok(second !== undefined);
  state.refusedScope = 'write';
  const third = await cache.renew('', second);
  assert.ok(third !== undefined);
  assert.deepEqual(state.asked, ['', ' write', ' write', '']);
  assert.equal(await cache.extend('', third, ['write']), undefined);
  assert.equal(state.asked.length, 4);
});

//
test('a renewal that fails for another reason keeps the further scopes', async () => {
  const { cache, state } = cacheOf();
  const first = await cache.acquire('');
  const second = await cache.extend('', first, ['write']);
  assert.ok(second !== undefined);
  state.refusedSubject = 'one';
  await assert.rejects(cache.renew('', second), /sign in again/);
  state.refusedSubject = '';
  state.ms += 1_000;
  await cache.acquire('');
  assert.deepEqual(state.asked, ['', ' write', ' write', ' write']);
});

test('changed settings forget credentials and failures', async () => {
  const { cache, state } = cacheOf();
  await cache.acquire('');
  cache.clear();
  assert.equal(cache.current(''), undefined);
  state.failure = new Error('wrong secret');
  await assert.rejects(cache.acquire(''));
  state.failure = undefined;
  cache.clear();
  assert.equal(tokenOf(await cache.acquire('')), 'Bearer -3');
});

test('limit credentialChars: beyond it the oldest audiences are forgotten', async () => {
  const { cache, state, limits } = cacheOf();
  state.padding = 'x'.repeat(LIMITS.credentialChars / 5);
  for (const audience of ['a', 'b', 'a', 'c']) await cache.acquire(audience);
  // Another token of a caller has a credential of its own.
  state.subject = 'two';
  await cache.acquire('b');
  assert.deepEqual(limits, []);
  await cache.acquire('c');
  assert.deepEqual(
    ['a', 'b', 'c'].map((audience) => cache.current(audience) !== undefined),
    [false, true, true],
  );
  assert.deepEqual(limits, ['credentialChars']);
});

test('limit credentialAudiences: beyond it the oldest audience is forgotten', async () => {
  const { cache, limits } = cacheOf();
  for (let at = 0; at <= LIMITS.credentialAudiences; at++) await cache.acquire(`p${at}`);
  assert.equal(cache.current('p0'), undefined);
  assert.notEqual(cache.current('p1'), undefined);
  assert.deepEqual(limits, ['credentialAudiences']);
});
