import assert from 'node:assert/strict';
import { readFile } from 'node:fs/promises';
import { test } from 'node:test';

import * as fc from '../../support/fast-check.ts';

import { z } from 'zod';

import { gatewaySchema } from '../../../src/config/schema/gateway-schema.ts';
import { upstreamSchema } from '../../../src/config/schema/upstream-schema.ts';
import { isRecord } from '../../../src/json/record.ts';
import { loadText, problemsOf } from '../../support/config-file.ts';
import { shortened } from '../../support/test-name.ts';

const FIXTURES = new URL('../../fixtures/config/', import.meta.url);

test('every problem of a config has line, column, key, expectation and suggestion', async () => {
  const text = await readFile(new URL('wrong.yaml', FIXTURES), 'utf8');
  const golden = await readFile(new URL('wrong.txt', FIXTURES), 'utf8');
  assert.deepEqual(await problemsOf(text), golden.trimEnd().split('\n'));
});

const URL_ENTRY = 'url: "https://x"';

const cases = [
  { text: '', problem: 'config.yaml:1:1: is empty; expected a map with "mcpServers"' },
  { text: '# nothing\n', problem: 'config.yaml:1:1: is empty; expected a map with "mcpServers"' },
  { text: '[]', problem: 'config.yaml:1:1: expected a map with "mcpServers"' },
  {
    text: 'gateway: {}\nmcpServer: {}\n',
    problem: 'config.yaml:2:1 mcpServer: unknown key (did you mean "mcpServers"?)',
  },
  {
    text: 'gateway:\n  mcpServers: {}\n',
    problem: 'config.yaml:2:3 gateway.mcpServers: belongs beside "gateway", not in it',
  },
  {
    text: 'mcpServers: {a: {command: x, env: {KEY=s3cret}}}\n',
    problem: 'config.yaml:1:30 mcpServers.a.env: "KEY=…" cannot name a variable; write NAME: value',
  },
  {
    text: 'gateway: {}\n',
    problem: 'config.yaml:1:1: expected the upstreams in a map under "mcpServers"',
  },
  {
    text: 'mcpServers: {}\ngatway: {listen: "127.0.0.1:1"}\n',
    problem: 'config.yaml:2:1 gatway: unknown key (did you mean "gateway"?)',
  },
  {
    text: 'mcpServers: {}\nlisten: "127.0.0.1:1"\n',
    problem: 'config.yaml:2:1 listen: belongs under "gateway", as gateway.listen',
  },
  {
    text: 'mcpServers: {}\nservers: {}\n',
    problem: 'config.yaml:2:1 servers: upstreams are under "mcpServers" already; keep one map',
  },
  { text: 'mcpServers: [a]\n', problem: 'config.yaml:1:13 mcpServers: expected a map from names to upstreams' },
  {
    text: 'mcpServers: {My Server: {url: "https://x"}, my-server: {url: "https://x"}}\n',
    problem:
      'config.yaml:1:45 mcpServers.my-server: has the id "my-server", as mcpServers["My Server"] has; rename one',
  },
  {
    text: `mcpServers: {a: {${URL_ENTRY}, serverUrl: "https://y"}}`,
    problem: 'config.yaml:1:36 mcpServers.a.serverUrl: says the same as "url"; keep one',
  },
  {
    text: 'mcpServers: {a: {command: x, cmd: y}}',
    problem: 'config.yaml:1:30 mcpServers.a.cmd: says the same as "command"; keep one',
  },
  {
    text: 'mcpServers: {a: {type: stdio, url: "https://x"}}',
    problem: 'config.yaml:1:18 mcpServers.a.type: type "stdio" needs "command"',
  },
  {
    text: 'mcpServers: {a: {url: "https://me:pw@x"}}',
    problem:
      'config.yaml:1:18 mcpServers.a.url: a URL with a password ends up in logs; write headers: {Authorization: …}',
  },
  {
    text: `mcpServers: {a: {${URL_ENTRY}, headers: {"a b": c}}}`,
    problem: 'config.yaml:1:46 mcpServers.a.headers["a …"]: cannot name a header; write NAME: value',
  },
  {
    text: `mcpServers: {a: {${URL_ENTRY}, headers: {X-Key:s3cret}}}`,
    problem: 'config.yaml:1:46 mcpServers.a.headers["X-Key:…"]: cannot name a header; write NAME: value',
  },
  {
    text: `mcpServers: {a: {${URL_ENTRY}, env_http_headers: {"A: s3cret": ""}}}`,
    problem: 'config.yaml:1:55 mcpServers.a.env_http_headers["A:…"]: cannot name a header; write NAME: value',
  },
  {
    text: `mcpServers: {a: {${URL_ENTRY}}}\ngateway: {audit: {otlp: {endpoint: "https://x", headers: {"A: s3cret"}}}}`,
    problem: 'config.yaml:2:59 gateway.audit.otlp.headers["A:…"]: cannot name a header; write NAME: value',
  },
  {
    text: `mcpServers: {a: {${URL_ENTRY}}}\ngateway: {reload: {"watch=s3cret"}}`,
    problem: 'config.yaml:2:20 gateway.reload["watch=…"]: unknown key; known are watch, drain',
  },
  {
    text: 'mcpServers: {a: {command: x, env: {TOKEN:s3cret}}}',
    problem: 'config.yaml:1:30 mcpServers.a.env: "TOKEN:…" cannot name a variable; write NAME: value',
  },
  {
    text: 'mcpServers: {a: {command: x, env: {"a=b": c}}}',
    problem: 'config.yaml:1:30 mcpServers.a.env: "a=…" cannot name a variable; write NAME: value',
  },
  {
    text: 'mcpServers: {a: {command: x, env: {PIN: [1234]}}}',
    problem: 'config.yaml:1:41 mcpServers.a.env.PIN: expected text, got a list',
  },
  {
    text: 'mcpServers: {a: {command: " "}}',
    problem: 'config.yaml:1:18 mcpServers.a.command: expected a program',
  },
  { text: 'mcpServers: {a: {cmd: " "}}', problem: 'config.yaml:1:18 mcpServers.a.cmd: expected a program' },
  {
    text: `mcpServers: {a: {${URL_ENTRY}, bearer_token: abc}}`,
    problem:
      'config.yaml:1:36 mcpServers.a.bearer_token: tokens are not accepted here; write headers: {Authorization: "Bearer ${VARIABLE}"}',
  },
  {
    text: `mcpServers: {a: {${URL_ENTRY}, timeout: soon}}`,
    problem: 'config.yaml:1:45 mcpServers.a.timeout: expected a duration such as "30s", got "soon"',
  },
  {
    text: `mcpServers: {a: {${URL_ENTRY}, prefix: a.b}}`,
    problem: 'config.yaml:1:44 mcpServers.a.prefix: expected at most 40 of letters, digits, "_" and "-", got "a.b"',
  },
  {
    text: `mcpServers: {a: {${URL_ENTRY}}}\ngateway: {listn: x}\n`,
    problem: 'config.yaml:2:11 gateway.listn: unknown key (did you mean "listen"?)',
  },
  {
    text: `mcpServers: {a: {${URL_ENTRY}}}\ngateway: {port: 3000}\n`,
    problem: 'config.yaml:2:11 gateway.port: unknown key (did you mean "listen"?)',
  },
  {
    text: `mcpServers: {a: {${URL_ENTRY}}}\ngateway: {auth: {apiKeys: [s3cret]}}\n`,
    problem: 'config.yaml:2:28 gateway.auth.apiKeys[0]: expected a map with "name" and "sha256", got text',
  },
  {
    text: `mcpServers: {a: {${URL_ENTRY}}}\ngateway: {profiles: {dev: [a]}}\n`,
    problem: 'config.yaml:2:27 gateway.profiles.dev: expected a map such as {upstreams: [github]}, got a list',
  },
  {
    text: `mcpServers: {a: {${URL_ENTRY}}}\ngateway: {limits: {colour: x}}\n`,
    problem:
      'config.yaml:2:20 gateway.limits.colour: unknown key; known are body, message, processes, sessions, sessionsPerPrincipal, parkedPerPrincipal, parkedPerUpstream, inFlightPerSession, inFlightPerPrincipal, streamsPerPrincipal, bodyTotal, messageTotal, unsentTotal',
  },
  {
    text: `mcpServers: {a: {${URL_ENTRY}}}\ngateway: {profiles: {a: {}}}\n`,
    problem: 'config.yaml:2:22 gateway.profiles.a: /mcp/a is the endpoint of the upstream of that name; rename one',
  },
  {
    text: `mcpServers: {files: {${URL_ENTRY}}}\ngateway: {profiles: {p: {upstreams: [file]}}}\n`,
    problem: 'config.yaml:2:38 gateway.profiles.p.upstreams[0]: no such upstream (did you mean "files"?)',
  },
  {
    text: `mcpServers: {a: {${URL_ENTRY}}}\ngateway: {profiles: {p: {upstreams: [a, a]}}}\n`,
    problem: 'config.yaml:2:41 gateway.profiles.p.upstreams[1]: is in the list already',
  },
  {
    text: `mcpServers: {a: {${URL_ENTRY}}}\ngateway: {profiles: {p: {renames: {x: z, y: z}}}}\n`,
    problem: 'config.yaml:2:45 gateway.profiles.p.renames.y: another tool gets this name too',
  },
  {
    text: `mcpServers: {a: {${URL_ENTRY}}}\ngateway: {profiles: {p: {renames: {"": z}}}}\n`,
    problem: 'config.yaml:2:36 gateway.profiles.p.renames[""]: expected a map from tool names to tool names',
  },
  {
    text: `mcpServers: {a: {${URL_ENTRY}}}\ngateway: {rates: [{name: r, limit: 1, window: 1m, to: {claims: {"": [x]}}}]}\n`,
    problem: 'config.yaml:2:65 gateway.rates[0].to.claims[""]: expected values by the path of a claim',
  },
  {
    text: 'mcpServers: {a: {url: []}}',
    problem: 'config.yaml:1:23 mcpServers.a.url: expected a URL, got a list',
  },
  {
    text: `mcpServers: {a: {${URL_ENTRY}}}\ngateway: {trustedProxies: [""]}\n`,
    problem: 'config.yaml:2:28 gateway.trustedProxies[0]: expected a network such as "10.0.0.0/8", got ""',
  },
  {
    text: `mcpServers: {a: {${URL_ENTRY}}}\ngateway: {audit: {file: x, chainKeys: s3cret-of-mine}}\n`,
    problem: 'config.yaml:2:39 gateway.audit.chainKeys: expected a list of keys, got text',
  },
  {
    text: `mcpServers: {a: {${URL_ENTRY}}}\ngateway: {auth: {apiKeys: [{name: n, sha256: "\${HASH}"}]}}\n`,
    problem: 'config.yaml:2:46 gateway.auth.apiKeys[0].sha256: environment variable HASH is not set',
  },
];

for (const { text, problem } of cases) {
  test(shortened(problem, 75), async () => assert.deepEqual(await problemsOf(text), [problem]));
}

const SECRET = 'ghp_canary';

/** Returns the secret in the place of each map and list of a JSON Schema: one value for each place. */
function inPlaceOfMaps(schema: unknown): unknown[] {
  if (!isRecord(schema)) return [];
  const { type, anyOf, properties, items, additionalProperties: members } = schema;
  if (Array.isArray(anyOf)) {
    const values = anyOf.map(inPlaceOfMaps);
    const hasText = values.some((inForm) => !inForm.includes(SECRET));
    return values.flat().filter((value) => !hasText || value !== SECRET);
  }
  const inside = Object.entries(isRecord(properties) ? properties : {}).flatMap(([name, member]) =>
    inPlaceOfMaps(member).map((value) => ({ [name]: value })),
  );
  const inMap = inPlaceOfMaps(members).map((value) => ({ name: value }));
  const inList = inPlaceOfMaps(items).map((value) => [value]);
  return [...(type === 'object' || type === 'array' ? [SECRET] : []), ...inside, ...inMap, ...inList];
}

test('no message or setting shows a secret that stands in the place of a map or list', async () => {
  const places = (schema: z.ZodType) => {
    const { $defs, ...whole } = z.toJSONSchema(schema, { io: 'input' });
    return inPlaceOfMaps($defs?.['upstream'] ?? whole);
  };
  const upstreams = places(upstreamSchema).map((a) => ({ mcpServers: { a, b: { command: 'x' } } }));
  const gateways = places(gatewaySchema).map((gateway) => ({ mcpServers: { b: { command: 'x' } }, gateway }));
  assert.ok(upstreams.length > 25 && gateways.length > 90, `${upstreams.length} ${gateways.length}`);
  for (const config of [...upstreams, ...gateways]) {
    const text = JSON.stringify(config);
    const shown = await loadText(text, { name: 'linkspan.json' }).then(
      ({ problems, warnings, settings }) => JSON.stringify([problems, warnings, settings()]),
      (thrown: unknown) => String(thrown),
    );
    assert.ok(!shown.includes(SECRET), `${text}: ${shown.slice(0, 500)}`);
  }
});

test('no message shows a URL with a user name', async () => {
  for (const gateway of ['publicUrl: "https://me:pw@x"', 'allowedOrigins: ["https://me:pw@x"]']) {
    const [problem = ''] = await problemsOf(`mcpServers: {a: {command: x}}\ngateway: {${gateway}}\n`);
    assert.match(problem, /expected scheme, host and port alone, such as "[^"]*", got text$/);
  }
});

test('the same positions hold for JSON with comments', async () => {
  const text = '{\n  // c\n  "mcpServers": {"a": {"url": "https://x", "timeouts": {"call": 30}}},\n}';
  assert.deepEqual(await problemsOf(text, { name: 'mcp.json' }), [
    'mcp.json:3:65 mcpServers.a.timeouts.call: expected a duration such as "30s", got 30 (did you mean "30s"?)',
  ]);
});

test('a variable in shell syntax is passed unchanged, with a warning', async () => {
  const { warnings } = await loadText('mcpServers: {a: {url: "https://x", headers: {Authorization: Bearer $TOKEN}}}');
  assert.match(
    warnings.join(),
    /Authorization: "\$TOKEN" is passed on as it stands; for the environment variable write "\$\{TOKEN\}"/,
  );
});

test('two dollar signs in the file of another client become one, with a warning', async () => {
  const entry = (value: string) => `{"mcpServers": {"a": {"command": "x", "env": {"P": ${JSON.stringify(value)}}}}}`;
  const warningsOf = async (text: string, name: string) => (await loadText(text, { name })).warnings;
  const [warning, ...others] = await warningsOf(entry('pa$$word'), '.mcp.json');
  assert.deepEqual(others, []);
  assert.match(
    warning ?? '',
    /\.mcp\.json:1:52 mcpServers\.a\.env\.P: "\$\$" is passed on as "\$"; for two .* write "\$\$\$\$"/,
  );
  for (const value of ['pa$word', 'pa$$$$word']) assert.deepEqual(await warningsOf(entry(value), '.mcp.json'), []);
  assert.deepEqual(await warningsOf(entry('pa$$word'), 'linkspan.json'), []);
});

const TOKENS = [
  '{',
  '}',
  '[',
  ']',
  ':',
  ' ',
  '\n',
  '"',
  "'",
  '&a',
  '*a',
  '<<',
  '!',
  '${',
  '$',
  '#',
  '-',
  '0',
  'null',
  '\t',
  '|',
  ',',
];

for (const name of ['wrong.yaml', 'vscode.json', 'goose.yaml']) {
  test(`any change to ${name} loads, or is refused with a position in the file`, { timeout: 120_000 }, async () => {
    const text = await readFile(new URL(name, FIXTURES), 'utf8');
    const edit = fc.tuple(fc.nat(text.length), fc.nat(12), fc.constantFrom(...TOKENS, ''));
    await fc.assert(
      fc.asyncProperty(fc.array(edit, { minLength: 1, maxLength: 3 }), async (edits) => {
        let edited = text;
        for (const [at, length, token] of edits) edited = edited.slice(0, at) + token + edited.slice(at + length);
        for (const problem of await problemsOf(edited, { name })) {
          assert.match(problem, /^[a-z.]+:\d+:\d+[ :]/);
        }
      }),
      { numRuns: 200 },
    );
  });
}
