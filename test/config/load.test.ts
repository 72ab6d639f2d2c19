import assert from 'node:assert/strict';
import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { test } from 'node:test';
import { fileURLToPath } from 'node:url';

import { loadConfig } from '../../src/config/load.ts';
import { loadText, problemsOf } from '../support/config-file.ts';

const ONE = 'mcpServers: {a: {url: https://example.com}}\n';
const KEY = 'auth: {apiKeys: [{name: ci, sha256: ' + 'a'.repeat(64) + '}]}';

test('a file with only upstreams gets safe defaults', () => {
  const { config, warnings } = loadText(ONE, { env: { HOME: '/home/me' } });
  const { file, stateDir, upstreams, ...rest } = config;
  assert.equal(upstreams.length, 1);
  assert.match(stateDir, /^\/home\/me\/\.local\/state\/linkspan\/[0-9a-f]{12}$/);
  assert.match(file, /^\/.*\/config\.yaml$/);
  assert.deepEqual(warnings, []);
  assert.deepEqual(rest, {
    listen: { host: '127.0.0.1', port: 3000 },
    operator: { host: '127.0.0.1', port: 3001 },
    operatorMayMove: true,
    publicUrl: undefined,
    allowedHosts: [],
    allowedOrigins: [],
    auth: { jwt: [], apiKeys: [] },
    operatorKeys: [],
    limits: {
      bodyBytes: 4_194_304,
      messageBytes: 16_777_216,
      processes: 128,
      sessionsPerPrincipal: 1_000,
      parkedPerPrincipal: 256,
      parkedPerUpstream: 1_024,
      inFlightPerSession: 256,
      streamsPerPrincipal: 1_000,
      bodyTotalBytes: undefined,
      unsentTotalBytes: undefined,
    },
    sessions: {
      idleMs: 1_800_000,
      maxAgeMs: 2_592_000_000,
      parkMs: 600_000,
      keepAliveMs: 15_000,
      eventLimit: 1_000,
      eventLimitBytes: 8_388_608,
      eventTotalBytes: undefined,
    },
    legacySse: true,
    logLevel: 'info',
    accessLog: 'auto',
    tracing: undefined,
    names: { maxChars: 48 },
    instructions: { maxChars: 4_000 },
    lists: { waitMs: 8_000 },
    reload: { watch: true, drainMs: 60_000 },
    profiles: [],
  });
});

test('a loaded config is deeply frozen', () => {
  const { config } = loadText(`${ONE}gateway: {profiles: {p: {renames: {x: y}}}}\n`);
  const walk = (value: unknown): void => {
    if (typeof value !== 'object' || value === null) return;
    assert.ok(Object.isFrozen(value));
    Object.values(value).forEach(walk);
  };
  walk(config);
});

test('upstreams keep the order of the file, whatever their names', () => {
  const { config } = loadText('mcpServers: {zed: {url: "http://a"}, 2: {url: "http://b"}, 1: {url: "http://c"}}');
  assert.deepEqual(
    config.upstreams.map(({ id, title }) => [id, title]),
    [
      ['zed', 'zed'],
      ['s2', '2'],
      ['s1', '1'],
    ],
  );
});

test('an unset variable fails only its upstream, with its name and position', () => {
  const text = [
    'mcpServers:',
    '  github:',
    '    url: https://example.com/mcp',
    '    headers:',
    '      Authorization: Bearer ${GITHUB_PAT}',
    '  files: {command: npx, args: ["${ROOT:-/data}"]}',
    '  local: {command: "${BIN}", timeouts: {call: "${WAIT}"}, env: {A: "${KEY:?ask the team}"}}',
  ].join('\n');
  const [github, files, local] = loadText(text, { env: { OTHER: 'x' } }).config.upstreams;
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

test('an unset variable named by a client’s key fails only its upstream', () => {
  const text = [
    'mcpServers:',
    '  a: {url: "https://x", bearer_token_env_var: TOKEN}',
    '  b: {url: "https://x", env_http_headers: {X-User: WHO}}',
    '  c: {command: x, env_vars: [WHO], envFile: none.env}',
    '  d: {url: "https://x"}',
  ].join('\n');
  assert.deepEqual(
    loadText(text).config.upstreams.map(({ problem }) => problem),
    [
      'environment variable TOKEN is not set (config.yaml:2:47, mcpServers.a.bearer_token_env_var)',
      'environment variable WHO is not set (config.yaml:3:43, mcpServers.b.env_http_headers)',
      'the file cannot be read, ENOENT (config.yaml:4:45, mcpServers.c.envFile); environment variable WHO is not set (config.yaml:4:29, mcpServers.c.env_vars)',
      undefined,
    ],
  );
});

test('a disabled upstream is left out, and its variables need not be set', () => {
  const text = 'mcpServers: {a: {disabled: true, url: "${X}"}, b: {enabled: false, command: x}, c: {command: x}}';
  assert.deepEqual(
    loadText(text).config.upstreams.map(({ id }) => id),
    ['c'],
  );
});

test('a variable may hold a number, a boolean or an address', () => {
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
  const { config } = loadText(text, { env });
  assert.deepEqual(config.listen, { host: '127.0.0.1', port: 4_000 });
  assert.equal(config.operator, undefined);
  assert.equal(config.limits.processes, 7);
  assert.equal(config.logLevel, 'debug');
  const [upstream] = config.upstreams;
  assert.deepEqual([upstream?.concurrency, upstream?.required, upstream?.timeouts.callMs], [7, true, 9_000]);
});

test('a variable whose text looks like YAML stays one text', () => {
  const env = { EVIL: 'x"\n  disabled: true\n#', NUMBER: '0123' };
  const { config } = loadText('mcpServers: {a: {command: x, env: {A: "${EVIL}", B: "${NUMBER}"}}}', { env });
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
    const [a, b] = loadConfig(file, { env: {} }).config.upstreams;
    assert.deepEqual(a?.target, { kind: 'http', url: 'https://x', headers: { A: 's3cret', B: 's3cret' } });
    assert.equal(b?.problem, 'the file of "${file:gone}" cannot be read (c.yaml:1:142, mcpServers.b.headers.A)');
  } finally {
    await rm(dir, { recursive: true });
  }
});

test('no problem or warning holds the value of a variable', () => {
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
    const problems = problemsOf(text, { env });
    assert.notEqual(problems.length, 0, text);
    assert.doesNotMatch(problems.join('\n'), /hunter/, text);
  }
});

test('a prefix is used as written; with an empty one, URIs stay unchanged', () => {
  const text =
    'mcpServers: {Git Hub: {url: "https://x"}, b: {url: "https://x", prefix: ""}, c: {url: "https://x", prefix: c_}}';
  assert.deepEqual(
    loadText(text).config.upstreams.map(({ id, title, prefix, rawUris }) => [id, title, prefix, rawUris]),
    [
      ['git-hub', 'Git Hub', 'git-hub__', false],
      ['b', 'b', '', true],
      ['c', 'c', 'c_', false],
    ],
  );
});

test('timeouts.max follows timeouts.call, and a shorter one is an error', () => {
  const { config } = loadText('mcpServers: {a: {url: "https://x", timeouts: {call: 1h}}}');
  assert.equal(config.upstreams[0]?.timeouts.maxMs, 3_600_000);
  assert.deepEqual(problemsOf('mcpServers: {a: {url: "https://x", timeouts: {call: 1h, max: 1m}}}'), [
    'config.yaml:1:57 mcpServers.a.timeouts.max: is shorter than timeouts.call',
  ]);
});

test('paths are relative to the file, and ~ is the home', () => {
  const text = 'mcpServers: {a: {command: ~/bin/x, cwd: sub}}\ngateway: {stateDir: ~/state}\n';
  const { config } = loadText(text, { env: { HOME: '/home/me' } });
  assert.equal(config.stateDir, '/home/me/state');
  const target = config.upstreams[0]?.target;
  assert.ok(target?.kind === 'stdio');
  assert.equal(target.command, '/home/me/bin/x');
  assert.equal(target.cwd, config.file.replace('config.yaml', 'sub'));
});

test('the default state directory follows XDG_STATE_HOME and differs from file to file', () => {
  const env = { HOME: '/home/me', XDG_STATE_HOME: '/state' };
  const first = loadText(ONE, { env }).config.stateDir;
  assert.match(first, /^\/state\/linkspan\/[0-9a-f]{12}$/);
  assert.notEqual(loadText(ONE, { env }).config.stateDir, first);
});

test('profiles select by id or key, keep their order, and omit disabled upstreams', () => {
  const text = [
    'mcpServers: {A B: {url: "https://x"}, c: {url: "https://x"}, off: {command: x, disabled: true}}',
    'gateway:',
    '  profiles:',
    '    all: {}',
    '    some: {upstreams: [c, A B, off], includeTools: ["*"], excludeTools: [x], renames: {c__x: x}}',
  ].join('\n');
  const { config, warnings } = loadText(text);
  assert.deepEqual(config.profiles, [
    { id: 'all', upstreams: ['a-b', 'c'], includeTools: undefined, excludeTools: [], renames: {} },
    { id: 'some', upstreams: ['c', 'a-b'], includeTools: ['*'], excludeTools: ['x'], renames: { c__x: 'x' } },
  ]);
  assert.match(warnings.join('\n'), /profiles\.some\.upstreams\[2\]: is left out, so the profile goes without it$/);
});

const safety = [
  { gateway: 'listen: 0.0.0.0:3000', refused: /config\.yaml:2:19 gateway\.listen: 0\.0\.0\.0 is open to the network/ },
  { gateway: 'listen: "[::]:3000"', refused: /gateway\.listen: :: is open to the network/ },
  { gateway: 'listen: gateway.internal:3000', refused: /configure gateway\.auth, or listen on 127\.0\.0\.1/ },
  { gateway: `listen: 0.0.0.0:3000, ${KEY}`, refused: undefined },
  { gateway: 'listen: localhost:3000', refused: undefined },
  { gateway: 'listen: "[::1]:3000"', refused: undefined },
  { gateway: 'listen: 127.9.9.9:3000', refused: undefined },
  { gateway: 'operator: 127.0.0.1:3000', refused: /gateway\.operator: is the address of listen/ },
  { gateway: 'listen: 127.0.0.1:0, operator: 127.0.0.1:0', refused: undefined },
  {
    gateway: 'listen: 0.0.0.0:3000, auth: {apiKeys: [{name: a, key: hunter2}]}',
    refused:
      /apiKeys\[0\]\.key: keys are not kept in plain text; write sha256 instead, made with: printf %s "\$KEY" \| sha256sum/,
  },
  {
    gateway: 'auth: {apiKeys: [{name: a, sha256: e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855}]}',
    refused: /this is the hash of an empty key/,
  },
  {
    gateway: 'auth: {jwt: [{issuer: i, jwksUrl: "http://idp.example.com/jwks"}]}',
    refused: /expected an https:\/\/ URL \(http:\/\/ only to this machine\)/,
  },
  { gateway: 'auth: {jwt: [{issuer: i, jwksUrl: "http://127.0.0.1:9/jwks"}]}', refused: undefined },
  {
    gateway: 'auth: {jwt: [{issuer: i, jwksUrl: "https://x", algorithms: [none]}]}',
    refused: /expected one of "RS256"/,
  },
  { gateway: 'auth: {jwt: [{issuer: i, jwksUrl: "https://x", algorithms: []}]}', refused: /expected at least one/ },
  { gateway: 'allowedOrigins: ["*"]', refused: /expected scheme, host and port alone/ },
  { gateway: 'allowedOrigins: ["https://a.example.com/path"]', refused: /expected scheme, host and port alone/ },
];

for (const { gateway, refused } of safety) {
  test(`SEC-14 {${gateway.replace(/a{64}/, '…')}} is ${refused === undefined ? 'accepted' : 'refused'}`, () => {
    const problems = problemsOf(`${ONE}gateway: {${gateway}}\n`).join('\n');
    if (refused === undefined) assert.equal(problems, '');
    else assert.match(problems, refused);
  });
}

test('SEC-14 --listen overrides the file, and needs authentication beyond loopback', () => {
  assert.match(
    problemsOf(ONE, { listen: '0.0.0.0:80' }).join('\n'),
    /^--listen: 0\.0\.0\.0 is open to the network without authentication/,
  );
  assert.deepEqual(problemsOf(ONE, { listen: '8080' }), [
    '--listen: expected host:port such as "127.0.0.1:3000", got "8080" (did you mean "127.0.0.1:8080"?)',
  ]);
  const open = `${ONE}gateway: {listen: 0.0.0.0:3000}\n`;
  assert.deepEqual(loadText(open, { listen: '127.0.0.1:9' }).config.listen, { host: '127.0.0.1', port: 9 });
  const { warnings } = loadText(`${ONE}gateway: {${KEY}, operator: 0.0.0.0:1}\n`, { listen: '[::]:80' });
  assert.match(warnings.join('\n'), /without publicUrl or allowedHosts.*\n.*need no key/);
});

test('public names are normalised', () => {
  const { config } = loadText(
    `${ONE}gateway: {publicUrl: "HTTPS://MCP.Example.com:443/", allowedHosts: [A.Example.com], allowedOrigins: ["https://B.example.com"]}`,
  );
  assert.equal(config.publicUrl, 'https://mcp.example.com');
  assert.deepEqual(config.allowedHosts, ['a.example.com']);
  assert.deepEqual(config.allowedOrigins, ['https://b.example.com']);
});

test('a file that is missing, too large, a folder or not text is refused', () => {
  const folder = fileURLToPath(new URL('.', import.meta.url));
  assert.throws(() => loadConfig('no/such.yaml', { env: {} }), { message: 'no/such.yaml: no such file' });
  assert.throws(() => loadConfig(folder, { env: {} }), /: cannot be read \(EISDIR\)$/);
  assert.deepEqual(problemsOf(`# ${'x'.repeat(1_048_576)}\n${ONE}`), ['config.yaml: is larger than 1 MiB']);
  assert.deepEqual(problemsOf(Buffer.from([0x61, 0xff])), ['config.yaml: is not UTF-8 text']);
});

test('N-28 sampling is off by default for URLs on other machines, and can be set', () => {
  const { config } = loadText(
    'mcpServers: {a: {command: x}, b: {url: "http://127.0.0.1/mcp"}, c: {url: "http://[::1]/mcp"}, d: {url: "http://server/mcp"}, ' +
      'e: {url: "https://x/mcp", clientFeatures: [sampling]}, f: {command: x, clientFeatures: []}}',
  );
  const all = ['elicitation', 'roots', 'sampling'];
  assert.deepEqual(
    config.upstreams.map(({ clientFeatures }) => clientFeatures),
    [all, all, all, ['elicitation', 'roots'], ['sampling'], []],
  );
});

test('N-28 a wrong client feature is met with the names there are', () => {
  for (const value of ['[samples]', 'sampling', '{sampling: true}']) {
    const problems = problemsOf(`mcpServers: {b: {command: x, clientFeatures: ${value}}}`);
    assert.match(problems.join('\n'), /mcpServers\.b\.clientFeatures.*"elicitation", "roots", "sampling"/, value);
  }
});

test('gateway.tracing and the variables of OpenTelemetry decide whether requests are traced', () => {
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
    assert.deepEqual(loadText(text, { env }).config.tracing, expected, `${tracing} ${JSON.stringify(env)}`);
  }
});

test('an endpoint of traces with credentials or without http is refused, and is not shown', () => {
  for (const endpoint of ['http://ann:secret@collector:4318', 'grpc://secret:4317', 'secret']) {
    assert.throws(
      () => loadText(`${ONE}gateway: {tracing: {endpoint: "${endpoint}"}}\n`),
      (thrown) => {
        assert.ok(thrown instanceof Error);
        assert.match(thrown.message, /tracing\.endpoint: .*OTEL_EXPORTER_OTLP_HEADERS/);
        assert.doesNotMatch(thrown.message, /secret/);
        return true;
      },
    );
  }
});
