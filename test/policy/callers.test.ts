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

test('the token that ends last is the one of a caller', () => {
  const { callers } = callersOf();
  callers.begin();
  callers.remember(principal('ann', 2_000), 'long');
  callers.remember(principal('ann', 1_000), 'short');
  assert.equal(callers.find('ann')?.token, 'long');
  callers.remember(principal('ann', 3_000), 'longer');
  assert.equal(callers.find('ann')?.token, 'longer');
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
      assert.equal(callers.find('ann')?.token, 'first');
      verify('first');
    }
    clock.ms += 900_000;
    verify('second');
    assert.equal(callers.find('ann')?.token, 'second', 'the first one is not used any more');
  });
}

// O-070
test('the end of an introspected token is its own, not the bound of streams', () => {
  const { callers, clock } = callersOf();
  callers.begin();
  callers.remember(principal('ann', undefined, 900_000), 'of unknown end');
  callers.remember(principal('bob', 2_000_000, 900_000), 'token');
  clock.ms = 1_999_999;
  assert.ok(callers.digestOf('ann') !== undefined && callers.digestOf('bob') !== undefined);
  clock.ms++;
  assert.equal(callers.digestOf('bob'), undefined);
  callers.remember(principal('bob', 4_000_000, 2_900_000), 'token');
  assert.notEqual(callers.digestOf('bob'), undefined, 'its issuer has extended it');
});

test('another token replaces one that was refused, also if it ends earlier', () => {
  const { callers } = callersOf();
  callers.begin();
  callers.remember(principal('ann', 2_000), 'long');
  callers.refuse('ann', 'other');
  callers.remember(principal('ann', 1_000), 'short');
  assert.equal(callers.find('ann')?.token, 'long');
  callers.refuse('ann', 'long');
  callers.remember(principal('ann', 2_000), 'long');
  assert.equal(callers.find('ann')?.token, 'long', 'kept while there is no other');
  callers.remember(principal('ann', 1_000), 'short');
  assert.equal(callers.find('ann')?.token, 'short');
  callers.remember(principal('ann', 2_000), 'long');
  assert.equal(callers.find('ann')?.token, 'short', 'the other one stays refused');
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
