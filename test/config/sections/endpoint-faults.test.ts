/** Tests that grants, rules and rates whose upstreams, endpoints, lists and claims never meet are told when the config is loaded. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { loadText, problemsOf } from '../../support/config-file.ts';

const JWT = 'jwt: [{ issuer: "https://a.test", jwksUrl: "https://a.test/jwks" }]';
const KEY = `apiKeys: [{ name: ci, sha256: ${'a1'.repeat(32)} }]`;

interface Parts {
  readonly gateway?: string;
  readonly auth?: string;
  readonly claims?: string;
  readonly role?: string;
  readonly grant?: string;
}

/** Returns a config: `gateway` is in line 5, `auth` in line 6, `claims` in line 9, `role` in line 12, `grant` in line 15. */
function fileWith({ gateway = '', auth = JWT, claims = '', role = 'upstreams: [a]', grant = 'anyone: true' }: Parts) {
  return `mcpServers:
  a: { command: x }
  My B: { command: x, disabled: true }
gateway:
  ${gateway}
  auth: { ${auth} }
  profiles: { both: { upstreams: [a, My B] }, all: {}, b: { upstreams: [My B] } }
  access:
    ${claims}
    roles:
      all: { upstreams: ["*"] }
      r: { ${role} }
    grants:
      - { roles: [all], scopes: [all] }
      - { roles: [r], ${grant} }
`;
}

const rate = (own: string) => `rates: [{ name: x, to: { anyone: true }, limit: 1, window: 1m, ${own} }]`;
const CLAIMS = 'claims: { level: number, staff: boolean }';

/** Returns the warnings about anything but profiles, which go without the upstream that is disabled. */
async function warningsOf(text: string): Promise<readonly string[]> {
  return (await loadText(text)).warnings.filter((warning) => !warning.includes('gateway.profiles'));
}

const NEVER: readonly (readonly [what: string, parts: Parts, expected: RegExp])[] = [
  ['a rule about no upstream', { role: 'upstreams: []' }, /^12:\d+ gateway\.access\.roles\.r\.upstreams: is empty, so/],
  ['a rule about no tool', { role: 'tools: []' }, /^12:\d+ gateway\.access\.roles\.r\.tools: is empty, so/],
  ['a deny rule about no tool', { role: 'deny: [{ tools: [] }]' }, /^12:.* \S+\.r\.deny\[0\]\.tools: is empty, so/],
  ['a grant at no endpoint', { grant: 'anyone: true, endpoints: []' }, /^15:\d+ \S+\.grants\[1\]\.endpoints: is empty/],
  ['a rate for no tool', { gateway: rate('tools: []') }, /^5:\d+ gateway\.rates\[0\]\.tools: is empty, so/],
  ['a rate at no endpoint', { gateway: rate('endpoints: []') }, /^5:\d+ gateway\.rates\[0\]\.endpoints: is empty, so/],
  [
    'repeats of no tool',
    { gateway: 'repeats: { limit: 1, window: 1m, tools: [] }' },
    /^5:\d+ \S+\.repeats\.tools: is e/,
  ],
  [
    'a claim that is no number',
    { claims: CLAIMS, grant: 'claims: { level: ["3", "3.0"] }' },
    /^15:\d+ \S+\.grants\[1\]\.claims\.level\[1\]: this claim is a number; write one in its shortest form/,
  ],
  [
    'a claim that is no boolean',
    { claims: CLAIMS, grant: 'claims: { staff: ["yes"] }' },
    /^15:\d+ \S+\.grants\[1\]\.claims\.staff\[0\]: this claim is a boolean; write "true" or "false"/,
  ],
  [
    'groups in a claim of numbers',
    { claims: `${CLAIMS}\n    groupClaims: [level]` },
    /^10:\d+ gateway\.access\.groupClaims\[0\]: this claim is a number, and groups are texts; declare it/,
  ],
];

for (const [what, parts, expected] of NEVER) {
  // N-89
  test(`${what} is a problem with its place`, async () => {
    const problems = await problemsOf(fileWith(parts));
    assert.equal(problems.length, 1, problems.join('\n'));
    assert.match(problems[0]?.replace(/^config\.yaml:/, '') ?? '', expected);
  });
}

const ODD: readonly (readonly [what: string, parts: Parts, expected: RegExp])[] = [
  [
    'a grant at the endpoint of another upstream',
    { grant: 'anyone: true, endpoints: [/mcp/my-b]' },
    /:15:\d+ \S+\.grants\[1\]\.endpoints: no role of this grant has an upstream at these endpoints; name others/,
  ],
  [
    'a grant at a profile without the upstream',
    { grant: 'anyone: true, endpoints: [/mcp/b]' },
    /:15:\d+ \S+\.grants\[1\]\.endpoints: no role of this grant has an upstream at these endpoints/,
  ],
  [
    'a grant of a role that denies elsewhere',
    { role: 'deny: [{ upstreams: [a] }]', grant: 'anyone: true, endpoints: [/mcp/b]' },
    /:15:\d+ \S+\.grants\[1\]\.endpoints: no role of this grant has an upstream at these endpoints/,
  ],
  [
    'a rate at an endpoint without its upstream',
    { gateway: rate('endpoints: [/mcp/b], upstreams: [a]') },
    /:5:\d+ gateway\.rates\[0\]\.upstreams: none of these upstreams is at the endpoints of this rate/,
  ],
  [
    'a role that no grant gives',
    { role: 'upstreams: [a] }\n      unused: { upstreams: [a]' },
    /:13:7 gateway\.access\.roles\.unused: no grant gives this role, so it never matches$/,
  ],
  [
    'a deny rule about upstreams of other endpoints',
    { role: 'upstreams: [a], deny: [{ upstreams: [My B] }]', grant: 'anyone: true, endpoints: [/mcp/a]' },
    /:12:\d+ \S+\.r\.deny\[0\]\.upstreams: no grant gives this role at an endpoint with these upstreams$/,
  ],
  [
    'one of two endpoints without an upstream of the grant',
    { grant: 'anyone: true, endpoints: [/mcp/a, /mcp/b]' },
    /:15:\d+ \S+\.grants\[1\]\.endpoints\[1\]: no role of this grant has an upstream at this endpoint$/,
  ],
  [
    'one of two roles without an upstream at the endpoint',
    {
      role: 'upstreams: [a] }\n      s: { upstreams: [My B]',
      grant: 'anyone: true, endpoints: [/mcp/a] }\n      - { roles: [r, s], scopes: [s], endpoints: [/mcp/b]',
    },
    /:17:\d+ \S+\.grants\[2\]\.roles\[0\]: no upstream of this role is at the endpoints of the grant$/,
  ],
  [
    'a claim where no issuer is',
    { auth: KEY, claims: CLAIMS, grant: 'keys: [ci] }\n      - { roles: [all], anyone: true' },
    /:9:5 gateway\.access\.claims: no principal has a token.*, so no principal has claims$/,
  ],
];

for (const [what, parts, expected] of ODD) {
  // N-89
  test(`${what} is a warning with its place`, async () => {
    // Tokens have no scopes where only keys are.
    const text = fileWith(parts).replace('scopes: [all]', parts.auth === KEY ? 'keys: [ci]' : 'scopes: [all]');
    const warnings = await warningsOf(text);
    assert.equal(warnings.length, 1, warnings.join('\n'));
    assert.match(warnings[0] ?? '', expected);
  });
}

test('grants, rules and rates that meet an upstream have no problem and no warning', async () => {
  const possible: readonly Parts[] = [
    { role: 'upstreams: [a], tools: [], prompts: ["*"]' },
    { role: 'upstreams: [my-b]', grant: 'anyone: true, endpoints: [/mcp, /mcp/both, /mcp/all, /mcp/b, /mcp/my-b]' },
    { role: 'tools: [get_*]', grant: 'anyone: true, endpoints: [/mcp/b]' },
    { role: 'weight: 2', grant: 'anyone: true, endpoints: [/mcp/b]' },
    { claims: CLAIMS, grant: 'claims: { level: ["3", "-1.5"], staff: ["true"] }' },
    { gateway: rate('endpoints: [/mcp/b], upstreams: [My B]') },
  ];
  for (const parts of possible) {
    const text = fileWith({ auth: `${KEY}, ${JWT}`, ...parts });
    assert.deepEqual(await warningsOf(text), [], JSON.stringify(parts));
  }
});
