import assert from 'node:assert/strict';
import { generateKeyPairSync } from 'node:crypto';
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { shortened } from '../support/test-name.ts';
import { test } from 'node:test';
import type { UpstreamConfig } from '../../src/config/values/upstream-config.ts';
import type { UpstreamAuth } from '../../src/config/values/credentials.ts';
import { clientAuthOf } from '../../src/credentials/client-auth.ts';
import { loadText, problemsOf } from '../support/config-file.ts';

const { privateKey } = generateKeyPairSync('ed25519');
const PEM = privateKey.export({ type: 'pkcs8', format: 'pem' }).toString();
const SECRET = 'the-secret-of-the-gateway';
const URL_LINE = 'url: https://up.example.com/mcp';

async function upstreamOf(entry: string, env: Readonly<Record<string, string>> = {}): Promise<UpstreamConfig> {
  const { config } = await loadText(`mcpServers:\n  up: {${entry}}\n`, { env: { PEM, SECRET, ...env } });
  const [upstream] = config.upstreams;
  assert.ok(upstream !== undefined);
  return upstream;
}

async function authOf(settings: string): Promise<UpstreamAuth | undefined> {
  const { target, problem } = await upstreamOf(`${URL_LINE}, auth: {${settings}}`);
  assert.equal(problem, undefined);
  assert.ok(target.kind !== 'stdio');
  return target.auth;
}

const CLIENT = "kind: clientCredentials, issuer: 'https://id.example.com', clientId: linkspan";

test('credentials have defaults: Basic with a secret, the URL as the resource', async () => {
  assert.deepEqual(await authOf(`${CLIENT}, clientSecret: '\${SECRET}'`), {
    kind: 'clientCredentials',
    issuer: 'https://id.example.com',
    tokenUrl: undefined,
    clientId: 'linkspan',
    method: 'client_secret_basic',
    clientSecret: SECRET,
    privateKey: undefined,
    keyId: undefined,
    scopes: [],
    stepUpScopes: [],
    resource: 'https://up.example.com/mcp',
    parameters: {},
  });
});

test('a private key means private_key_jwt, and resource: omit names no resource', async () => {
  const auth = await authOf(`${CLIENT}, privateKey: '\${PEM}', resource: omit`);
  assert.partialDeepStrictEqual(auth, { method: 'private_key_jwt', privateKey: PEM });
  assert.equal(auth?.kind === 'clientCredentials' && auth.resource, undefined);
});

test('kind static is the same as no credentials', async () => assert.equal(await authOf('kind: static'), undefined));

test('required has no use with credentials of callers: a warning, no error', async () => {
  const exchange = CLIENT.replace('clientCredentials', 'exchange');
  for (const [kind, settings] of [
    ['identity', 'kind: identity'],
    ['exchange', `${exchange}, clientSecret: s`],
  ]) {
    const text = `mcpServers:\n  up: {${URL_LINE}, required: true, auth: {${settings}}}\n`;
    const { config, warnings, problems } = await loadText(text);
    assert.deepEqual([config.upstreams[0]?.required, problems], [false, []]);
    const expected = `mcpServers.up.required: has no use with auth.kind "${kind}"`;
    assert.ok(
      warnings.some((line) => line.includes(expected)),
      warnings.join('; '),
    );
  }
  const own = `mcpServers:\n  up: {${URL_LINE}, required: true, auth: {${CLIENT}, clientSecret: s}}\n`;
  assert.equal((await loadText(own)).config.upstreams[0]?.required, true);
});

const WRONG: readonly (readonly [entry: string, reason: RegExp])[] = [
  [`${URL_LINE}, auth: {kind: password}`, /auth\.kind: expected one of "static"/],
  [`${URL_LINE}, auth: oauth`, /auth: expected a map such as/],
  [`${URL_LINE}, auth: {kind: static, clientId: a}`, /auth\.clientId: has no meaning for kind "static"/],
  [`${URL_LINE}, auth: {kind: clientCredentials, clientId: a, clientSecret: b}`, /needs either "issuer" or "tokenUrl"/],
  [`${URL_LINE}, auth: {${CLIENT}, tokenUrl: 'https://id.example.com/t', clientSecret: b}`, /needs either "issuer" or/],
  [
    `${URL_LINE}, auth: {kind: clientCredentials, issuer: 'https://a.example', clientSecret: b}`,
    /auth\.clientId: missing; "clientCredentials" needs "clientId"$/,
  ],
  [`${URL_LINE}, auth: {${CLIENT}}`, /needs either "clientSecret" or "privateKey"/],
  [`${URL_LINE}, auth: {${CLIENT}, clientSecret: b, keyId: k}`, /auth\.keyId: needs "privateKey"/],
  [`${URL_LINE}, auth: {${CLIENT}, clientSecret: b, method: private_key_jwt}`, /"private_key_jwt" needs "privateKey"/],
  [`${URL_LINE}, auth: {${CLIENT}, privateKey: nonsense}`, /auth\.privateKey: expected an RSA, EC or Ed25519 key/],
  [`${URL_LINE}, auth: {${CLIENT}, clientSecret: b, parameters: {grant_type: x}}`, /"grant_type" is decided by other/],
  [
    `${URL_LINE}, auth: {kind: clientCredentials, issuer: 'http://id.example.com', clientId: a, clientSecret: b}`,
    /auth\.issuer: expected an https URL/,
  ],
  [
    `${URL_LINE}, headers: {authorization: x}, auth: {${CLIENT}, clientSecret: b}`,
    /headers give an "Authorization" too/,
  ],
  [
    `${URL_LINE}, isolation: shared, auth: {kind: identity}`,
    /isolation: "shared" is one connection for all, but auth\.kind "identity" is for each principal; write "principal"/,
  ],
  [
    `${URL_LINE}, isolation: shared, auth: {${CLIENT.replace('clientCredentials', 'exchange')}, clientSecret: b}`,
    /isolation: "shared" is one connection for all, but auth\.kind "exchange"/,
  ],
  [`${URL_LINE}, auth: {${CLIENT}, clientSecret: b, stepUpScopes: [c]}`, /auth\.stepUpScopes: needs "scopes"/],
  [`${URL_LINE}, auth: {kind: identity, stepUpScopes: [c]}`, /auth\.stepUpScopes: has no meaning for kind "identity"/],
  [`${URL_LINE}, enabled: no`, /enabled: expected true or false, got "no" \(did you mean false\?\)$/],
  [`command: x, auth: {${CLIENT}, clientSecret: b}`, /auth: is for a "url"/],
];

for (const [entry, reason] of WRONG) {
  test(`an entry is refused: ${shortened(entry.replace(URL_LINE, ''), 50)}`, async () => {
    const problems = await problemsOf(`mcpServers:\n  up: {${entry}}\n`, { env: { PEM, SECRET } });
    assert.match(problems.join('\n'), reason);
  });
}

const TOKEN_URL = "kind: clientCredentials, tokenUrl: 'https://id.example.com/t', clientId: a";
const UNSET: readonly (readonly [settings: string, reason: string, ...places: string[]])[] = [
  [`auth: {${CLIENT}, privateKey: '\${KEY}'}`, 'KEY is not set', 'auth.privateKey'],
  [`auth: {${CLIENT}, clientSecret: '\${KEY}'}`, 'KEY is not set', 'auth.clientSecret'],
  [`auth: {${TOKEN_URL.replace(/'.*'/, "'${KEY}'")}, clientSecret: b}`, 'KEY is not set', 'auth.tokenUrl'],
  ["auth: {kind: '${KEY}'}", 'KEY is not set', 'auth.kind'],
  ["tls: {key: '${file:missing.key}', cert: '${CERT}'}", '"${file:missing.key}" does not exist', 'tls.key'],
  ["tls: {key: '${KEY}', cert: '${KEY}'}", 'KEY is not set', 'tls.key', 'tls.cert'],
  ["clientFeatures: ['${KEY}']", 'KEY is not set', 'clientFeatures[0]'],
];

for (const [settings, reason, ...places] of UNSET) {
  // N-09
  test(`a text that is missing fails its upstream by its name: ${shortened(settings, 30)}`, async () => {
    const CERT = '-----BEGIN CERTIFICATE-----';
    const { config, problems } = await loadText(`mcpServers:\n  up: {${URL_LINE}, ${settings}}\n`, { env: { CERT } });
    assert.deepEqual(problems, []);
    const reasons = config.upstreams[0]?.problem?.split('; ') ?? [];
    assert.equal(reasons.length, places.length, String(reasons));
    for (const [index, place] of places.entries()) {
      const text = reasons[index] ?? '';
      assert.ok(text.includes(reason) && text.endsWith(`, mcpServers.up.${place})`), text);
    }
  });
}

const KEYS = [
  { name: 'EC on P-256', key: generateKeyPairSync('ec', { namedCurve: 'P-256' }), problem: undefined },
  { name: 'EC on P-384', key: generateKeyPairSync('ec', { namedCurve: 'P-384' }), problem: undefined },
  { name: 'EC on P-521', key: generateKeyPairSync('ec', { namedCurve: 'P-521' }), problem: undefined },
  {
    name: 'EC on another curve',
    key: generateKeyPairSync('ec', { namedCurve: 'secp256k1' }),
    problem: 'expected an EC key on the curve P-256, P-384 or P-521, got text',
  },
  { name: 'RSA of 2048 bits', key: generateKeyPairSync('rsa', { modulusLength: 2_048 }), problem: undefined },
  {
    name: 'RSA of 1024 bits',
    key: generateKeyPairSync('rsa', { modulusLength: 1_024 }),
    problem: 'expected an RSA key of at least 2048 bits, got text',
  },
];

for (const { name, key, problem } of KEYS) {
  // N-12
  test(`a private key is accepted if it can sign a request for a token: ${name}`, async () => {
    const env = { PEM: key.privateKey.export({ type: 'pkcs8', format: 'pem' }).toString() };
    const entry = `${URL_LINE}, auth: {${CLIENT}, privateKey: '\${PEM}'}`;
    const problems = await problemsOf(`mcpServers:\n  up: {${entry}}\n`, { env });
    assert.equal(problems[0]?.replace(/^.*auth\.privateKey: /, ''), problem);
    if (problem !== undefined) return;
    const { target } = await upstreamOf(entry, env);
    assert.ok(target.kind !== 'stdio' && target.auth?.kind === 'clientCredentials');
    const sign = await clientAuthOf(target.auth);
    await sign({ issuer: 'https://id.example.com' }, { client_id: 'a' }, new URLSearchParams(), new Headers());
  });
}

test('a mistake beside a text that is missing is a problem of its own', async () => {
  const entry = `${URL_LINE}, auth: {${CLIENT}, tokenURL: 'https://a.example', clientSecret: '\${KEY}'}`;
  const problems = await problemsOf(`mcpServers:\n  up: {${entry}}\n`);
  assert.match(problems.join('\n'), /auth\.tokenURL: unknown key \(did you mean "tokenUrl"/);
});

test('credentials of the gateway itself can be shared', async () => {
  assert.equal(
    (await upstreamOf(`${URL_LINE}, isolation: shared, auth: {${CLIENT}, clientSecret: b}`)).problem,
    undefined,
  );
});

test('a problem with credentials does not quote their secrets', async () => {
  const entry = `${URL_LINE}, auth: {${CLIENT}, clientSecret: '\${SECRET}', privateKey: '\${SECRET}'}`;
  const problem = (await problemsOf(`mcpServers:\n  up: {${entry}}\n`, { env: { PEM, SECRET } })).join('\n');
  assert.notEqual(problem, '');
  assert.ok(!problem.includes(SECRET));
});

test('an exchange of tokens has a warning where no caller has a token', async () => {
  const entry = `up: {${URL_LINE}, auth: {${CLIENT.replace('clientCredentials', 'exchange')}, clientSecret: '\${SECRET}'}}`;
  const warningsWith = async (auth: string) =>
    (
      await loadText(`gateway: {auth: {${auth}}}\nmcpServers:\n  My Mail: {url: "http://x"}\n  ${entry}\n`, {
        env: { SECRET },
      })
    ).warnings;
  const [warning = '', ...others] = await warningsWith(`apiKeys: [{name: a, sha256: ${'a'.repeat(64)}}]`);
  assert.match(
    warning,
    /config\.yaml:4:\d+ mcpServers\.up\.auth\.kind: no principal has a token: .+; add one, or every call/,
  );
  assert.deepEqual(others, []);
  assert.deepEqual(await warningsWith("jwt: [{issuer: 'https://a.example', jwksUrl: 'https://a.example/k'}]"), []);
  const introspection =
    "issuer: 'https://a.example', endpoint: 'https://a.example/i', clientId: a, clientSecret: '${SECRET}'";
  assert.deepEqual(await warningsWith(`introspection: [{${introspection}}]`), []);
});

test('credentials for a URL that is not https are accepted with a warning', async () => {
  const text = `mcpServers:\n  up: {url: 'http://up:8080/mcp', auth: {${CLIENT}, clientSecret: b}}\n`;
  const { config, warnings } = await loadText(text);
  assert.equal(config.upstreams[0]?.problem, undefined);
  assert.match(warnings.join('\n'), /others may read the token on its way/);
});

const PROXY = `gateway: {egress: {noProxy: "\${NO_PROXY:-}"}}\nmcpServers: {up: {${URL_LINE}}}\n`;

test('noProxy takes NO_PROXY, also if it is unset, empty or ends with a comma', async () => {
  const noProxy = async (env: Readonly<Record<string, string>>) =>
    (await loadText(PROXY, { env })).config.egress?.noProxy;
  assert.deepEqual(await noProxy({}), []);
  assert.deepEqual(await noProxy({ NO_PROXY: '' }), []);
  assert.deepEqual(await noProxy({ NO_PROXY: 'localhost, .example.com,' }), ['localhost', '.example.com']);
});

const page = readFileSync(join(import.meta.dirname, '../../docs/upstream-credentials.md'), 'utf8');
const examples = [...page.matchAll(/```yaml\n([^]*?)```/g)].map(([, text = '']) => text);

test('each example in docs/upstream-credentials.md is valid', async () => {
  assert.ok(examples.length >= 3);
  for (const example of examples) {
    const text = example.replaceAll(/\$\{file:[^}]*\.pem\}/g, '${PEM}').replaceAll(/\$\{file:[^}]*\}/g, '${SECRET}');
    const { config } = await loadText(text, { env: { PEM, SECRET, PROXY_PASSWORD: SECRET } });
    for (const { problem } of config.upstreams) assert.equal(problem, undefined, example);
  }
});
