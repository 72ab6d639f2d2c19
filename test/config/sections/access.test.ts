import assert from 'node:assert/strict';
import { test } from 'node:test';
import { loadText, problemsOf } from '../../support/config-file.ts';

/** Returns a config with this `access` section; its first line is line 6. */
function withAccess(access: string): string {
  return `mcpServers:\n  github: { command: x }\n  jira: { command: x }\ngateway:\n  access:\n${access}`;
}

const AUTH = '  auth: { jwt: [{ issuer: "https://a.test", jwksUrl: "https://a.test/jwks" }] }\n';
const GRANTS = '    grants: [{ roles: [r], anyone: true }]\n';

const CASES = [
  {
    what: 'an unknown upstream',
    access: `    roles:\n      r: { upstreams: [githup] }\n${GRANTS}`,
    expected: /^config\.yaml:7:\d+ gateway\.access\.roles\.r\.upstreams\[0\]: no such upstream.*github/,
  },
  {
    what: 'an unknown role',
    access: '    roles:\n      reader: { upstreams: [github] }\n    grants: [{ roles: [raeder], anyone: true }]\n',
    expected: /:8:\d+ gateway\.access\.grants\[0\]\.roles\[0\]: no such role.*reader/,
  },
  {
    what: 'an unknown endpoint',
    access: `    roles: { r: { upstreams: [github] } }\n    grants: [{ roles: [r], anyone: true, endpoints: [/mcp/gihub] }]\n`,
    expected: /:7:\d+ gateway\.access\.grants\[0\]\.endpoints\[0\]: no such endpoint.*\/mcp\/github/,
  },
  {
    what: 'an unknown endpoint of a test',
    access: `    roles: { r: { upstreams: [github] } }\n    grants: [{ roles: [r], anyone: true, endpoints: [/mcp] }]\n    tests: [{ as: { key: a }, tool: x, upstream: github, endpoint: /mcp/gihub, expect: deny }]\n`,
    expected: /gateway\.access\.tests\[0\]\.endpoint: no such endpoint.*\/mcp\/github/,
  },
  {
    what: 'an unknown key',
    access: '    roles: { r: { upstreams: [github] } }\n    grants: [{ roles: [r], keys: [nobody] }]\n',
    expected: /:7:\d+ gateway\.access\.grants\[0\]\.keys\[0\]: no such API key/,
  },
  {
    what: 'an unknown issuer',
    access: '    roles: { r: { upstreams: [github] } }\n    grants: [{ roles: [r], issuers: ["https://a"] }]\n',
    expected: /grants\[0\]\.issuers\[0\]: no such issuer/,
  },
  {
    what: 'an undeclared claim in a condition',
    access: `    roles:\n      r:\n        when: claims.tenant == "a"\n${GRANTS}`,
    expected: /^config\.yaml:8:\d+ gateway\.access\.roles\.r\.when: this condition No such key: tenant/,
  },
  {
    what: 'a variable without quotes in a condition',
    access: `    roles:\n      r:\n        when: principal.subject == \${WHO:-ada}\n${GRANTS}`,
    expected:
      /^config\.yaml:8:\d+ gateway\.access\.roles\.r\.when: this condition is wrong with the values of its \$\{…\}; a text needs quotes around it$/m,
  },
  {
    what: 'an undeclared claim in a grant',
    access: `    roles: { r: { upstreams: [github] } }\n    grants: [{ roles: [r], claims: { dept: [a] } }]\n${AUTH}`,
    expected: /grants\[0\]\.claims\.dept: no such claim/,
  },
  {
    what: 'a decision point without https on another machine',
    access: `    roles: { r: { upstreams: [github] } }\n    external: { url: "http://point.test/" }\n${GRANTS}`,
    expected: /^config\.yaml:7:\d+ gateway\.access\.external\.url: expected an https:\/\/ URL/,
  },
  {
    what: 'a decision point with a password in its URL',
    access: `    roles: { r: { upstreams: [github] } }\n    external: { url: "https://a:b@point.test/" }\n${GRANTS}`,
    expected: /gateway\.access\.external\.url: .* without a user name; put credentials into "headers"/,
  },
  {
    what: 'an unknown upstream of the decision point',
    access: `    roles: { r: { upstreams: [github] } }\n    external: { url: "https://point.test/", upstreams: [jirra] }\n${GRANTS}`,
    expected: /:7:\d+ gateway\.access\.external\.upstreams\[0\]: no such upstream.*jira/,
  },
  {
    what: 'a decision point for no upstream',
    access: `    roles: { r: { upstreams: [github] } }\n    external: { url: "https://point.test/", upstreams: [] }\n${GRANTS}`,
    expected: /:7:\d+ gateway\.access\.external\.upstreams: /,
  },
  {
    what: 'a decision point that is waited for too long',
    access: `    roles: { r: { upstreams: [github] } }\n    external: { url: "https://point.test/", timeout: 1m }\n${GRANTS}`, // subject
    expected: /:7:\d+ gateway\.access\.external\.timeout: expected a duration from "10ms" to "5s"/,
  },
  {
    what: 'a type error in a deny rule',
    access: `    roles:\n      r:\n        deny:\n          - when: upstream > 3\n${GRANTS}`,
    expected: /^config\.yaml:9:\d+ gateway\.access\.roles\.r\.deny\[0\]\.when: this condition no such overload/,
  },
  {
    what: 'a role that does nothing',
    access: `    roles: { r: {} }\n${GRANTS}`,
    expected: /roles\.r: allows and denies nothing/,
  },
  {
    what: 'a deny rule without settings',
    access: `    roles: { r: { upstreams: [github], deny: [{}] } }\n${GRANTS}`,
    expected: /deny\[0\]: denies everything/,
  },
  {
    what: 'a role whose only setting is an empty map of hints',
    access: `    roles: { r: { hints: {} } }\n${GRANTS}`,
    expected: /roles\.r: allows and denies nothing/,
  },
  {
    what: 'a deny rule with an empty map of hints',
    access: `    roles: { r: { upstreams: [github], deny: [{ hints: {} }] } }\n${GRANTS}`,
    expected: /deny\[0\]: denies everything/,
  },
  {
    what: 'a grant without principals',
    access: '    roles: { r: { upstreams: [github] } }\n    grants: [{ roles: [r] }]\n',
    expected: /grants\[0\]: names no principals/,
  },
  {
    what: 'a grant for anyone and for some',
    access: '    roles: { r: { upstreams: [github] } }\n    grants: [{ roles: [r], anyone: true, scopes: [a] }]\n',
    expected: /grants\[0\]: is for anyone/,
  },
  {
    what: 'an unknown setting',
    access: `    roles: { r: { upstreams: [github], tolls: [a] } }\n${GRANTS}`,
    expected: /roles\.r\.tolls: unknown key.*tools/,
  },
  {
    what: 'a test that names no item',
    access: `    roles: { r: { upstreams: [github] } }\n${GRANTS}    tests: [{ as: {}, upstream: github, expect: allow }]\n`,
    expected: /tests\[0\]: names not exactly one/,
  },
];

for (const { what, access, expected } of CASES) {
  test(`${what} in the policy is a problem with its place`, async () => {
    const problems = await problemsOf(withAccess(access));
    assert.equal(problems.length, 1, problems.join('\n'));
    assert.match(problems[0] ?? '', expected);
  });
}

// P-012
test('a decision point has values, and upstreams by their ids', async () => {
  const upstreams = '    external: { url: "http://127.0.0.1:1/a", upstreams: [github] }\n';
  const { config, problems } = await loadText(withAccess(`    roles: {}\n    grants: []\n${upstreams}`));
  assert.deepEqual(problems, []);
  assert.deepEqual(config.access?.external, {
    url: 'http://127.0.0.1:1/a',
    headers: {},
    timeoutMs: 100,
    upstreams: ['github'],
    arguments: false,
  });
});

test('a rule about the text of a template is a warning with its place', async () => {
  const rule = 'upstreams: [github], deny: [{ resources: ["a:///{x}?{y}", "vip://{id}", "vip://*"] }]';
  const { warnings } = await loadText(withAccess(`    roles:\n      r: { ${rule} }\n${GRANTS}`));
  const about = warnings.filter((warning) => warning.includes('is a template, and rules about resources name URIs'));
  assert.equal(about.length, 2);
  assert.match(about[1] ?? '', /:7:\d+ gateway\.access\.roles\.r\.deny\[0\]\.resources\[1\]: .* write \* in place/);
});

test('a rule knows its file and line', async () => {
  const { config } = await loadText(
    withAccess(`    roles:\n      r: { upstreams: [github], readOnly: true }\n${GRANTS}`),
  );
  const [role] = config.access?.roles ?? [];
  assert.equal(role?.allow?.place.line, 7);
  assert.match(role?.allow?.place.file ?? '', /config\.yaml$/);
  assert.deepEqual(role?.allow?.hints, { readOnly: true });
});

test('a gateway that other machines can reach warns without an access policy', async () => {
  const auth = `  auth:\n    apiKeys: [{ name: a, sha256: ${'a1'.repeat(32)} }]\n`;
  const open = `mcpServers:\n  a: { command: x }\ngateway:\n  listen: 0.0.0.0:3000\n  publicUrl: https://a.test\n  operator: false\n${auth}`;
  assert.match((await loadText(open)).warnings.join('\n'), /gateway\.access: there is no access policy/);
  const access = '  access:\n    roles: { r: { upstreams: [a] } }\n    grants: [{ roles: [r], keys: [a] }]\n';
  assert.deepEqual((await loadText(open + access)).warnings, []);
  assert.deepEqual((await loadText('mcpServers:\n  a: { command: x }\n')).warnings, []);
});

/** Returns a config whose issuer has these scopes on demand, in line 7. */
function withScopes(scopes: string, access = ''): string {
  const issuer = 'issuer: "https://a.test", jwksUrl: "https://a.test/jwks", requiredScopes: [mcp]';
  return `mcpServers:\n  github: { command: x }\ngateway:\n  auth:\n    jwt:\n      - { ${issuer},\n          scopesOnDemand: ${scopes} }\n${access}`;
}

// P-009
test('a scope on demand is not one that every token has, and is named once', async () => {
  const problem = async (scopes: string) => (await problemsOf(withScopes(scopes))).join('\n');
  assert.match(
    await problem('[mcp]'),
    /^config\.yaml:7:\d+ gateway\.auth\.jwt\[0\]\.scopesOnDemand\[0\]: is named already/,
  );
  assert.match(await problem('[a, { scope: a, advertised: b }]'), /scopesOnDemand\[1\]: is named already/);
  for (const scopes of ['[offline_access]', '[{ scope: a, advertised: offline_access }]'])
    assert.match(await problem(scopes), /scopesOnDemand\[0\]: is for refresh tokens/);
  assert.match(await problem('[{ scope: a }]'), /scopesOnDemand\[0\]/);
});

test('a scope on demand that no grant names and no condition can read is a warning', async () => {
  const warned = async (access: string) =>
    (await loadText(withScopes('[write, { scope: send, advertised: b }]', access))).warnings
      .filter((text) => text.includes('no grant of gateway.access names this scope'))
      .map((text) => /scopesOnDemand\[\d\]/.exec(text)?.[0]);
  const [first, second] = ['scopesOnDemand[0]', 'scopesOnDemand[1]'];
  assert.deepEqual(await warned(''), [first, second]);
  const policy = (when: string, grant: string) =>
    `  access:\n    roles: { r: { upstreams: [github], when: '${when}' } }\n    grants: [{ roles: [r], ${grant} }]\n`;
  assert.deepEqual(await warned(policy('true', 'scopes: [write]')), [second]);
  assert.deepEqual(await warned(policy('"send" in principal.scopes', 'anyone: true')), []);
  assert.deepEqual(await warned(policy('principal.scopes.exists(s, s.startsWith("w"))', 'anyone: true')), []);
});

test('a scope on demand with another spelling needs that of the other scopes', async () => {
  const warned = async (more: string) =>
    (await loadText(withScopes(`[a, { scope: b, advertised: "api://b" }]${more}`))).warnings
      .filter((text) => text.includes('has no advertisedScopes'))
      .map((text) => /scopesOnDemand\[\d\]/.exec(text)?.[0]);
  assert.deepEqual(await warned(''), ['scopesOnDemand[1]']);
  assert.deepEqual(await warned(', advertisedScopes: ["api://mcp"]'), []);
});

test('a test of the policy sees what its principal could get as listed', async () => {
  const tests = (issuer: string, expect: string) =>
    `  access:\n    roles: { r: { upstreams: [github] } }\n    grants: [{ roles: [r], scopes: [write] }]\n` +
    `    tests: [{ as: { ${issuer}scopes: [mcp] }, upstream: github, tool: t, expect: ${expect} }]\n`;
  const problems = async (access: string) => (await problemsOf(withScopes('[write]', access))).join('\n');
  assert.match(await problems(tests('issuer: "https://a.test", ', 'hidden')), /expects "hidden" and gets "deny"/);
  await loadText(withScopes('[write]', tests('issuer: "https://a.test", ', 'deny')));
  await loadText(withScopes('[write]', tests('', 'hidden')));
});

test('a test of the policy gives an API key the groups that the config has', async () => {
  const config = (as: string, expect: string) =>
    withAccess(
      '    roles: { r: { upstreams: [github] } }\n    grants: [{ roles: [r], groups: [dev] }]\n' +
        `    tests: [{ as: ${as}, upstream: github, tool: t, expect: ${expect} }]\n` +
        `  auth: { apiKeys: [{ name: ci, sha256: ${'ab'.repeat(32)}, groups: [dev] }] }\n`,
    );
  await loadText(config('{ key: ci }', 'allow'));
  assert.match((await problemsOf(config('{ key: ci }', 'hidden'))).join('\n'), /expects "hidden" and gets "allow"/);
  await loadText(config('{ key: ci, groups: [] }', 'hidden'));
  await loadText(config('{ key: other }', 'hidden'));
});

test('a test of the policy holds for each API key of its name', async () => {
  const config = (expect: string) =>
    withAccess(
      '    roles: { r: { upstreams: [github] }, none: { deny: [{ upstreams: [github] }] } }\n' +
        '    grants: [{ roles: [r], groups: [dev] }, { roles: [none], groups: [blocked] }]\n' +
        `    tests: [{ as: { key: ci }, upstream: github, tool: t, expect: ${expect} }]\n` +
        `  auth: { apiKeys: [{ name: ci, sha256: ${'ab'.repeat(32)}, groups: [dev] }, { name: ci, sha256: ${'cd'.repeat(32)}, groups: [blocked] }] }\n`,
    );
  assert.match((await problemsOf(config('hidden'))).join('\n'), /expects "hidden" and gets "allow"/);
  assert.match((await problemsOf(config('allow'))).join('\n'), /expects "allow" and gets "hidden"/);
});

test('a test of the policy names a client without a subject as its token does', async () => {
  const config = (as: string) =>
    withAccess(
      `    roles: { r: { upstreams: [github], when: 'principal.label == "svc"' } }\n    grants: [{ roles: [r], anyone: true }]\n` +
        `    tests: [{ as: ${as}, upstream: github, tool: t, expect: allow }]\n${AUTH}`,
    );
  await loadText(config('{ client: svc, issuer: "https://a.test" }'));
  await loadText(config('{ claims: { client_id: svc } }'));
});

test('a test of the policy reads from the claims what it does not name beside them', async () => {
  const config = (to: string, as: string, expect: string) =>
    withAccess(
      `    roles: { r: { upstreams: [github] } }\n    grants: [{ roles: [r], ${to} }]\n` +
        `    tests: [{ as: ${as}, upstream: github, tool: t, expect: ${expect} }]\n${AUTH}`,
    );
  const token = 'claims: { iss: "https://a.test", sub: ann, azp: ide, scope: "a b" }';
  for (const to of ['subjects: [ann]', 'issuers: ["https://a.test"]', 'clients: [ide]', 'scopes: [b]']) {
    await loadText(config(to, `{ ${token} }`, 'allow'));
    assert.match((await problemsOf(config(to, `{ ${token} }`, 'hidden'))).join('\n'), /and gets "allow"/);
  }
  await loadText(config('subjects: [ann]', `{ subject: bob, ${token} }`, 'hidden'));
  await loadText(config('scopes: [b]', `{ scopes: [c], ${token} }`, 'hidden'));
});

test('a test of the policy about a principal that cannot exist is told', async () => {
  const about = async (as: string, auth: string) => {
    const tests = `    tests: [{ as: ${as}, upstream: github, tool: t, expect: hidden }]\n`;
    const access = '    roles: { r: { upstreams: [github] } }\n    grants: [{ roles: [r], groups: [dev] }]\n';
    const { warnings } = await loadText(withAccess(`${access}${tests}${auth}`));
    return warnings.filter((text) => text.includes('tests[0]'));
  };
  const keys = `  auth: { apiKeys: [{ name: dashboard, sha256: ${'ab'.repeat(32)} }] }\n`;
  const [unknownKey = ''] = await about('{ key: dashbord }', keys);
  assert.match(unknownKey, /tests\[0\]\.as\.key: no such API key \(did you mean "dashboard"\?\)/);
  const [unknownIssuer = ''] = await about('{ issuer: "https://b.test" }', AUTH);
  assert.match(unknownIssuer, /tests\[0\]\.as\.issuer: no such issuer in auth/);
  const [unknownIss = ''] = await about('{ claims: { iss: "https://b.test" } }', AUTH);
  assert.match(unknownIss, /tests\[0\]\.as\.claims\.iss: no such issuer in auth/);
  assert.deepEqual(await about('{ key: dashboard }', keys), []);
  assert.deepEqual(await about('{ key: any }', '  auth: { keyFile: ./keys.json }\n'), []);
  assert.deepEqual(await about('{ claims: { iss: "https://a.test" } }', AUTH), []);
});

test('a test of the policy at an endpoint without its upstream finds the item hidden', async () => {
  const config = (endpoint: string, expect: string) =>
    withAccess(
      `    roles: { r: { upstreams: [github, jira] } }\n${GRANTS}` +
        `    tests: [{ as: {}, endpoint: ${endpoint}, upstream: jira, tool: t, expect: ${expect} }]\n` +
        '  profiles: { some: { upstreams: [github] }, all: {} }\n',
    );
  for (const endpoint of ['/mcp/github', '/mcp/some']) {
    await loadText(config(endpoint, 'hidden'));
    assert.match(
      (await problemsOf(config(endpoint, 'allow'))).join('\n'),
      /and gets "hidden": the endpoint does not ha/,
    );
  }
  for (const endpoint of ['/mcp', '/mcp/jira', '/mcp/all']) await loadText(config(endpoint, 'allow'));
});
