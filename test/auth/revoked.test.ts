import assert from 'node:assert/strict';
import { test } from 'node:test';
import { revokedBy } from '../../src/auth/revoked.ts';
import type { AuthConfig } from '../../src/config/values/config.ts';
import { LOCAL, type Principal } from '../../src/policy/principal.ts';

const OPEN: AuthConfig = { jwt: [], apiKeys: [] };
const KEY = { name: 'a', sha256: '1'.repeat(64) };
const issuer = (name: string) => ({
  issuer: `https://${name}.example`,
  jwksUrl: `https://${name}.example/jwks`,
  audiences: [],
  algorithms: ['RS256'],
  requiredScopes: [],
});
const ASKED = {
  issuer: 'https://i.example',
  endpoint: 'https://i.example/introspect',
  clientId: 'gateway',
  clientSecret: 's3cret',
  audiences: [],
  requiredScopes: [],
  tokenPrefix: '',
};
const PRINCIPALS: readonly Principal[] = [
  LOCAL,
  { key: 'key:a', label: 'a', scopes: [], keyName: 'a' },
  { key: 'jwt:x', label: 'x', scopes: [], issuer: 'https://i.example' },
  { key: 'jwt:y', label: 'y', scopes: [], issuer: 'https://j.example' },
];

const cases: readonly {
  readonly name: string;
  readonly before: AuthConfig;
  readonly after: AuthConfig;
  readonly revoked: readonly string[];
}[] = [
  { name: 'nothing', before: OPEN, after: OPEN, revoked: [] },
  { name: 'the first key is configured', before: OPEN, after: { ...OPEN, apiKeys: [KEY] }, revoked: ['local'] },
  { name: 'the first issuer is configured', before: OPEN, after: { ...OPEN, jwt: [issuer('i')] }, revoked: ['local'] },
  { name: 'a key file is configured', before: OPEN, after: { ...OPEN, keyFile: '/keys.json' }, revoked: ['local'] },
  {
    name: 'one issuer of two is removed',
    before: { jwt: [issuer('i'), issuer('j')], apiKeys: [KEY] },
    after: { jwt: [issuer('i')], apiKeys: [KEY] },
    revoked: ['jwt:y'],
  },
  {
    name: 'an issuer has another rule',
    before: { jwt: [issuer('i'), issuer('j')], apiKeys: [KEY] },
    after: { jwt: [{ ...issuer('i'), requiredScopes: ['mcp'] }, issuer('j')], apiKeys: [KEY] },
    revoked: ['jwt:x'],
  },
  {
    name: 'an issuer that is asked about tokens has another rule',
    before: { ...OPEN, introspection: [ASKED] },
    after: { ...OPEN, introspection: [{ ...ASKED, requiredScopes: ['mcp'] }] },
    revoked: ['jwt:x'],
  },
  {
    name: 'an issuer has other scopes to request',
    before: { jwt: [issuer('i')], apiKeys: [KEY] },
    after: {
      jwt: [{ ...issuer('i'), advertisedScopes: ['a'], scopesOnDemand: [{ scope: 'w', advertised: 'api://w' }] }],
      apiKeys: [KEY],
    },
    revoked: [],
  },
];

for (const { name, before, after, revoked } of cases) {
  test(`streams that end if ${name}: ${revoked.join() || 'none'}`, () => {
    const isRevoked = revokedBy(before, after);
    assert.deepEqual(
      PRINCIPALS.filter((principal) => isRevoked(principal)).map(({ key }) => key),
      revoked,
    );
  });
}
