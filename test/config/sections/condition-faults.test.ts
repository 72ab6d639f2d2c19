/** Tests that a condition which compares a variable with a text that it never has is told when the config is loaded. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { loadText } from '../../support/config-file.ts';

const KEY = `apiKeys: [{ name: ci, sha256: ${'a1'.repeat(32)} }]`;
const JWT = 'jwt: [{ issuer: "https://a.test", jwksUrl: "https://a.test/jwks" }]';

/** Returns a config whose condition is in line 12. */
function fileWith(when: string, auth = `${KEY}, ${JWT}`): string {
  return `mcpServers:
  github: { command: x }
  My Files: { command: x, disabled: true }
gateway:
  auth: { ${auth} }
  profiles: { build: { upstreams: [github] } }
  access:
    claims: { teams: list }
    roles:
      r:
        deny:
          - when: ${when}
    grants: [{ roles: [r], anyone: true }]
`;
}

/** Returns the warnings about the condition, without the folder. */
async function warningsOf(...file: Parameters<typeof loadText>): Promise<readonly string[]> {
  const { warnings } = await loadText(...file);
  return warnings.filter((line) => line.includes('.when: ')).map((line) => line.replace(/^.*\/(?=config\.yaml:)/, ''));
}

const NEVER = [
  ['upstream == "githup"', 'no such upstream (did you mean "github"?) (at character 13)'],
  ['args.n > 1 && "githup" == upstream', 'no such upstream (did you mean "github"?) (at character 15)'],
  ['upstream in ["github", "jira"]', 'no such upstream (at character 24)'],
  ['upstream == "My Files"', 'conditions name an upstream by its id; write "my-files" (at character 13)'],
  ['endpoint == "/mcp/build"', 'conditions name an endpoint by its id; write "build" (at character 13)'],
  ['endpoint == "/mcp"', 'conditions name an endpoint by its id; write "" (at character 13)'],
  ['endpoint == "/nosuch"', 'no such endpoint (at character 13)'],
  ['tool.kind == "tools"', 'no such kind of item (did you mean "tool"?) (at character 14)'],
  ['principal.keyName == "cj"', 'no such API key (did you mean "ci"?) (at character 22)'],
  ['principal.issuer == "https://b.test"', 'no such issuer in auth (did you mean "https://a.test"?) (at character 21)'],
] as const;

for (const [when, expected] of NEVER) {
  // N-89
  test(`the condition ${when} is a warning with its place`, async () => {
    assert.deepEqual(await warningsOf(fileWith(`'${when}'`)), [
      `config.yaml:12:19 gateway.access.roles.r.deny[0].when: ${expected}`,
    ]);
  });
}

test('conditions that some request can match have no warning', async () => {
  const possible = [
    'upstream in ["github", "my-files"] && endpoint in ["", "build", "my-files"]',
    'upstream.startsWith("git-") || upstream != "nosuch" || !(tool.name != "nosuch") || upstream == args.upstream || tool.name == "githup"',
    'claims.teams.exists(upstream, upstream == "githup")',
    'tool.kind != "template" && principal.keyName == "ci" && principal.issuer == "https://a.test"',
  ];
  for (const when of possible) assert.deepEqual(await warningsOf(fileWith(`'${when}'`)), [], when);
  const later = fileWith(`'principal.keyName == "later"'`, `${KEY}, keyFile: keys.json`);
  assert.deepEqual(await warningsOf(later), []);
});

test('a warning about a condition does not show the value of a variable', async () => {
  const [warning = '', ...others] = await warningsOf(fileWith(`'upstream == "\${UP}"'`), { env: { UP: 's3cr3t' } });
  assert.match(warning, /when: no such upstream \(at character 13\)$/);
  assert.deepEqual(others, []);
});

test('a group in a condition that nobody can be in is a warning with its place', async () => {
  const warnings = await warningsOf(fileWith(`'"ops" in principal.groups'`));
  assert.equal(warnings.length, 1);
  const expected =
    /^config\.yaml:12:19 gateway\.access\.roles\.r\.deny\[0\]\.when: nobody is in this group: .* \(at character 1\)$/;
  assert.match(warnings[0] ?? '', expected);
});
