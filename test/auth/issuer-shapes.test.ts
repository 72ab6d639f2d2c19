/**
 * Tests claims as the issuers that people use today write them, after the formats that they publish. Ids are made up. The configs
 * are those of `docs/sign-in`.
 */
import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { test } from 'node:test';
import { createAuthenticator } from '../../src/auth/authenticate.ts';
import type { JwtIssuerConfig } from '../../src/config/values/config.ts';
import { loadText, problemsOf } from '../support/config-file.ts';
import { NO_HINTS, plainItem } from '../../src/policy/decide.ts';
import { Policy } from '../../src/policy/policy.ts';
import type { Principal } from '../../src/policy/principal.ts';
import { type Claims, SILENT, signingKey, TestIssuer } from './issuer.ts';

const OPTIONS = { timeout: 120_000 };
const ENDPOINT = 'https://mcp.example.com/mcp';
const TENANT = '72f988bf-86f1-41af-91ab-2d7cd011db47';
const APP = '6e74172b-be56-4843-9ff4-e66a39bb12e3';
/** What the pages leave to the reader. */
const BLANKS: ReadonlyMap<string, string> = new Map([
  ['<tenant>.auth0.com', 'acme.auth0.com'],
  ['<tenant>', TENANT],
  ['<application id>', APP],
  ['<client id>', '123'],
  ['<domain>', 'dev-123.okta.com'],
  ['<host>', 'sso.example.com'],
  ['<realm>', 'acme'],
]);
const KEY = await signingKey('RS256', 'k1');

interface Shape {
  readonly name: string;
  /** The page of `docs/sign-in`, and which of its configs. */
  readonly page: readonly [name: string, at: number];
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
    page: ['entra', 0],
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
    page: ['entra', 1],
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
    page: ['okta', 0],
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
    page: ['keycloak', 0],
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
    page: ['auth0', 0],
    header: { typ: 'at+jwt' },
    claims: {
      aud: [ENDPOINT, 'https://acme.auth0.com/userinfo'],
      azp: 'desk',
      scope: 'openid mcp',
      permissions: ['read:notes'],
      sub: 'auth0|5f7c8ec7c33c6c004bbafe82',
      'https://acme.example/groups': ['sales'],
    },
    expected: { subject: 'auth0|5f7c8ec7c33c6c004bbafe82', clientId: 'desk', scopes: ['openid', 'mcp'] },
    refused: [
      ['the issuer without its slash', 401, { iss: 'https://acme.auth0.com' }],
      ['a token without typ', 401, {}, { typ: undefined }],
      ['an ID token', 401, { aud: 'desk' }],
    ],
  },
  {
    name: 'Google (ID token)',
    page: ['google', 0],
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

/** Returns the configs of a page, filled in. */
function configsOf(page: string): readonly string[] {
  let text = readFileSync(join(import.meta.dirname, `../../docs/sign-in/${page}.md`), 'utf8');
  for (const [blank, value] of BLANKS) text = text.replaceAll(blank, value);
  return [...text.matchAll(/```yaml\n([^]*?)```/g)].map(
    ([, config = '']) => `${config}\nmcpServers:\n  notes: { command: x }\n`,
  );
}

async function ruleOf({ page: [name, at] }: Shape): Promise<JwtIssuerConfig> {
  const { config } = await loadText(configsOf(name)[at] ?? '');
  const [rule, ...others] = config.auth.jwt;
  assert.ok(rule !== undefined && others.length === 0, name);
  return rule;
}

/** Asserts that the policy for Entra gives a user whose token has no groups what everybody gets. */
async function assertNoGroups(principal: Principal): Promise<void> {
  const { config } = await loadText(configsOf('entra')[0] ?? '');
  assert.ok(config.access !== undefined);
  const policy = new Policy(config.access);
  const decide = (who: Principal, readOnly: boolean) =>
    policy.rightsOf(who, '').decide({ ...plainItem('tool', 'notes', 'x'), hints: { ...NO_HINTS, readOnly } }).effect;
  assert.deepEqual([decide(principal, false), decide(principal, true)], ['deny', 'allow']);
  assert.equal(decide({ ...principal, claims: { roles: ['Mcp.Write'] } }, false), 'allow');
}

for (const shape of SHAPES) {
  const { name, page, header = {}, claims, expected, refused } = shape;
  test(`a token of ${name} is accepted with the config of its page, and near misses are not`, OPTIONS, async () => {
    await using issuer = await TestIssuer.start(KEY);
    const { issuer: iss } = await ruleOf(shape);
    // All issuers are configured, so that the rules of one cannot admit a token of another.
    const rules = await Promise.all(SHAPES.map(ruleOf));
    const jwt = rules.map((rule) => ({ ...rule, jwksUrl: issuer.jwksUrl }));
    const authenticator = createAuthenticator({ jwt, apiKeys: [] }, { log: SILENT });
    const ask = async (changes: Claims, headers: Readonly<Record<string, unknown>> = {}) => {
      const token = await issuer.token({ iss, ...claims, ...changes }, { ...header, ...headers });
      return await authenticator.authenticate({ authorization: [`Bearer ${token}`] }, ENDPOINT);
    };
    const verdict = await ask({});
    assert.ok(verdict.kind === 'principal', JSON.stringify(verdict));
    const { subject, clientId, scopes, claims: kept } = verdict.principal;
    assert.deepEqual({ subject, ...(clientId === undefined ? {} : { clientId }), scopes }, expected);
    for (const claim of Object.keys(claims)) assert.deepEqual(kept?.[claim], claims[claim], claim);
    if ('_claim_names' in claims) await assertNoGroups(verdict.principal);
    for (const [what, status, changes, headers] of refused) {
      const other = await ask(changes, headers);
      assert.ok(other.kind === 'refused', `let in: ${what}`);
      assert.equal(other.status, status, `${what}: ${other.why}`);
    }
  });

  const text = configsOf(page[0])[page[1]] ?? '';
  const expectations = [...text.matchAll(/expect: (\w+)/g)];
  if (expectations.length === 0) continue;
  test(`each test in the config for ${name} can fail`, async () => {
    for (const { index, 0: whole, 1: outcome } of expectations) {
      const wrong = outcome === 'allow' ? 'expect: hidden' : 'expect: allow';
      const problems = await problemsOf(text.slice(0, index) + wrong + text.slice(index + whole.length));
      assert.equal(problems.length, 1, problems.join('\n'));
      assert.match(problems[0] ?? '', /this test expects/);
    }
  });
}
