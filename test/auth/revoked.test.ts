import assert from 'node:assert/strict';
import { test } from 'node:test';
import { revokedBy } from '../../src/auth/revoked.ts';
import type { AuthConfig } from '../../src/config/config.ts';

const OPEN: AuthConfig = { jwt: [], apiKeys: [] };
const key = (name: string, digit = '1') => ({ name, sha256: digit.repeat(64) });
const issuer = (name: string) => ({
  issuer: `https://${name}.example`,
  jwksUrl: `https://${name}.example/jwks`,
  audiences: [],
  algorithms: ['RS256'],
  requiredScopes: [],
});
const PRINCIPALS = ['local', 'key:a', 'key:b', 'jwt:x'];

const cases: readonly {
  readonly name: string;
  readonly before: AuthConfig;
  readonly after: AuthConfig;
  readonly revoked: readonly string[];
}[] = [
  { name: 'nothing', before: OPEN, after: OPEN, revoked: [] },
  { name: 'the first key is configured', before: OPEN, after: { ...OPEN, apiKeys: [key('a')] }, revoked: ['local'] },
  { name: 'the first issuer is configured', before: OPEN, after: { ...OPEN, jwt: [issuer('i')] }, revoked: ['local'] },
  {
    name: 'a key is removed',
    before: { jwt: [issuer('i')], apiKeys: [key('a'), key('b')] },
    after: { jwt: [issuer('i')], apiKeys: [key('b')] },
    revoked: ['key:a'],
  },
  {
    name: 'a key has another hash',
    before: { jwt: [], apiKeys: [key('a', '1')] },
    after: { jwt: [], apiKeys: [key('a', '2')] },
    revoked: ['key:a'],
  },
  {
    name: 'one issuer of two is removed',
    before: { jwt: [issuer('i'), issuer('j')], apiKeys: [key('a')] },
    after: { jwt: [issuer('i')], apiKeys: [key('a')] },
    revoked: ['jwt:x'],
  },
  { name: 'all is open again', before: { jwt: [], apiKeys: [key('a')] }, after: OPEN, revoked: ['key:a'] },
];

for (const { name, before, after, revoked } of cases) {
  test(`streams that end if ${name}: ${revoked.join() || 'none'}`, () => {
    assert.deepEqual(PRINCIPALS.filter(revokedBy(before, after)), revoked);
  });
}
