import assert from 'node:assert/strict';
import { test } from 'node:test';
import { readPrincipal } from '../../../src/compose/admin/read-principal.ts';
import { LOCAL } from '../../../src/policy/principal.ts';
import { quote } from '../../support/test-name.ts';

const noKeys = (name: string) => `there is no API key "${name}"`;

const TOKENS: readonly (readonly [payload: object, expected: object])[] = [
  [
    { iss: 'i', sub: 'ada', scope: 'a b' },
    { label: 'ada', subject: 'ada', issuer: 'i', scopes: ['a', 'b'] },
  ],
  [{ sub: 'ada', scp: 'a b' }, { scopes: ['a', 'b'] }],
  [{ sub: 'ada', scp: ['a', 'b'] }, { scopes: ['a', 'b'] }],
  [{ sub: 'ada', scope: 'a', scp: ['b'] }, { scopes: ['a'] }],
  [{ sub: 'ada', client_id: 'c', azp: 'z' }, { clientId: 'c' }],
  [{ sub: 'ada', azp: 'c' }, { clientId: 'c' }],
  [{ sub: 'ada', appid: 'c' }, { clientId: 'c' }],
  [{ sub: 'ada', cid: 'c' }, { clientId: 'c' }],
  [{ client_id: 'machine' }, { label: 'machine', clientId: 'machine' }],
];

for (const [payload, expected] of TOKENS) {
  test(`the payload ${quote(payload)} describes its principal`, () => {
    const principal = readPrincipal(payload, noKeys);
    assert.partialDeepStrictEqual(principal, { ...expected, claims: payload });
  });
}

test('a payload that the edge refuses describes nobody', () => {
  for (const payload of [{ sub: '' }, { sub: 7 }, { sub: 'ada', azp: 7 }])
    assert.equal(readPrincipal(payload, noKeys), 'the token has no valid subject or client id');
});

test('a key without groups has those that it has now', () => {
  assert.partialDeepStrictEqual(
    readPrincipal({ key: 'ci' }, () => ['build']),
    { keyName: 'ci', groups: ['build'] },
  );
  assert.equal(readPrincipal({ key: 'ci' }, noKeys), 'there is no API key "ci"');
  const wrong = readPrincipal({ group: ['x'] }, noKeys);
  assert.match(typeof wrong === 'string' ? wrong : '', /group/);
});

test('an empty description is that of a client without credentials', () => {
  assert.equal(readPrincipal({}, noKeys), LOCAL);
  for (const named of [{ claims: {} }, { scopes: ['a'] }, { groups: ['a'] }, { issuer: 'i' }])
    assert.partialDeepStrictEqual(readPrincipal(named, noKeys), { key: 'described' });
});

test('an unknown key of a description is reported with the known ones', () => {
  assert.equal(readPrincipal({ group: ['a'] }, noKeys), 'unknown key "group" (did you mean "groups"?)');
  const refusal = readPrincipal({ nope: 1 }, noKeys);
  assert.ok(typeof refusal === 'string');
  assert.match(refusal, /^unknown key "nope"; known are key, groups, .*, and the payload of a token$/);
});
