import assert from 'node:assert/strict';
import { test } from 'node:test';
import { LIMITS, type LimitName } from '../../src/limits.ts';
import { Callers } from '../../src/policy/callers.ts';
import type { Principal } from '../../src/policy/principal.ts';

/** A principal whose token ends then, if it ends. */
const principal = (key: string, endMs?: number, expiresAtMs = endMs): Principal => ({
  key,
  label: key,
  scopes: [],
  ...(expiresAtMs === undefined ? {} : { expiresAtMs }),
  claims: endMs === undefined ? {} : { exp: endMs / 1_000 },
});

/** Returns the token that is exchanged for a caller unless it is refused. */
const tokenOf = (callers: Callers, key: string): string | undefined => callers.find(key)?.proofs[0]?.token;

function callersOf() {
  const limits: LimitName[] = [];
  const clock = { ms: 0 };
  const callers = new Callers(
    (limit) => limits.push(limit),
    () => clock.ms,
  );
  return { callers, limits, clock };
}

test('no caller and no token is remembered before an upstream needs them', () => {
  const { callers } = callersOf();
  const ann = principal('ann');
  callers.remember(ann, 'token');
  assert.equal(callers.find('ann'), undefined);
  assert.equal(callers.tokenOf(ann), undefined);
});

test('the token that was first seen last is the one of a caller, until it ends', () => {
  const { callers, clock } = callersOf();
  callers.begin();
  callers.remember(principal('ann', 2_000), 'long');
  callers.remember(principal('ann', 1_000), 'short');
  callers.remember(principal('ann', 2_000), 'long');
  assert.equal(tokenOf(callers, 'ann'), 'short');
  clock.ms = 1_000;
  assert.equal(tokenOf(callers, 'ann'), 'long');
  clock.ms = 2_000;
  assert.equal(tokenOf(callers, 'ann'), 'long', 'kept while there is no other');
});

test('the token that was issued last is the one of a caller, whichever was seen last', () => {
  const { callers, clock } = callersOf();
  callers.begin();
  clock.ms = 100_000;
  const issued = (iat: number): Principal => ({ ...principal('ann'), claims: { iat } });
  callers.remember(issued(60), 'newer');
  callers.remember(issued(30), 'older');
  assert.equal(tokenOf(callers, 'ann'), 'newer');
  callers.remember(issued(60), 'of the same second');
  assert.equal(tokenOf(callers, 'ann'), 'of the same second');
  callers.remember(principal('ann'), 'seen now');
  callers.remember(issued(99), 'issued before');
  assert.equal(tokenOf(callers, 'ann'), 'seen now');
  callers.remember(issued(1_000), 'of a fast clock');
  clock.ms++;
  callers.remember(principal('ann'), 'seen later');
  assert.equal(tokenOf(callers, 'ann'), 'seen later');
});

// O-070
for (const [what, endMs] of [
  ['of unknown end', undefined],
  ['that end together', 9_000_000],
] as const) {
  test(`two introspected tokens ${what} do not take turns`, () => {
    const { callers, clock } = callersOf();
    callers.begin();
    const verify = (token: string) => callers.remember(principal('ann', endMs, clock.ms + 900_000), token);
    verify('first');
    for (; clock.ms < 3_000_000; clock.ms += 60_000) {
      verify('second');
      assert.equal(tokenOf(callers, 'ann'), 'second');
      verify('first');
      assert.equal(tokenOf(callers, 'ann'), 'second');
    }
    clock.ms += 900_000;
    verify('first');
    assert.equal(tokenOf(callers, 'ann'), 'first', 'the second one is not used any more');
  });
}

// O-070
test('the end of an introspected token is its own, not the bound of streams', () => {
  const { callers } = callersOf();
  callers.begin();
  const endOf = (key: string) => callers.find(key)?.proofs[0]?.endMs;
  callers.remember(principal('ann', undefined, 900_000), 'of unknown end');
  callers.remember(principal('bob', 2_000_000, 900_000), 'token');
  assert.equal(endOf('ann'), Infinity);
  assert.equal(endOf('bob'), 2_000_000);
  const [known] = callers.find('bob')?.proofs ?? [];
  callers.remember(principal('bob', 4_000_000, 2_900_000), 'token');
  assert.equal(endOf('bob'), 4_000_000, 'its issuer has extended it');
  assert.equal(callers.find('bob')?.proofs[0], known);
});

test('limit callers: beyond it the caller that was verified longest ago is forgotten', () => {
  const { callers, limits } = callersOf();
  callers.begin();
  for (let at = 0; at <= LIMITS.callers; at++) {
    callers.remember(principal(`p${at}`), undefined);
    callers.remember(principal('p0'), undefined);
  }
  assert.equal(callers.find('p1'), undefined);
  assert.notEqual(callers.find('p0'), undefined);
  assert.deepEqual(limits, ['callers']);
});

test('limit callerTokenChars: beyond it the oldest tokens are forgotten', () => {
  const { callers, limits } = callersOf();
  callers.begin();
  const token = 'x'.repeat(LIMITS.callerTokenChars / 2);
  for (const key of ['a', 'b', 'b', 'c']) callers.remember(principal(key), token);
  assert.equal(callers.find('a'), undefined);
  assert.ok(callers.find('b') !== undefined && callers.find('c') !== undefined);
  assert.deepEqual(limits, ['callerTokenChars']);
});

test('limit tokensPerCaller: beyond it the oldest token of a caller is forgotten', () => {
  const { callers, limits } = callersOf();
  callers.begin();
  const issuedAt = (iat: number): Principal => {
    const ann = principal('ann', 1_000);
    return { ...ann, claims: { ...ann.claims, iat } };
  };
  callers.remember(issuedAt(-99), 't0');
  const [first] = callers.find('ann')?.proofs ?? [];
  for (let at = 1; at <= LIMITS.tokensPerCaller; at++) callers.remember(issuedAt(at - 99), `t${at}`);
  assert.equal(first?.token, '', 'nobody keeps it');
  const { proofs = [] } = callers.find('ann') ?? {};
  assert.deepEqual([proofs.length, proofs.at(-1)?.token], [LIMITS.tokensPerCaller, 't1']);
  assert.deepEqual(limits, ['tokensPerCaller']);
});

test('beyond the limit, tokens of unknown age do not take turns', () => {
  const { callers } = callersOf();
  callers.begin();
  const tokens = Array.from({ length: LIMITS.tokensPerCaller + 2 }, (_, at) => `t${at}`);
  const verifyAll = (): void => tokens.forEach((token) => callers.remember(principal('ann', 1_000), token));
  verifyAll();
  const before = [...(callers.find('ann')?.proofs ?? [])];
  verifyAll();
  assert.deepEqual(callers.find('ann')?.proofs, before);
});

test('a forwarded principal of an issuer is not known without its token', () => {
  const { callers } = callersOf();
  callers.begin();
  callers.remember({ ...principal('ann', 1_000), issuer: 'https://issuer.test' }, undefined);
  assert.equal(callers.find('ann'), undefined);
});
