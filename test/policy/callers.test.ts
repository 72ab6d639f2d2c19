import assert from 'node:assert/strict';
import { test } from 'node:test';
import { LIMITS, type LimitName } from '../../src/limits.ts';
import { Callers } from '../../src/policy/callers.ts';
import type { Principal } from '../../src/policy/principal.ts';

const principal = (key: string, expiresAtMs?: number): Principal => ({
  key,
  label: key,
  scopes: [],
  ...(expiresAtMs === undefined ? {} : { expiresAtMs }),
});

function callersOf() {
  const limits: LimitName[] = [];
  const callers = new Callers((limit) => limits.push(limit));
  return { callers, limits };
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
