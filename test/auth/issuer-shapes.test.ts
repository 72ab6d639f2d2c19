/** Tests claims as the issuers that people use today write them, after the formats that they publish. Ids are made up. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { createAuthenticator } from '../../src/auth/authenticate.ts';
import type { JwtIssuerConfig } from '../../src/config/config.ts';
import { type Claims, ENDPOINT, SILENT, signingKey, TestIssuer } from './issuer.ts';

const OPTIONS = { timeout: 120_000 };
const TENANT = '72f988bf-86f1-41af-91ab-2d7cd011db47';
const APP = '6e74172b-be56-4843-9ff4-e66a39bb12e3';
const KEY = await signingKey('RS256', 'k1');

interface Shape {
  readonly name: string;
  readonly config: Partial<JwtIssuerConfig> & Pick<JwtIssuerConfig, 'issuer'>;
  readonly header?: Readonly<Record<string, unknown>>;
  readonly claims: Claims;
  readonly expected: { readonly subject: string; readonly clientId?: string; readonly scopes: readonly string[] };
  /** Changes that make the token another one, which must be refused with the status. */
  readonly refused: readonly (readonly [
    what: string,
    status: number,
    claims: Claims,
    header?: Readonly<Record<string, unknown>>,
  ])[];
}

const SHAPES: readonly Shape[] = [
  {
    name: 'Entra v2',
    config: {
      issuer: `https://login.microsoftonline.com/${TENANT}/v2.0`,
      audiences: [APP],
      requiredScopes: ['mcp.access'],
    },
    header: { typ: 'JWT' },
    claims: {
      aud: APP,
      azp: '11112222-aaaa-bbbb-cccc-3333dddd4444',
      azpacr: '0',
      groups: ['a7f5e5c0-0000-0000-0000-000000000001'],
      oid: '00000000-0000-0000-66f3-3332eca7ea81',
      scp: 'mcp.access User.Read',
      sub: 'AAAAAAAAAAAAAAAAAAAAAIkzqFVrSaSaFHy782bbtaQ',
      tid: TENANT,
      ver: '2.0',
    },
    expected: {
      subject: 'AAAAAAAAAAAAAAAAAAAAAIkzqFVrSaSaFHy782bbtaQ',
      clientId: '11112222-aaaa-bbbb-cccc-3333dddd4444',
      scopes: ['mcp.access', 'User.Read'],
    },
    refused: [
      ['the issuer of v1', 401, { iss: `https://sts.windows.net/${TENANT}/` }],
      ['another tenant', 401, { iss: 'https://login.microsoftonline.com/0000/v2.0' }],
      ['the audience of v1', 401, { aud: `api://${APP}` }],
      ['no scope', 403, { scp: 'User.Read' }],
    ],
  },
  {
    name: 'Entra v1',
    config: { issuer: `https://sts.windows.net/${TENANT}/`, audiences: [`api://${APP}`] },
    header: { typ: 'JWT', x5t: 'k1' },
    claims: {
      aud: `api://${APP}`,
      appid: '11112222-aaaa-bbbb-cccc-3333dddd4444',
      scp: 'mcp.access',
      sub: 'l3_roISQU222bULS9yi2k0XpqpOiMz5H3ZACo1GeXA',
      tid: TENANT,
      ver: '1.0',
      _claim_names: { groups: 'src1' },
      _claim_sources: { src1: { endpoint: `https://graph.windows.net/${TENANT}/users/x/getMemberObjects` } },
    },
    expected: {
      subject: 'l3_roISQU222bULS9yi2k0XpqpOiMz5H3ZACo1GeXA',
      clientId: '11112222-aaaa-bbbb-cccc-3333dddd4444',
      scopes: ['mcp.access'],
    },
    refused: [
      ['the issuer without its slash', 401, { iss: `https://sts.windows.net/${TENANT}` }],
      ['the audience without api:', 401, { aud: APP }],
    ],
  },
  {
    name: 'Okta',
    config: { issuer: 'https://dev-123.okta.com/oauth2/default', audiences: ['api://default'] },
    claims: {
      aud: 'api://default',
      ver: 1,
      cid: '0oa1example',
      uid: '00u1example',
      scp: ['openid', 'mcp'],
      sub: 'ann@example.com',
      Groups: ['Everyone', 'Sales'],
    },
    expected: { subject: 'ann@example.com', clientId: '0oa1example', scopes: ['openid', 'mcp'] },
    refused: [
      ['the issuer of the org server', 401, { iss: 'https://dev-123.okta.com' }],
      ['an ID token', 401, { aud: '0oa1example' }],
    ],
  },
  {
    name: 'Keycloak',
    config: { issuer: 'https://sso.example.com/realms/acme', requiredScopes: ['mcp'] },
    header: { typ: 'JWT' },
    claims: {
      aud: [ENDPOINT, 'account'],
      typ: 'Bearer',
      azp: 'desk',
      realm_access: { roles: ['sales'] },
      groups: ['/sales'],
      scope: 'profile email mcp',
      sub: 'f:1:ann',
    },
    expected: { subject: 'f:1:ann', clientId: 'desk', scopes: ['profile', 'email', 'mcp'] },
    refused: [
      ['another realm', 401, { iss: 'https://sso.example.com/realms/other' }],
      ['no audience mapper', 401, { aud: 'account' }],
      ['a token without the scope', 403, { scope: 'profile email' }],
    ],
  },
  {
    name: 'Auth0',
    config: { issuer: 'https://acme.eu.auth0.com/', audiences: [ENDPOINT], types: ['at+jwt', 'JWT'] },
    header: { typ: 'at+jwt' },
    claims: {
      aud: [ENDPOINT, 'https://acme.eu.auth0.com/userinfo'],
      azp: 'desk',
      scope: 'openid mcp',
      permissions: ['read:notes'],
      sub: 'auth0|5f7c8ec7c33c6c004bbafe82',
      'https://acme.example/groups': ['sales'],
    },
    expected: { subject: 'auth0|5f7c8ec7c33c6c004bbafe82', clientId: 'desk', scopes: ['openid', 'mcp'] },
    refused: [
      ['the issuer without its slash', 401, { iss: 'https://acme.eu.auth0.com' }],
      ['a token without typ', 401, {}, { typ: undefined }],
      ['an ID token', 401, { aud: 'desk' }],
    ],
  },
  {
    name: 'Google (ID token)',
    config: { issuer: 'https://accounts.google.com', audiences: ['123.apps.googleusercontent.com'] },
    header: { typ: 'JWT' },
    claims: {
      aud: '123.apps.googleusercontent.com',
      azp: '123.apps.googleusercontent.com',
      email: 'ann@example.com',
      email_verified: true,
      hd: 'example.com',
      sub: '10769150350006150715113082367',
    },
    expected: { subject: '10769150350006150715113082367', clientId: '123.apps.googleusercontent.com', scopes: [] },
    refused: [
      ['the older issuer without https', 401, { iss: 'accounts.google.com' }],
      ['a token for another app', 401, { aud: '999.apps.googleusercontent.com' }],
    ],
  },
];

for (const { name, config, header = {}, claims, expected, refused } of SHAPES) {
  test(`a token of ${name} is accepted, and near misses are not`, OPTIONS, async () => {
    await using issuer = await TestIssuer.start(KEY);
    const shared = { jwksUrl: issuer.jwksUrl, audiences: [], algorithms: ['RS256'], requiredScopes: [] };
    // All issuers are configured, so that the rules of one cannot admit a token of another.
    const jwt = SHAPES.map((shape) => ({ ...shared, ...shape.config }));
    const authenticator = createAuthenticator({ jwt, apiKeys: [] }, { log: SILENT });
    const ask = async (changes: Claims, headers: Readonly<Record<string, unknown>> = {}) => {
      const token = await issuer.token({ iss: config.issuer, ...claims, ...changes }, { ...header, ...headers });
      return await authenticator.authenticate({ authorization: [`Bearer ${token}`] }, ENDPOINT);
    };
    const verdict = await ask({});
    assert.ok(verdict.kind === 'principal', JSON.stringify(verdict));
    const { subject, clientId, scopes, claims: kept } = verdict.principal;
    assert.deepEqual({ subject, ...(clientId === undefined ? {} : { clientId }), scopes }, expected);
    for (const claim of Object.keys(claims)) assert.deepEqual(kept?.[claim], claims[claim], claim);
    for (const [what, status, changes, headers] of refused) {
      const other = await ask(changes, headers);
      assert.ok(other.kind === 'refused', `let in: ${what}`);
      assert.equal(other.status, status, `${what}: ${other.why}`);
    }
  });
}
