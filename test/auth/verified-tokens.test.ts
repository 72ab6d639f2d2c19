import assert from 'node:assert/strict';
import { test } from 'node:test';
import { VerifiedTokens } from '../../src/auth/verified-tokens.ts';
import { LIMITS } from '../../src/limits.ts';
import { LOCAL } from '../../src/policy/principal.ts';
import { collect } from '../support/used-bytes.ts';

const T0 = 1_700_000_000_000;

const CASES = [
  { expiresMs: T0 + 3_600_000, atMs: T0, found: true },
  { expiresMs: T0 + 3_600_000, atMs: T0 + 59_999, found: true },
  { expiresMs: T0 + 3_600_000, atMs: T0 + 60_000, found: false },
  { expiresMs: T0 + 5_000, atMs: T0 + 4_999, found: true },
  { expiresMs: T0 + 5_000, atMs: T0 + 5_000, found: false },
  { expiresMs: T0, atMs: T0, found: false },
  { expiresMs: T0 - 1, atMs: T0, found: false },
  { expiresMs: Infinity, atMs: T0 + 60_000, found: false },
  { expiresMs: T0 + 3_600_000, atMs: T0 - 1, found: false },
];

for (const { expiresMs, atMs, found } of CASES) {
  const verb = found ? 'is' : 'is not';
  // SEC-05
  test(`a token valid ${expiresMs - T0} ms ${verb} cached after ${atMs - T0} ms`, () => {
    const verified = new VerifiedTokens();
    verified.add('key', LOCAL, T0, expiresMs);
    assert.equal(verified.find('key', atMs), found ? LOCAL : undefined);
  });
}

// SEC-05
test('limit verifiedTokens: the oldest one is removed, and verified again', () => {
  const reached: string[] = [];
  const verified = new VerifiedTokens((limit) => reached.push(limit));
  for (let i = 0; i <= LIMITS.verifiedTokens; i++) verified.add(`key ${i}`, LOCAL, T0, Infinity);
  assert.equal(verified.find('key 0', T0), undefined);
  assert.equal(verified.find('key 1', T0), LOCAL);
  assert.equal(verified.find(`key ${LIMITS.verifiedTokens}`, T0), LOCAL);
  assert.deepEqual(reached, ['verifiedTokens']);
});

test('limit verifiedTokens: a next config takes over no more tokens', () => {
  const [before, after] = [new VerifiedTokens(), new VerifiedTokens()];
  for (let i = 0; i < LIMITS.verifiedTokens; i++) before.add(`before ${i}`, LOCAL, T0, Infinity);
  after.add('after', LOCAL, T0, Infinity);
  after.addFrom(before, () => true);
  const last = LIMITS.verifiedTokens - 1;
  const found = [`before ${last - 1}`, `before ${last}`, 'after'].map((key) => after.find(key, T0));
  assert.deepEqual(found, [LOCAL, undefined, LOCAL]);
});

test('tokens that are cached no more make room, and do not count as removed', () => {
  const reached: string[] = [];
  const verified = new VerifiedTokens((limit) => reached.push(limit));
  for (let i = 0; i < LIMITS.verifiedTokens; i++) verified.add(`before ${i}`, LOCAL, T0, Infinity);
  verified.add('key', LOCAL, T0 + 60_000, Infinity);
  assert.equal(verified.find('key', T0 + 60_000), LOCAL);
  assert.deepEqual(reached, []);
});

test('the claims of a token are not kept for longer than it is cached', async () => {
  const verified = new VerifiedTokens();
  const add = (nowMs: number) => {
    const principal = { ...LOCAL };
    verified.add(`key of ${nowMs}`, principal, nowMs, Infinity);
    return new WeakRef(principal);
  };
  const [first, later] = [add(T0), add(T0 + 60_000)];
  // A weak reference keeps its value until the end of the turn in which it was made.
  await new Promise((resolve) => setImmediate(resolve));
  collect();
  assert.equal(first.deref(), undefined);
  assert.equal(verified.find(`key of ${T0 + 60_000}`, T0 + 60_000), later.deref());
});
