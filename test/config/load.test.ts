import assert from 'node:assert/strict';
import { hash, randomBytes } from 'node:crypto';
import { chmod, mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir, userInfo } from 'node:os';
import { join } from 'node:path';
import { test } from 'node:test';
import { fileURLToPath } from 'node:url';

import { loadConfig } from '../../src/config/load.ts';
import { makeCertificate } from '../support/certificate.ts';
import { loadText, problemsOf } from '../support/config-file.ts';
import { shortened } from '../support/test-name.ts';

const ONE = 'mcpServers: {a: {url: https://example.com}}\n';
const SAME_KEYS = `{name: ann, sha256: ${'a'.repeat(64)}}, {name: bob, sha256: ${'A'.repeat(64)}}`;
const KEY = 'auth: {apiKeys: [{name: ci, sha256: ' + 'a'.repeat(64) + '}]}';

test('an empty name fails its upstream alone', async () => {
  const { config, problems } = await loadText('mcpServers:\n  a: {url: "https://x"}\n  "": {command: x}\n', {
    env: {},
  });
  assert.deepEqual(
    problems.map(({ line, column, key, message }) => [line, column, key, message]),
    [[3, 3, 'mcpServers[""]', 'expected a name as the key']],
  );
  assert.deepEqual(
    config.upstreams.map(({ id, problem }) => [id, problem !== undefined]),
    [
      ['a', false],
      ['s-e3b0c4', true],
    ],
  );
});

test('a file with only upstreams gets safe defaults', async () => {
  const { config, warnings } = await loadText(ONE, { env: { HOME: '/home/me' } });
  const { file, stateDir, defaultStateDir, upstreams, ...rest } = config;
  assert.equal(upstreams.length, 1);
  assert.match(stateDir, /^\/home\/me\/\.local\/state\/linkspan\/[0-9a-f]{12}$/);
  assert.equal(defaultStateDir, stateDir);
  assert.match(file, /^\/.*\/config\.yaml$/);
  assert.deepEqual(warnings, []);
  assert.deepEqual(rest, {
    listen: { host: '127.0.0.1', port: 3000 },
    operator: { host: '127.0.0.1', port: 3001 },
    operatorMayMove: true,
    publicUrl: undefined,
    allowedHosts: [],
    allowedOrigins: [],
    trustedProxies: [],
    tls: undefined,
    auth: { jwt: [], apiKeys: [], introspection: [], keyFile: undefined, keysInRedis: undefined },
    access: undefined,
    operatorKeys: [],
    limits: {
      bodyBytes: 4_194_304,
      messageBytes: 16_777_216,
      processes: 128,
      sessions: 100_000,
      sessionsPerPrincipal: 1_000,
      parkedPerPrincipal: 256,
      parkedPerUpstream: 1_024,
      inFlightPerSession: 256,
      inFlightPerPrincipal: undefined,
      streamsPerPrincipal: 1_000,
      bodyTotalBytes: undefined,
      messageTotalBytes: undefined,
      unsentTotalBytes: undefined,
    },
    sessions: {
      required: true,
      idleMs: 1_800_000,
      maxAgeMs: 2_592_000_000,
      parkMs: 600_000,
      keepAliveMs: 15_000,
      eventLimit: 1_000,
      eventLimitBytes: 8_388_608,
      eventTotalBytes: undefined,
    },
    jsonAnswers: [],
    legacySse: true,
    logLevel: 'info',
    accessLog: 'auto',
    tracing: undefined,
    audit: undefined,
    rates: [],
    repeats: undefined,
    overload: { loopDelayMs: 500, memory: 'of cgroup' },
    idempotency: { keepMs: 86_400_000 },
    names: { maxChars: 48 },
    instructions: { maxChars: 4_000 },
    lists: { waitMs: 8_000 },
    reload: { watch: true, drainMs: 60_000 },
    workers: 1,
    redis: undefined,
    profiles: [],
  });
});

test('a loaded config is deeply frozen', async () => {
  const { config } = await loadText(`${ONE}gateway: {profiles: {p: {renames: {x: y}}}}\n`);
  const walk = (value: unknown): void => {
    if (typeof value !== 'object' || value === null) return;
    assert.ok(Object.isFrozen(value));
    Object.values(value).forEach(walk);
  };
  walk(config);
});

test('upstreams keep the order of the file, whatever their names', async () => {
  const { config } = await loadText('mcpServers: {zed: {url: "http://a"}, 2: {url: "http://b"}, 1: {url: "http://c"}}');
  assert.deepEqual(
    config.upstreams.map(({ id, title }) => [id, title]),
    [
      ['zed', 'zed'],
      ['s2', '2'],
      ['s1', '1'],
    ],
  );
});

test('an unset variable fails only its upstream, with its name and position', async () => {
  const text = [
    'mcpServers:',
    '  github:',
    '    url: https://example.com/mcp',
    '    headers:',
    '      Authorization: Bearer ${GITHUB_PAT}',
    '  files: {command: npx, args: ["${ROOT:-/data}"]}',
    '  local: {command: "${BIN}", timeouts: {call: "${WAIT}"}, env: {A: "${KEY:?ask the team}"}}',
  ].join('\n');
  const [github, files, local] = (await loadText(text, { env: { OTHER: 'x' } })).config.upstreams;
  assert.equal(
    github?.problem,
    'environment variable GITHUB_PAT is not set (config.yaml:5:22, mcpServers.github.headers.Authorization)',
  );
  assert.equal(files?.problem, undefined);
  assert.deepEqual(files?.target, { kind: 'stdio', command: 'npx', args: ['/data'], env: {}, cwd: undefined });
  assert.equal(local?.timeouts.callMs, 60_000);
  assert.equal(
    local?.problem,
    [
      'environment variable BIN is not set (config.yaml:7:20, mcpServers.local.command)',
      'environment variable WAIT is not set (config.yaml:7:47, mcpServers.local.timeouts.call)',
      'environment variable KEY is not set: ask the team (config.yaml:7:68, mcpServers.local.env.A)',
    ].join('; '),
  );
});

test('an unset variable named by a client’s key fails only its upstream', async () => {
  const text = [
    'mcpServers:',
    '  a: {url: "https://x", bearer_token_env_var: TOKEN}',
    '  b: {url: "https://x", env_http_headers: {X-User: WHO}}',
    '  c: {command: x, env_vars: [WHO], envFile: none.env}',
    '  d: {url: "https://x"}',
  ].join('\n');
  assert.deepEqual(
    (await loadText(text)).config.upstreams.map(({ problem }) => problem),
    [
      'environment variable TOKEN is not set (config.yaml:2:47, mcpServers.a.bearer_token_env_var)',
      'environment variable WHO is not set (config.yaml:3:43, mcpServers.b.env_http_headers)',
      'the file does not exist; its path begins at the folder of this config (config.yaml:4:45, mcpServers.c.envFile); environment variable WHO is not set (config.yaml:4:29, mcpServers.c.env_vars)',
      undefined,
    ],
  );
});

test('a token in the place of the name of a variable is in no message', async () => {
  const token = 'ghp_verySecret1';
  const text = [
    'mcpServers:',
    '  a: {url: "https://x", bearer_token_env_var: "${TOKEN}"}',
    '  b: {url: "https://x", env_http_headers: {X-User: "${TOKEN}"}}',
    '  c: {command: x, env_vars: ["${TOKEN}"]}',
    `  d: {url: "https://x", bearer_token_env_var: ${token}}`,
  ].join('\n');
  const problems = (await loadText(text, { env: { TOKEN: token } })).config.upstreams.map(({ problem }) => problem);
  assert.deepEqual(problems, [
    'expected names of variables alone: NAME instead of ${NAME} (config.yaml:2:47, mcpServers.a.bearer_token_env_var)',
    'expected names of variables alone: NAME instead of ${NAME} (config.yaml:3:43, mcpServers.b.env_http_headers)',
    'expected names of variables alone: NAME instead of ${NAME} (config.yaml:4:29, mcpServers.c.env_vars)',
    'the environment variable is not set (config.yaml:5:47, mcpServers.d.bearer_token_env_var)',
  ]);
});

test('a disabled upstream is left out, and its variables need not be set', async () => {
  const text = 'mcpServers: {a: {disabled: true, url: "${X}"}, b: {enabled: false, command: x}, c: {command: x}}';
  assert.deepEqual(
    (await loadText(text)).config.upstreams.map(({ id }) => id),
    ['c'],
  );
});

test('a variable may hold a number, a boolean or an address', async () => {
  const env = { PORT: '4000', MANY: '7', YES: 'true', NO: 'false', WAIT: '9s' };
  const text = [
    'mcpServers:',
    '  a:',
    '    url: https://example.com',
    '    concurrency: ${MANY}',
    '    required: ${YES}',
    '    timeouts: {call: "${WAIT}"}',
    'gateway: {listen: "127.0.0.1:${PORT}", operator: "${NO}", limits: {processes: "${MANY}"}, logLevel: "${L:-debug}"}',
  ].join('\n');
  const { config } = await loadText(text, { env });
  assert.deepEqual(config.listen, { host: '127.0.0.1', port: 4_000 });
  assert.equal(config.operator, undefined);
  assert.equal(config.limits.processes, 7);
  assert.equal(config.logLevel, 'debug');
  const [upstream] = config.upstreams;
  assert.deepEqual([upstream?.concurrency, upstream?.required, upstream?.timeouts.callMs], [7, true, 9_000]);
});

// REL-04
test('a tool may be silent for five minutes, or for timeouts.call if it is set', async () => {
  const text = [
    'mcpServers:',
    '  plain: {command: a}',
    '  set: {command: a, timeouts: {call: 20s}}',
    '  theirs: {command: a, tool_timeout_sec: 90}',
    '  long: {command: a, timeouts: {call: 2h}}',
    '  short: {command: a, timeouts: {max: 30s}}',
  ].join('\n');
  const { upstreams } = (await loadText(text)).config;
  assert.deepEqual(
    upstreams.map(({ id, timeouts: { callMs, toolMs, maxMs } }) => [id, callMs, toolMs, maxMs]),
    [
      ['plain', 60_000, 300_000, 3_600_000],
      ['set', 20_000, 20_000, 3_600_000],
      ['theirs', 90_000, 90_000, 3_600_000],
      ['long', 7_200_000, 7_200_000, 7_200_000],
      ['short', 30_000, 30_000, 30_000],
    ],
  );
});

test('a wait of a file of a client is a whole number of ms, as long as ours may be', async () => {
  const text = [
    'mcpServers:',
    '  codex: {command: a, startup_timeout_sec: 9999999, tool_timeout_sec: 9999999}',
    '  continue: {command: a, connectionTimeout: 3000000000, timeout: 3000000000}',
    '  odd: {command: a, startup_timeout_sec: 16.1, tool_timeout_sec: 0.0001}',
    '  ours: {command: a, startup_timeout_sec: 9999999, timeouts: {start: 20s}}',
  ].join('\n');
  const { config, warnings } = await loadText(text);
  assert.deepEqual(
    config.upstreams.map(({ timeouts: { startMs, callMs } }) => [startMs, callMs]),
    [
      [3_600_000, 86_400_000],
      [3_600_000, 86_400_000],
      [16_101, 1],
      [20_000, 60_000],
    ],
  );
  assert.deepEqual(
    warnings.map((line) => line.replace(/^.*mcpServers\./, '')),
    [
      'codex.tool_timeout_sec: is longer than the longest wait; 1d is used',
      'codex.startup_timeout_sec: is longer than the longest wait; 1h is used',
      'continue.timeout: is longer than the longest wait; 1d is used',
      'continue.connectionTimeout: is longer than the longest wait; 1h is used',
    ],
  );
});

test('a variable may hold a number with decimals', async () => {
  const text =
    'mcpServers: {a: {command: x, startup_timeout_sec: "${T}"}}\ngateway: {tracing: {sampling: "${S:-0.1}"}}';
  const { config } = await loadText(text, { env: { T: '2.5' } });
  assert.deepEqual([config.tracing?.sampling, config.upstreams[0]?.timeouts.startMs], [0.1, 2_500]);
  for (const value of ['1.5', '.5', '1e-1', '0.', 'half']) {
    const problems = (await problemsOf(text, { env: { S: value } })).join('\n');
    assert.match(problems, /gateway\.tracing\.sampling: expected a number from 0 to 1, got "\$\{S:-0\.1\}"$/m);
  }
  const whole = 'mcpServers: {a: {command: x, concurrency: "${N}"}}';
  assert.match((await problemsOf(whole, { env: { N: '1.5' } })).join(), /expected a whole number/);
  const inText = await loadText('mcpServers: {a: {command: x, env: {A: "${N}"}}}', { env: { N: '1.50' } });
  const target = inText.config.upstreams[0]?.target;
  assert.equal(target?.kind === 'stdio' ? target.env['A'] : undefined, '1.50');
});

test('a number stays as it is written in parameters and headers', async () => {
  const text = [
    'mcpServers:',
    '  a:',
    '    url: https://a.example',
    '    requestOptions: {headers: {X-Id: 0080}}',
    '    auth:',
    '      kind: clientCredentials',
    '      tokenUrl: https://id.example/token',
    '      clientId: 007',
    '      clientSecret: s',
    '      parameters: {tenant: 0080, organization: 12345678901234567890}',
  ].join('\n');
  const target = (await loadText(text)).config.upstreams[0]?.target;
  assert.ok(target?.kind === 'http' && target.auth?.kind === 'clientCredentials');
  assert.deepEqual(target.headers, { 'X-Id': '0080' });
  assert.deepEqual(target.auth.parameters, { tenant: '0080', organization: '12345678901234567890' });
  assert.equal(target.auth.clientId, '007');
});

test('a variable whose text looks like YAML stays one text', async () => {
  const env = { EVIL: 'x"\n  disabled: true\n#', NUMBER: '0123' };
  const { config } = await loadText('mcpServers: {a: {command: x, env: {A: "${EVIL}", B: "${NUMBER}"}}}', { env });
  assert.deepEqual(config.upstreams[0]?.target, {
    kind: 'stdio',
    command: 'x',
    args: [],
    env: { A: env.EVIL, B: '0123' },
    cwd: undefined,
  });
});

test('${file:} reads a secret beside the config, without the line break at its end', async () => {
  const dir = await mkdtemp(join(tmpdir(), 'linkspan-config-'));
  try {
    await writeFile(join(dir, 'token'), 's3cret\n');
    const file = join(dir, 'c.yaml');
    await writeFile(
      file,
      'mcpServers: {a: {url: "https://x", headers: {A: "${file:token}", B: "${file:${workspaceFolder}/token}"}}, b: {url: "https://x", headers: {A: "${file:gone}"}}}',
    );
    const [a, b] = (await loadConfig(file, { env: {} })).config.upstreams;
    assert.deepEqual(a?.target, { kind: 'http', url: 'https://x', headers: { A: 's3cret', B: 's3cret' } });
    assert.equal(b?.problem, 'the file of "${file:gone}" does not exist (c.yaml:1:142, mcpServers.b.headers.A)');
  } finally {
    await rm(dir, { recursive: true });
  }
});

test('no problem or warning holds the value of a variable', async () => {
  const env = { S: 'hunter2', LONG: 'hunter2'.repeat(20) };
  const texts = [
    'mcpServers: {a: {url: "${S}"}}',
    'mcpServers: {a: {url: "https://x", isolation: "${S}", concurrency: "${S}", timeouts: {call: "${S}"}}}',
    'mcpServers: {a: {url: "https://x", type: "${S}"}}',
    'mcpServers: {a: {url: "https://x", prefix: "${LONG}!"}}',
    `${ONE}gateway: {listen: "\${S}", logLevel: "\${S}", limits: {body: "\${S}"}, profiles: {p: {upstreams: ["\${S}"]}}}`,
    `${ONE}gateway: {profiles: {p: {upstreams: ["\${S}"], renames: {a: "\${S} x"}}}}`,
    `${ONE}gateway: {publicUrl: "\${S}", auth: {jwt: [{issuer: i, jwksUrl: "\${S}"}], apiKeys: [{name: n, sha256: "\${S}"}]}}`,
  ];
  for (const text of texts) {
    const problems = await problemsOf(text, { env });
    assert.notEqual(problems.length, 0, text);
    assert.doesNotMatch(problems.join('\n'), /hunter/, text);
  }
});

test('a prefix is used as written; with an empty one, URIs stay unchanged', async () => {
  const text =
    'mcpServers: {Git Hub: {url: "https://x"}, b: {url: "https://x", prefix: ""}, c: {url: "https://x", prefix: c_}}';
  assert.deepEqual(
    (await loadText(text)).config.upstreams.map(({ id, title, prefix, rawUris }) => [id, title, prefix, rawUris]),
    [
      ['git-hub', 'Git Hub', 'git-hub__', false],
      ['b', 'b', '', true],
      ['c', 'c', 'c_', false],
    ],
  );
});

test('timeouts.max follows timeouts.call, and a shorter one is an error', async () => {
  const { config } = await loadText('mcpServers: {a: {url: "https://x", timeouts: {call: 1h}}}');
  assert.equal(config.upstreams[0]?.timeouts.maxMs, 3_600_000);
  assert.deepEqual(await problemsOf('mcpServers: {a: {url: "https://x", timeouts: {call: 1h, max: 1m}}}'), [
    'config.yaml:1:57 mcpServers.a.timeouts.max: is shorter than timeouts.call',
  ]);
});

test('paths are relative to the file, and ~ is the home', async () => {
  const text = 'mcpServers: {a: {command: ~/bin/x, cwd: sub}}\ngateway: {stateDir: ~/state}\n';
  const { config } = await loadText(text, { env: { HOME: '/home/me' } });
  assert.equal(config.stateDir, '/home/me/state');
  const target = config.upstreams[0]?.target;
  assert.ok(target?.kind === 'stdio');
  assert.equal(target.command, '/home/me/bin/x');
  assert.equal(target.cwd, config.file.replace('config.yaml', 'sub'));
});

test('an empty HOME counts as none', async () => {
  const { config } = await loadText(ONE, { env: { HOME: '' } });
  assert.ok(config.stateDir.startsWith(join(userInfo().homedir, '.local/state/linkspan/')), config.stateDir);
});

test('the default state directory follows XDG_STATE_HOME and differs from file to file', async () => {
  const env = { HOME: '/home/me', XDG_STATE_HOME: '/state' };
  const first = (await loadText(ONE, { env })).config.stateDir;
  assert.match(first, /^\/state\/linkspan\/[0-9a-f]{12}$/);
  assert.notEqual((await loadText(ONE, { env })).config.stateDir, first);
});

test('profiles select by id or key, keep their order, and omit disabled upstreams', async () => {
  const text = [
    'mcpServers: {A B: {url: "https://x"}, c: {url: "https://x"}, off: {command: x, disabled: true}}',
    'gateway:',
    '  profiles:',
    '    all: {}',
    '    some: {upstreams: [c, A B, off], includeTools: ["*"], excludeTools: [x], renames: {c__x: x}}',
  ].join('\n');
  const { config, warnings } = await loadText(text);
  assert.deepEqual(config.profiles, [
    { id: 'all', upstreams: ['a-b', 'c'], includeTools: undefined, excludeTools: [], renames: {} },
    { id: 'some', upstreams: ['c', 'a-b'], includeTools: ['*'], excludeTools: ['x'], renames: { c__x: 'x' } },
  ]);
  assert.match(warnings.join('\n'), /profiles\.some\.upstreams\[2\]: is left out, so the profile goes without it$/);
});

const safety = [
  { gateway: 'listen: 0.0.0.0:3000', refused: /config\.yaml:2:19 gateway\.listen: 0\.0\.0\.0 is open to the network/ },
  { gateway: 'listen: "[::]:3000"', refused: /gateway\.listen: :: is open to the network/ },
  {
    gateway: 'listen: gateway.internal:3000',
    refused: /configure gateway\.auth, start with --first-key, or listen on 127\.0\.0\.1/,
  },
  { gateway: `listen: 0.0.0.0:3000, ${KEY}`, refused: undefined },
  { gateway: 'listen: localhost:3000', refused: undefined },
  { gateway: 'listen: "[::1]:3000"', refused: undefined },
  { gateway: 'listen: 127.9.9.9:3000', refused: undefined },
  { gateway: 'operator: 127.0.0.1:3000', refused: /gateway\.operator: is the address of listen/ },
  { gateway: 'listen: 127.0.0.1:0, operator: 127.0.0.1:0', refused: undefined },
  ...[
    ['0.0.0.0:3000', '127.0.0.1:3000'],
    ['127.0.0.1:3000', '0.0.0.0:3000'],
    ['[::]:3000', '127.0.0.1:3000'],
    ['[::]:3000', '[::1]:3000'],
    ['0.0.0.0:3000', '[::]:3000'],
    ['0.0.0.0:3000', 'Localhost:3000'],
    ['localhost:3000', '127.0.0.1:3000'],
    ['[::1]:3000', 'LOCALHOST:3000'],
    ['[0:0::1]:3000', '[::1]:3000'],
    ['127.1:3000', '127.0.0.1:3000'],
  ].map(([listen, operator]) => ({
    gateway: `listen: "${listen}", operator: "${operator}", ${KEY}`,
    refused: /^config\.yaml:2:\d+ gateway\.operator: is the address of listen; operators have a port of their own$/,
  })),
  ...[
    ['0.0.0.0:3000', '[::1]:3000'],
    ['127.0.0.1:3000', '127.0.0.2:3000'],
    ['127.0.0.1:3000', '[::1]:3000'],
    ['localhost:3000', '127.0.0.2:3000'],
    ['0.0.0.0:3000', '0.0.0.0:3001'],
    ['0.0.0.0:0', '127.0.0.1:0'],
  ].map(([listen, operator]) => ({
    gateway: `listen: "${listen}", operator: "${operator}", ${KEY}`,
    refused: undefined,
  })),
  {
    gateway: 'listen: 0.0.0.0:3000, auth: {apiKeys: [{name: a, key: hunter2}]}',
    refused:
      /apiKeys\[0\]\.key: keys are not kept in plain text; write sha256 instead, made with: printf %s "\$KEY" \| sha256sum/,
  },
  {
    gateway: 'auth: {apiKeys: [{name: a, sha256: e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855}]}',
    refused: /this is the hash of an empty key/,
  },
  ...[
    'http://idp.example.com/jwks',
    'http://127.0.0.1.example.com/jwks',
    'http://localhost.example.com/jwks',
    'http://192.168.0.1/jwks',
    'file:///etc/passwd',
    'data:application/json,{}',
    'https://user:s3cret@idp.example.com/jwks',
    'jwks',
  ].map((url) => ({
    gateway: `auth: {jwt: [{issuer: i, jwksUrl: "${url}"}]}`,
    refused: /expected an https:\/\/ URL \(http:\/\/ only to this machine\), without user name and password/,
  })),
  ...['http://127.0.0.1:9/jwks', 'http://localhost/jwks', 'http://[::1]:1/jwks'].map((url) => ({
    gateway: `auth: {jwt: [{issuer: i, jwksUrl: "${url}"}]}`,
    refused: undefined,
  })),
  ...['none', 'HS256', 'HS384', 'HS512', 'rs256', 'RS1', 'dir', '""'].map((algorithm) => ({
    gateway: `auth: {jwt: [{algorithms: [RS256, ${algorithm}], issuer: i, jwksUrl: "https://x"}]}`,
    refused: /expected one of "RS256"/,
  })),
  { gateway: 'auth: {jwt: [{issuer: i, jwksUrl: "https://x", algorithms: []}]}', refused: /expected at least one/ },
  ...['change-me', 'CHANGE_ME', 'secret', '<your-client-secret-here>', '****'].map((secret) => ({
    gateway: `auth: {introspection: [{issuer: i, endpoint: "https://x", clientId: c, clientSecret: "${secret}"}]}`,
    refused: /clientSecret: this is the text of an example/,
  })),
  {
    gateway: 'auth: {introspection: [{issuer: i, endpoint: "https://x", clientId: c, clientSecret: "keyK-7f-secret"}]}',
    refused: undefined,
  },
  ...['change-me', 'CHANGEME', 'your_api_key', 'foo\n'].map((key) => ({
    gateway: `auth: {apiKeys: [{name: a, sha256: ${hash('sha256', key)}}]}`,
    refused: /this is the hash of an example such as "change-me"; "openssl rand -base64 32" makes a key/,
  })),
  ...['""', 'abc', 'z'.repeat(64), hash('sha256', 'x').slice(1)].map((sha256) => ({
    gateway: `auth: {apiKeys: [{name: a, sha256: ${sha256}}]}`,
    refused: /expected 64 hex digits/,
  })),
  {
    gateway: `operatorKeys: [{name: a, sha256: ${hash('sha256', 'password')}}]`,
    refused: /this is the hash of an example/,
  },
  {
    gateway: `auth: {apiKeys: [${SAME_KEYS}]}`,
    refused: /apiKeys\[1\]\.sha256: the key of "ann" is the same one; make/,
  },
  { gateway: `operatorKeys: [${SAME_KEYS}]`, refused: /operatorKeys\[1\]\.sha256: the key of "ann" is the same one/ },
  { gateway: 'egress: {proxy: "http://u:100%25sure@p:1"}' },
  { gateway: 'egress: {proxy: "http://u:100%sure@p:1"}', refused: /egress\.proxy: .*have to be percent-encoded/ },
  { gateway: 'trustedProxies: [10.0.0.1]', refused: /expected a network such as/ },
  { gateway: 'trustedProxies: [proxy.example.com/8]', refused: /expected a network such as/ },
  ...['listen: "127.0.0.1:70000"', 'operator: "[::1]:65536"'].map((gateway) => ({
    gateway,
    refused: /expected a port from 0 to 65535, got "/,
  })),
  ...[
    'publicUrl: "https://mcp.example.com:70000"',
    'redis: {url: "redis://:secret@a:6379,b:123456"}',
    'auth: {jwt: [{issuer: i, jwksUrl: "https://x:0070000/jwks"}]}',
  ].map((gateway) => ({ gateway, refused: /: expected a port from 1 to 65535, got (?:"https|text)/ })),
  ...['*', 'null', 'https://*.example.com', 'app://*', 'file://', 'tauri://me:pw@localhost'].map((origin) => ({
    gateway: `allowedOrigins: ["${origin}"]`,
    refused: /expected scheme, host and port alone/,
  })),
  { gateway: 'allowedOrigins: ["https://a.example.com/path"]', refused: /expected scheme, host and port alone/ },
];

for (const { gateway, refused } of safety) {
  // SEC-03 SEC-14
  test(`{${shortened(gateway, 65)}} is ${refused === undefined ? 'accepted' : 'refused'}`, async () => {
    const problems = (await problemsOf(`${ONE}gateway: {${gateway}}\n`)).join('\n');
    if (refused === undefined) assert.equal(problems, '');
    else assert.match(problems, refused);
  });
}

// SEC-14
test('a public name of a gateway that asks for no credentials is a warning', async () => {
  const warningsWith = async (gateway: string, options = {}) =>
    (await loadText(`${ONE}gateway: {${gateway}}\n`, options)).warnings.join('\n');
  const open = 'publicUrl: "https://mcp.example.com"';
  assert.match(await warningsWith(open), /gateway\.publicUrl: .*asks for no credentials.*gateway\.auth/);
  assert.equal(await warningsWith('publicUrl: "https://localhost:3000"'), '');
  assert.equal(await warningsWith(`${open}, ${KEY}`), '');
  assert.equal(await warningsWith(open, { listens: false }), '', 'over stdio');
});

// SEC-14
test('--listen overrides the file, and needs authentication beyond loopback', async () => {
  assert.match(
    (await problemsOf(ONE, { listen: '0.0.0.0:80' })).join('\n'),
    /^--listen: 0\.0\.0\.0 is open to the network without authentication/,
  );
  assert.deepEqual(await problemsOf(ONE, { listen: '8080' }), [
    '--listen: expected host:port such as "127.0.0.1:3000", got "8080" (did you mean "127.0.0.1:8080"?)',
  ]);
  assert.deepEqual(await problemsOf(ONE, { listen: '127.0.0.1:70000' }), [
    '--listen: expected a port from 0 to 65535, got "127.0.0.1:70000"',
  ]);
  assert.deepEqual(await problemsOf(ONE, { operator: 'none' }), [
    '--operator: expected host:port such as "127.0.0.1:3001", or off, got "none" (did you mean "off"?)',
  ]);
  const open = `${ONE}gateway: {listen: 0.0.0.0:3000}\n`;
  assert.deepEqual((await loadText(open, { listen: '127.0.0.1:9' })).config.listen, { host: '127.0.0.1', port: 9 });
  const { warnings } = await loadText(`${ONE}gateway: {${KEY}, operator: 0.0.0.0:1}\n`, { listen: '[::]:80' });
  assert.match(warnings.join('\n'), /without publicUrl or allowedHosts.*\n.*no access policy.*\n.*need no key/);
  const auth =
    'auth: {jwt: [{issuer: "https://a", jwksUrl: "https://a/k"}]}, access: {roles: {all: {tools: ["*"]}}, grants: [{roles: [all], anyone: true}]}';
  const warningsWith = async (gateway: string) =>
    (await loadText(`${ONE}gateway: {${auth}, ${gateway}}\n`)).warnings.join('\n');
  assert.match(
    await warningsWith('listen: 0.0.0.0:3000, allowedHosts: [mcp.example.com]'),
    /gateway\.publicUrl: is not set: clients that sign in are sent to the address of listen/,
  );
  assert.equal(await warningsWith('listen: 0.0.0.0:3000, publicUrl: "https://mcp.example.com"'), '');
  assert.equal(await warningsWith('listen: 127.0.0.1:3000'), '');
});

// SEC-14
test('a secret in a file that every user can read is a warning, and not shown', async () => {
  const dir = await mkdtemp(join(tmpdir(), 'linkspan-load-'));
  const file = join(dir, 'config.yaml');
  const issuer = (secret: string) => `{issuer: i, endpoint: "https://x", clientId: c, clientSecret: "${secret}"}`;
  const warningsOf = (secret: string, redis = '') => {
    const env = { SECRET: 'canary-4711', KEY: randomBytes(32).toString('base64') };
    const text = `${ONE}gateway: {auth: {introspection: [${issuer(secret)}]}${redis}}\n`;
    return writeFile(file, text).then(async () => (await loadConfig(file, { env })).warnings.join('\n'));
  };
  try {
    await writeFile(file, '');
    for (const [mode, isWarned] of [
      [0o644, true],
      [0o604, true],
      [0o640, false],
      [0o600, false],
    ] as const) {
      await chmod(file, mode);
      const warnings = await warningsOf('canary-4711');
      assert.equal(/clientSecret: a secret in a file that every user.*chmod o-r/.test(warnings), isWarned, warnings);
      assert.doesNotMatch(warnings, /canary/);
    }
    await chmod(file, 0o644);
    const exported = await warningsOf(
      '${SECRET}',
      ', audit: {otlp: {endpoint: "https://c", headers: {A: canary-4711}}}',
    );
    assert.match(exported, /audit\.otlp\.headers\.A: a secret in a file that every user/);
    assert.equal(await warningsOf('${SECRET}'), '');
    const literal = `, redis: {url: "redis://:canary-4711@127.0.0.1", wrappingKeys: ["${randomBytes(32).toString('base64')}"]}`;
    const both = await warningsOf('${SECRET}', literal);
    assert.match(both, /redis\.url: a secret .*\n.*redis\.wrappingKeys: a secret/);
    assert.doesNotMatch(both, /canary/);
    assert.equal(await warningsOf('${SECRET}', ', redis: {url: "redis://127.0.0.1", wrappingKeys: ["${KEY}"]}'), '');
    const egress = await warningsOf('${SECRET}', ', egress: {proxy: "http://u:canary-4711@p:1"}');
    assert.match(egress, /egress\.proxy: a secret/);
    assert.doesNotMatch(egress, /canary/);
    assert.equal(await warningsOf('${SECRET}', ', egress: {proxy: "http://u:${SECRET}@p:1"}'), '');
    const cluster = await warningsOf(
      '${SECRET}',
      ', redis: {url: "redis+cluster://:canary-4711@h:1,h:2", wrappingKeys: ["${KEY}"]}',
    );
    assert.match(cluster, /redis\.url: a secret/);
    await using made = await makeCertificate();
    const pem = JSON.stringify({ cert: made.cert, key: made.key });
    const tls = await warningsOf('${SECRET}', `, audit: {otlp: {endpoint: "https://c", tls: ${pem}}}`);
    assert.match(tls, /^\S+ gateway\.audit\.otlp\.tls\.key: a secret .*$/);
    await writeFile(file, `mcpServers: {up: {url: "https://x", tls: ${pem}}}\n`);
    const tlsOfUpstream = (await loadConfig(file, { env: {} })).warnings.join('\n');
    assert.match(tlsOfUpstream, /^\S+ mcpServers\.up\.tls\.key: a secret .*$/);
    const auth = '{kind: clientCredentials, issuer: "https://i", clientId: c, clientSecret: canary-4711}';
    for (const key of ['mcpServers', 'servers', 'context_servers']) {
      await writeFile(file, `${key}: {up: {url: "https://x", auth: ${auth}}}\n`);
      const ofUpstream = (await loadConfig(file, { env: {} })).warnings.join('\n');
      assert.match(ofUpstream, new RegExp(`${key}\\.up\\.auth\\.clientSecret: a secret in a file that every user`));
      assert.doesNotMatch(ofUpstream, /canary/);
    }
  } finally {
    await rm(dir, { recursive: true });
  }
});

test('public names are normalised', async () => {
  const { config } = await loadText(
    `${ONE}gateway: {publicUrl: "HTTPS://MCP.Example.com:443/", allowedHosts: [A.Example.com], allowedOrigins: ["https://B.example.com:443/", "tauri://localhost", "chrome-extension://abcd/"]}`,
  );
  assert.equal(config.publicUrl, 'https://mcp.example.com');
  assert.deepEqual(config.allowedHosts, ['a.example.com']);
  assert.deepEqual(config.allowedOrigins, ['https://b.example.com', 'tauri://localhost', 'chrome-extension://abcd']);
});

test('a file that is missing, too large, a folder or not text is refused', async () => {
  const folder = fileURLToPath(new URL('.', import.meta.url));
  await assert.rejects(loadConfig('no/such.yaml', { env: {} }), { message: 'no/such.yaml: no such file' });
  await assert.rejects(
    loadConfig(folder, { env: {} }),
    /: is no ordinary file, but a folder, .*; write the config to a file, and name that$/,
  );
  assert.deepEqual(await problemsOf(`# ${'x'.repeat(1_048_576)}\n${ONE}`), [
    'config.yaml: is larger than 1 MiB; is it a config? One in JSON may have 32 MiB',
  ]);
  assert.deepEqual(await problemsOf(Buffer.from([0x61, 0xff])), [
    'config.yaml: is not UTF-8 text; save it in that encoding',
  ]);
});

// SEC-37 N-28
test('sampling is off by default for URLs on other machines, and can be set', async () => {
  const { config } = await loadText(
    'mcpServers: {a: {command: x}, b: {url: "http://127.0.0.1/mcp"}, c: {url: "http://[::1]/mcp"}, d: {url: "http://server/mcp"}, ' +
      'e: {url: "https://x/mcp", clientFeatures: [sampling]}, f: {command: x, clientFeatures: []}}',
  );
  const all = ['elicitation', 'roots', 'sampling'];
  assert.deepEqual(
    config.upstreams.map(({ clientFeatures }) => clientFeatures),
    [all, all, all, ['elicitation', 'roots'], ['sampling'], []],
  );
});

// N-28
test('sampling and roots of a shared upstream are a warning', async () => {
  const text = [
    'mcpServers:',
    '  asks: {command: x, isolation: shared, clientFeatures: [roots], samplingBudget: 5}',
    '  pages: {command: x, isolation: shared, clientFeatures: [elicitation], elicitationHosts: [a.example]}',
    '  alone: {command: x, clientFeatures: [sampling], samplingBudget: 5}',
  ].join('\n');
  const { warnings } = await loadText(text);
  assert.deepEqual(
    warnings.map((line) => line.replace(/^.*mcpServers\.|:.*$/g, '')),
    ['asks.clientFeatures', 'asks.samplingBudget'],
  );
});

test('a wrong client feature is met with the names there are', async () => {
  for (const value of ['[samples]', 'sampling', '{sampling: true}']) {
    const problems = await problemsOf(`mcpServers: {b: {command: x, clientFeatures: ${value}}}`);
    assert.match(problems.join('\n'), /mcpServers\.b\.clientFeatures.*"elicitation", "roots", "sampling"/, value);
  }
});

// SEC-38
test('hosts of elicitations are names, in lower case', async () => {
  const { config } = await loadText(
    'mcpServers: {b: {command: x, elicitationHosts: [Login.Example.com, "*.example.org"]}}',
  );
  assert.deepEqual(config.upstreams[0]?.elicitationHosts, ['login.example.com', '*.example.org']);
  for (const value of [
    '["https://a.example"]',
    '["*"]',
    '["a.*.example"]',
    '["a.example:443"]',
    '["a/b"]',
    '[""]',
    'a',
  ]) {
    const problems = await problemsOf(`mcpServers: {b: {command: x, elicitationHosts: ${value}}}`);
    assert.match(
      problems.join('\n'),
      /mcpServers\.b\.elicitationHosts.*expected a (?:host such as|list of hosts)/,
      value,
    );
  }
});

const WRAPPING_KEY = randomBytes(32);
test('workers do not go together with Redis', async () => {
  const file = (own: string) => `${ONE}gateway: {workers: 2, ${own}}`;
  const redis = `redis: {url: "redis://h", wrappingKeys: ["${WRAPPING_KEY.toString('base64')}"]}`;
  assert.match((await problemsOf(file(redis))).join(), /gateway\.workers: needs a gateway without gateway\.redis/);
  assert.match((await problemsOf(file('workers: 0').replace('workers: 2, ', ''))).join(), /gateway\.workers/);
});

const redisText = (redis: string) => `${ONE}gateway: {redis: {${redis}}}`;

test('a total without room for the largest message of a principal is a warning', async () => {
  const warningsOf = async (own: string) => (await loadText(`${ONE}gateway: {${own}}`)).warnings;
  for (const fine of ['limits: {bodyTotal: 8MiB, unsentTotal: 32MiB}', 'limits: {body: 1GiB, message: 1GiB}'])
    assert.deepEqual(await warningsOf(fine), []);
  const warnings = await warningsOf('workers: 4, limits: {bodyTotal: 31MiB, unsentTotal: 64MiB}');
  assert.equal(warnings.length, 2);
  assert.match(
    warnings[0] ?? '',
    /limits\.bodyTotal: one principal may use 3968KiB of it, less than body; larger requests are refused; set at least 32MiB$/,
  );
  assert.match(
    warnings[1] ?? '',
    /limits\.unsentTotal: one principal may use 8MiB of it, less than message; .* at least 128MiB$/,
  );
});

test('fewer processes than workers are refused, and none are not', async () => {
  const file = (processes: number) => `${ONE}gateway: {workers: 3, limits: {processes: ${processes}}}`;
  for (const allowed of [0, 3, 128]) assert.deepEqual(await problemsOf(file(allowed)), []);
  assert.match(
    (await problemsOf(file(2))).join(),
    /gateway\.limits\.processes: is shared by 3 workers, and some of them would get none; set at least 3, or 0$/,
  );
});

// REL-33
test('a memory of the gateway that leaves a worker too little is refused', async () => {
  const file = (workers: number) => `${ONE}gateway: {workers: ${workers}, overload: {memory: 128MiB}}`;
  assert.deepEqual(await problemsOf(file(2)), []);
  assert.match(
    (await problemsOf(file(3))).join(),
    /gateway\.overload\.memory: is shared by 3 workers, each of which needs 64MiB; set at least 192MiB$/,
  );
});

test('without gateway.redis there is none', async () => assert.equal((await loadText(ONE)).config.redis, undefined));

test('gateway.redis needs a URL and a key, and has defaults for the rest', async () => {
  const { config } = await loadText(
    redisText(`url: "redis://u:p@h:1/2", wrappingKeys: ["${WRAPPING_KEY.toString('base64')}"]`),
  );
  assert.deepEqual(config.redis, {
    target: {
      kind: 'single',
      tls: false,
      nodes: [{ host: 'h', port: 1 }],
      master: '',
      username: 'u',
      password: 'p',
      database: 2,
    },
    caFile: undefined,
    prefix: 'linkspan',
    wrappingKeys: [WRAPPING_KEY.toString('base64url')],
    internal: undefined,
    advertise: undefined,
    events: false,
  });
  assert.match((await problemsOf(redisText('url: "redis://h"'))).join('\n'), /gateway\.redis\.wrappingKeys: missing/);
  assert.match((await problemsOf(redisText('wrappingKeys: []'))).join('\n'), /gateway\.redis\.url: missing/);
});

for (const [own, problem] of [
  [
    'url: "redis://h", advertise: "10.0.0.7:3002"',
    /:2:\d+ gateway\.redis\.advertise: needs "internal", the address that/,
  ],
  ['url: "redis://h", caFile: ca.pem', /:2:\d+ gateway\.redis\.caFile: the URL is not rediss, .*write rediss:\/\/$/],
  ['url: "redis://h", internal: "0.0.0.0:3002", advertise: "10.0.0.7:3002"', undefined],
  ['url: "rediss://h", caFile: ca.pem', undefined],
] as const) {
  // N-12
  test(`gateway.redis is ${problem === undefined ? 'accepted' : 'refused'} with ${shortened(own, 45)}`, async () => {
    const [line, ...others] = await problemsOf(
      redisText(`${own}, wrappingKeys: ["${WRAPPING_KEY.toString('base64')}"]`),
    );
    if (problem === undefined) assert.equal(line, undefined);
    else assert.match(line ?? '', problem);
    assert.deepEqual(others, []);
  });
}

// SEC-14
test('a wrapping key that is short or not random is refused, and not shown', async () => {
  for (const key of ['secret', 'change-me', WRAPPING_KEY.toString('base64').slice(4), 'A'.repeat(43)]) {
    const problems = (await problemsOf(redisText(`url: "redis://h", wrappingKeys: ["${key}"]`))).join('\n');
    assert.match(problems, /gateway\.redis\.wrappingKeys\.?\[?0\]?.*openssl rand -base64 32/);
    assert.ok(!problems.includes(key), problems);
  }
});

test('no setting shows a wrapping key or the password of Redis', async () => {
  const key = WRAPPING_KEY.toString('base64');
  for (const host of ['h:1', 'h:1,i:2/main']) {
    const kind = host.includes(',') ? '+sentinel' : '';
    const { settings } = await loadText(redisText(`url: "redis${kind}://u:canary@${host}", wrappingKeys: ["${key}"]`));
    const shown = JSON.stringify(settings());
    assert.ok(!shown.includes(key) && !shown.includes('canary'), shown);
  }
});

test('gateway.tracing and variables of OpenTelemetry decide what is traced', async () => {
  const cases = [
    { tracing: undefined, env: {}, expected: undefined },
    { tracing: '{}', env: {}, expected: { endpoint: undefined, sampling: undefined } },
    {
      tracing: '{endpoint: "http://collector:4318", sampling: 0.1}',
      env: {},
      expected: { endpoint: 'http://collector:4318/v1/traces', sampling: 0.1 },
    },
    {
      tracing: '{endpoint: "https://traces.example.com/a/path?x=1"}',
      env: { OTEL_EXPORTER_OTLP_ENDPOINT: 'http://other:4318' },
      expected: { endpoint: 'https://traces.example.com/a/path?x=1', sampling: undefined },
    },
    {
      tracing: undefined,
      env: { OTEL_EXPORTER_OTLP_ENDPOINT: 'http://collector:4318' },
      expected: { endpoint: undefined, sampling: undefined },
    },
    {
      tracing: undefined,
      env: { OTEL_EXPORTER_OTLP_TRACES_ENDPOINT: 'http://collector:4318/v1/traces' },
      expected: { endpoint: undefined, sampling: undefined },
    },
    { tracing: undefined, env: { OTEL_EXPORTER_OTLP_ENDPOINT: '' }, expected: undefined },
    { tracing: '{enabled: false}', env: { OTEL_EXPORTER_OTLP_ENDPOINT: 'http://collector:4318' }, expected: undefined },
    {
      tracing: undefined,
      env: { OTEL_EXPORTER_OTLP_ENDPOINT: 'http://collector:4318', OTEL_TRACES_EXPORTER: 'none' },
      expected: undefined,
    },
    { tracing: '{}', env: { OTEL_SDK_DISABLED: 'true' }, expected: undefined },
  ];
  for (const { tracing, env, expected } of cases) {
    const text = tracing === undefined ? ONE : `${ONE}gateway: {tracing: ${tracing}}\n`;
    assert.deepEqual((await loadText(text, { env })).config.tracing, expected, `${tracing} ${JSON.stringify(env)}`);
  }
});

test('an endpoint of traces with credentials or without http is refused, not shown', async () => {
  for (const endpoint of ['http://ann:secret@collector:4318', 'grpc://secret:4317', 'secret']) {
    await assert.rejects(loadText(`${ONE}gateway: {tracing: {endpoint: "${endpoint}"}}\n`), (thrown) => {
      assert.ok(thrown instanceof Error);
      assert.match(thrown.message, /tracing\.endpoint: .*OTEL_EXPORTER_OTLP_HEADERS/);
      assert.doesNotMatch(thrown.message, /secret/);
      return true;
    });
  }
});

const AUDIT = (own: string): string => `gateway: {audit: {${own}}}\nmcpServers: {}\n`;

test('an audit log has a file beside the config, and keys in one spelling', async () => {
  const key = randomBytes(32);
  const { audit } = (
    await loadText(AUDIT(`file: logs/audit.log, required: true, chainKeys: ['${key.toString('base64')}']`))
  ).config;
  assert.match(audit?.file ?? '', /^\/.*\/linkspan-config-[^/]+\/logs\/audit\.log$/);
  assert.deepEqual(audit?.keys, [key.toString('base64url')]);
  assert.deepEqual(
    [audit?.required, audit?.sync, audit?.arguments, audit?.maxBytes],
    [true, 'second', 'digest', 64 << 20],
  );
  assert.equal((await loadText(AUDIT('stdout: true'))).config.audit?.file, undefined);
  const large = (await loadText(AUDIT('file: a, queue: 64KiB, recordSize: 64KiB'))).config.audit;
  assert.equal(large?.recordBytes, large?.queueBytes);
});

test('an audit log goes to a receiver of OTLP logs, with a path for them', async () => {
  const endpoints: unknown[] = [];
  for (const url of ['http://c:4318', 'https://c/', 'https://c/in/v1/logs?a=b']) {
    const { config } = await loadText(AUDIT(`otlp: {endpoint: "${url}", headers: {A: b}}`));
    endpoints.push(config.audit?.otlp);
  }
  assert.deepEqual(endpoints, [
    { endpoint: 'http://c:4318/v1/logs', headers: { A: 'b' } },
    { endpoint: 'https://c/v1/logs', headers: { A: 'b' } },
    { endpoint: 'https://c/in/v1/logs?a=b', headers: { A: 'b' } },
  ]);
});

for (const [own, problem] of [
  ['required: true', /expected one of "file", "stdout: true" and "otlp"/],
  ['file: a, stdout: true', /expected one of "file", "stdout: true" and "otlp"/],
  ['file: a, otlp: {endpoint: "http://c:4318"}', /expected one of "file", "stdout: true" and "otlp"/],
  ['otlp: {}', /gateway\.audit\.otlp\.endpoint: missing; expected an http:\/\/ or https:\/\/ URL/],
  ['otlp: {endpoint: "http://me:change-me@c"}', /URL without a user name; put credentials into "headers"/],
  [
    'otlp: {endpoint: "http://c", headers: {"a b": change-me}}',
    /headers\["a …"\]: cannot name a header; write NAME: value$/,
  ],
  ['otlp: {endpoint: "http://c", headers: {Content-Type: x}}', /the gateway sets this header itself/],
  ['otlp: {endpoint: "http://c", headers: {a: "change-me\\n"}}', /expected text that a header can carry/],
  ['otlp: {endpoint: "http://c", tls: {}}', /gateway\.audit\.otlp: "tls" is for an https URL/],
  ['file: a, sync: often', /gateway\.audit\.sync: expected one of "write", "second", "never"/],
  [
    'file: a, queue: 64KiB, recordSize: 65KiB',
    /gateway\.audit\.recordSize: expected at most the size of "queue", got "65KiB"$/,
  ],
  ['file: a, chainKeys: [change-me]', /gateway\.audit\.chainKeys\[0\]: expected 32 random bytes in base64/],
] as const) {
  test(`an audit log is refused with: ${shortened(own, 40)}`, async () => {
    const problems = (await problemsOf(AUDIT(own))).join('\n');
    assert.match(problems, problem);
    assert.doesNotMatch(problems, /change-me/);
  });
}

const RATES = (own: string): string =>
  `gateway: {profiles: {ours: {}}, rates: [${own}]}\nmcpServers: {My Files: {command: x}}\n`;

for (const [entry, problem] of [
  ['prefix: 5', 'prefix: expected at most 40 of letters, digits, "_" and "-", got 5'],
  ['env_vars: [5]', 'env_vars[0]: expected a name, or a map with name, got 5'],
  ['connectionTimeout: -1', 'connectionTimeout: expected a number of milliseconds, got -1'],
] as const) {
  test(`a wrong value is met with what is expected: ${entry}`, async () => {
    const [found] = await problemsOf(`mcpServers: {a: {command: x, ${entry}}}\n`);
    assert.ok(found?.endsWith(` mcpServers.a.${problem}`), found);
  });
}

test('a missing map is met with what is expected', async () => {
  const found = (await problemsOf(RATES('{name: a, limit: 1, window: 1m}'))).join('\n');
  assert.match(found, /gateway\.rates\[0\]\.to: missing; expected a map$/);
});

test('a rate names upstreams by id or key, and endpoints by path', async () => {
  const { rates, repeats } = (
    await loadText(
      RATES(
        '{name: a, to: {keys: [first]}, upstreams: [My Files], endpoints: [/mcp, /mcp/ours, /mcp/my-files], limit: 1, window: 1m}',
      ),
    )
  ).config;
  const [rate] = rates;
  assert.deepEqual([rate?.upstreams, rate?.endpoints], [['my-files'], ['', 'ours', 'my-files']]);
  assert.deepEqual(
    [rate?.to.keys, rate?.to.anyone, rate?.per, rate?.windowMs],
    [['first'], false, 'principal', 60_000],
  );
  assert.equal(repeats, undefined);
});

for (const [own, problem] of [
  ['{name: a, to: {}, limit: 1, window: 1m}', /rates\[0\]\.to: names no principals; for all, write anyone: true/],
  ['{name: a, to: {anyone: true, keys: [k]}, limit: 1, window: 1m}', /is for anyone, so it names no principals/],
  ['{name: a, to: {anyone: true}, upstreams: [file], limit: 1, window: 1m}', /upstreams\[0\]: no such upstream/],
  [
    '{name: a, to: {anyone: true}, endpoints: [/mcp/our], limit: 1, window: 1m}',
    /endpoints\[0\]: no such endpoint \(did you mean "\/mcp\/ours"/,
  ],
  ['{name: a, to: {anyone: true}, limit: 1, window: 1500ms}', /window: expected whole seconds/],
  ['{name: a, to: {anyone: true}, limit: 0, window: 1m}', /limit: expected a whole number from 1/],
  [
    '{name: a, to: {anyone: true}, limit: 1, window: 1m}, {name: a, to: {anyone: true}, limit: 1, window: 1m}',
    /rates\[1\]\.name: another rate has this name/,
  ],
] as const) {
  test(`a rate is refused for: ${shortened(problem.source, 50)}`, async () =>
    assert.match((await problemsOf(RATES(own))).join('\n'), problem));
}
