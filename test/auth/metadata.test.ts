import assert from 'node:assert/strict';
import { test } from 'node:test';
import { challengeText } from '../../src/auth/challenge.ts';
import { metadataPath, metadataUrl, protectedResourceMetadata } from '../../src/auth/metadata.ts';
import type { JwtIssuerConfig } from '../../src/config/values/config.ts';
import { shortened } from '../support/test-name.ts';

function issuer(name: string, requiredScopes: readonly string[]): JwtIssuerConfig {
  const url = `https://${name}.example.com`;
  return { issuer: url, jwksUrl: `${url}/jwks`, audiences: [], algorithms: [], requiredScopes };
}

const WELL_KNOWN = '/.well-known/oauth-protected-resource';

const PATHS = [
  { path: '/', expected: WELL_KNOWN },
  { path: '/mcp', expected: `${WELL_KNOWN}/mcp` },
  { path: '/mcp/x', expected: `${WELL_KNOWN}/mcp/x` },
];

for (const { path, expected } of PATHS) {
  //
  test(`the metadata of ${path} is at ${expected}`, () => {
    assert.equal(metadataPath(path), expected);
    assert.equal(metadataUrl(`https://gw.example.com:8443${path}`), `https://gw.example.com:8443${expected}`);
  });
}

//
test('every endpoint is its own protected resource', () => {
  const config = { jwt: [issuer('a', ['mcp'])], apiKeys: [] };
  for (const resource of ['https://gw.example.com/mcp', 'https://gw.example.com/mcp/files']) {
    assert.deepEqual(protectedResourceMetadata(resource, config), {
      resource,
      authorization_servers: ['https://a.example.com'],
      scopes_supported: ['mcp'],
      bearer_methods_supported: ['header'],
    });
  }
});

//
test('scopes are those of all issuers, each once, and never offline_access', () => {
  const config = { jwt: [issuer('a', ['mcp', 'offline_access']), issuer('b', ['mcp', 'tools'])], apiKeys: [] };
  assert.deepEqual(protectedResourceMetadata('https://gw/mcp', config)?.scopes_supported, ['mcp', 'tools']);
  const none = protectedResourceMetadata('https://gw/mcp', { jwt: [issuer('a', ['offline_access'])], apiKeys: [] });
  assert.ok(none !== undefined && !('scopes_supported' in none));
});

test('without token issuers there is no metadata', () => {
  const config = { jwt: [], apiKeys: [{ name: 'ci', sha256: '0'.repeat(64) }] };
  assert.equal(protectedResourceMetadata('https://gw/mcp', config), undefined);
});

const METADATA = 'https://gw/.well-known/oauth-protected-resource/mcp';

const CHALLENGES = [
  { parts: { metadata: undefined, scopes: [] }, expected: 'Bearer' },
  { parts: { metadata: METADATA, scopes: [] }, expected: `Bearer resource_metadata="${METADATA}"` },
  {
    parts: { metadata: METADATA, error: 'invalid_token', description: 'no', scopes: ['a', 'b'] },
    expected: `Bearer resource_metadata="${METADATA}", error="invalid_token", error_description="no", scope="a b"`,
  },
  { parts: { metadata: undefined, scopes: ['offline_access', 'a'] }, expected: 'Bearer scope="a"' },
  { parts: { metadata: undefined, scopes: ['offline_access'] }, expected: 'Bearer' },
  { parts: { metadata: undefined, scopes: ['a"b\\c'] }, expected: 'Bearer scope="a\\"b\\\\c"' },
  {
    parts: { metadata: undefined, scopes: ['a\r\nSet-Cookie: x', '\u00e9\u0000'] },
    expected: 'Bearer scope="a??Set-Cookie: x ??"',
  },
] as const;

for (const { parts, expected } of CHALLENGES) {
  //
  test(`a challenge reads ${shortened(expected, 60)}`, () => assert.equal(challengeText(parts), expected));
}
