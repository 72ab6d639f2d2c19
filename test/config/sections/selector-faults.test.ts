/** Tests that grants and rates which can match no principal are told when the config is loaded. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { loadText, problemsOf } from '../../support/config-file.ts';

const KEY = `apiKeys: [{ name: ci, sha256: ${'a1'.repeat(32)}, groups: [dev] }]`;
const JWT = 'jwt: [{ issuer: "https://a.test", jwksUrl: "https://a.test/jwks" }]';
const INTROSPECTION =
  'introspection: [{ issuer: "https://b.test", endpoint: "https://b.test/ask", clientId: a, clientSecret: s3cr3t-of-b }]';
const CLAIMS = 'claims: { dept: string, roles: list, level: number, staff: boolean }';

/** Returns a config whose one grant, or one rate, is for these principals. They are in line 8 or 9. */
function fileWith(place: 'grant' | 'rate', to: string, auth: string, groupClaims = '[]'): string {
  const grant = place === 'grant' ? `{ roles: [r], ${to} }` : '{ roles: [r], anyone: true }';
  const rate = place === 'rate' ? `\n    - { name: a, limit: 1, window: 1m, to: { ${to} } }` : ' []';
  return `mcpServers:
  a: { command: x }
gateway:
  auth: { ${auth} }
  access:
    ${CLAIMS}
    groupClaims: ${groupClaims}
    roles: { r: { upstreams: [a] } }
    grants: [${grant}]
  rates:${rate}
`;
}

const PLACES = [
  { place: 'grant', line: 9, key: /gateway\.access\.grants\[0\]/ },
  { place: 'rate', line: 11, key: /gateway\.rates\[0\]\.to/ },
] as const;

/** What only the rest of the config makes impossible. */
const WITHOUT_ISSUER = [
  { what: 'scopes without an issuer', to: 'scopes: [x]', auth: KEY, expected: /\.scopes: no principal has a token/ },
  { what: 'subjects without an issuer', to: 'subjects: [x]', auth: KEY, expected: /\.subjects: no principal has a t/ },
  { what: 'clients without an issuer', to: 'clients: [x]', auth: KEY, expected: /\.clients: no principal has a token/ },
  { what: 'claims without an issuer', to: 'claims: { dept: [x] }', auth: KEY, expected: /\.claims\.dept: no princip/ },
  { what: 'scopes without authentication', to: 'scopes: [x]', auth: '', expected: /\.scopes: no principal has a tok/ },
] as const;

const UNKNOWN = [
  {
    what: 'an issuer that is not configured',
    to: 'issuers: [x]',
    auth: KEY,
    expected: /\.issuers\[0\]: no such issuer/,
  },
  { what: 'an unknown key', to: 'keys: [cj]', auth: KEY, expected: /\.keys\[0\]: no such API key \(did you mean "ci"/ },
  { what: 'a key where only tokens are', to: 'keys: [ci]', auth: JWT, expected: /\.keys\[0\]: no such API key/ },
] as const;

const WRONG = [
  {
    what: 'a key and a scope',
    to: 'keys: [ci], scopes: [x]',
    auth: `${KEY}, ${JWT}`,
    expected: /\.keys: nobody has an API key and a token; write an entry for each$/,
  },
  { what: 'a key and a scope without an issuer', to: 'keys: [ci], scopes: [x]', auth: KEY, expected: /\.keys: nobody/ },
  { what: 'an empty list', to: 'keys: []', auth: KEY, expected: /\.keys: is empty, so it matches nothing; name one/ },
] as const;

const POSSIBLE = [
  { to: 'scopes: [x], subjects: [y], clients: [z], claims: { dept: [d] }', auth: JWT },
  { to: 'scopes: [x], issuers: ["https://b.test"]', auth: INTROSPECTION },
  { to: 'keys: [ci], groups: [dev]', auth: KEY },
  { to: 'keys: [first]', auth: '' },
  { to: 'keys: [later], groups: [ops]', auth: `${KEY}, keyFile: keys.json` },
  { to: 'scopes: [x], groups: [ops]', auth: JWT, groupClaims: '[roles]' },
] as const;

for (const { place, line, key } of PLACES) {
  const isGrant = place === 'grant';
  for (const { what, to, auth, expected } of isGrant ? [...WRONG, ...UNKNOWN] : WRONG) {
    // N-89
    test(`a ${place} for ${what} is a problem with its place`, async () => {
      const problems = await problemsOf(fileWith(place, to, auth));
      assert.equal(problems.length, 1, problems.join('\n'));
      assert.match(problems[0] ?? '', new RegExp(`^config\\.yaml:${line}:\\d+ ${key.source}${expected.source}`));
    });
  }

  for (const { what, to, auth, expected } of isGrant ? WITHOUT_ISSUER : [...WITHOUT_ISSUER, ...UNKNOWN]) {
    // N-89
    test(`a ${place} for ${what} is a warning with its place`, async () => {
      const loaded = await loadText(fileWith(place, to, auth));
      const warnings = loaded.warnings.filter((warning) => key.test(warning));
      assert.equal(warnings.length, 1, warnings.join('\n'));
      assert.match(warnings[0] ?? '', new RegExp(`config\\.yaml:${line}:\\d+ ${key.source}${expected.source}`));
    });
  }

  test(`a ${place} that some principal can match has no problem and no warning`, async () => {
    for (const { to, auth, ...more } of POSSIBLE) {
      const { warnings } = await loadText(fileWith(place, to, auth, 'groupClaims' in more ? more.groupClaims : '[]'));
      const ofPrincipals = warnings.filter((warning) => /grants|rates/.test(warning));
      assert.deepEqual(ofPrincipals, [], to);
    }
  });

  // N-89
  test(`a ${place} to a group that nobody can be in is a warning with its place`, async () => {
    const cases = [
      { to: 'groups: [dev, ops]', auth: `${KEY}, ${JWT}`, why: 'no API key names it, and for tokens .*groupClaims' },
      { to: 'groups: [ops]', auth: KEY, claims: '[roles]', why: 'no API key names it, and gateway.auth has no issuer' },
      { to: 'groups: [ops]', auth: JWT, why: 'no API key names it, and for tokens .*groupClaims names no claim' },
      { to: 'keys: [ci], groups: [ops]', auth: `${KEY}, ${JWT}`, claims: '[roles]', why: 'none of these API keys' },
      { to: 'scopes: [x], groups: [dev]', auth: `${KEY}, ${JWT}`, why: 'for tokens .*groupClaims names no claim' },
    ];
    for (const { to, auth, claims, why } of cases) {
      const loaded = await loadText(fileWith(place, to, auth, claims));
      const warnings = loaded.warnings.filter((warning) => key.test(warning));
      assert.equal(warnings.length, 1, to);
      const where = `config\\.yaml:${line}:\\d+ ${key.source}\\.groups\\[\\d\\]`;
      assert.match(warnings[0] ?? '', new RegExp(`${where}: nobody is in this group: ${why}`));
    }
  });
}

// N-89
test('a grant or rate for a key or group that the key file lacks is a warning', async () => {
  const storedKeys = [{ name: 'ann', groups: ['ops'] }, { name: 'bob' }];
  const auth = `${KEY}, keyFile: keys.json`;
  for (const { place } of PLACES) {
    const warningsOf = async (to: string) => (await loadText(fileWith(place, to, auth), { storedKeys })).warnings;
    const about = async (to: string) => (await warningsOf(to)).filter((line) => /grants|rates/.test(line)).join('\n');
    assert.match(
      await about('keys: [ci, ann, anne]'),
      /\.keys\[2\]: no such API key in auth or in its key file \(did you mean "ann"\?\)$/,
    );
    assert.match(
      await about('groups: [dev, ops, sales]'),
      /\.groups\[2\]: nobody is in this group: no API key names it/,
    );
    assert.match(await about('keys: [bob], groups: [ops]'), /\.groups\[0\]: nobody is in this group: none of these/);
    assert.equal(await about('keys: [ann], groups: [ops]'), '');
  }
});
