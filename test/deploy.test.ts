import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import { createHash, randomBytes } from 'node:crypto';
import { existsSync, globSync, readFileSync, statSync } from 'node:fs';
import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { test } from 'node:test';
import { fileURLToPath } from 'node:url';
import { Ajv } from 'ajv';
import { parse } from 'yaml';
import * as z from 'zod';
import { loadConfig } from '../src/config/load.ts';
import { ERRORS } from '../src/errors.ts';
import { createMetrics } from '../src/telemetry/metrics.ts';

const ROOT = fileURLToPath(new URL('..', import.meta.url));
const KEY_HASH = 'a'.repeat(64);

function read(file: string): string {
  return readFileSync(join(ROOT, file), 'utf8');
}

function rows(page: string): string[][] {
  const lines = page.split('\n').filter((line) => line.startsWith('|'));
  return lines.map((line) => line.split('|').map((cell) => cell.trim().replaceAll('`', '')));
}

const RULES = z
  .object({
    groups: z.array(
      z.object({
        rules: z.array(
          z.object({
            alert: z.string().optional(),
            record: z.string().optional(),
            expr: z.string(),
            labels: z.record(z.string(), z.string()).optional(),
            annotations: z.record(z.string(), z.string()).optional(),
          }),
        ),
      }),
    ),
  })
  .parse(parse(read('deploy/prometheus/rules.yml')))
  .groups.flatMap(({ rules }) => rules);
const ALERTS = RULES.filter(({ alert }) => alert !== undefined);

const DASHBOARD = z
  .object({
    uid: z.string(),
    panels: z.array(
      z.object({
        id: z.number(),
        type: z.string(),
        title: z.string(),
        description: z.string().optional(),
        gridPos: z.object({ x: z.number(), y: z.number(), w: z.number(), h: z.number() }),
        targets: z.array(z.object({ expr: z.string() })).default([]),
      }),
    ),
  })
  .parse(JSON.parse(read('deploy/grafana/dashboards/linkspan.json')));

/** Names of metrics in queries, without the endings of histograms. */
function metricNames(queries: readonly string[]): ReadonlySet<string> {
  const names = queries.flatMap((query) => query.match(/\b(?:linkspan|mcp|nodejs|process)_\w+/g) ?? []);
  const isLabel = (name: string): boolean => name === 'mcp_method_name' || name === 'mcp_protocol_version';
  return new Set(
    names.filter((name) => !isLabel(name)).map((name) => name.replace(/_seconds_(?:bucket|sum|count)$/, '_seconds')),
  );
}

test('rules and dashboard use only metrics and recordings that exist', async () => {
  const metrics = createMetrics('0');
  metrics.addProcess();
  const text = await metrics.text();
  const known = new Set([...text.matchAll(/^# TYPE (\S+) /gm)].map(([, name = '']) => name));
  const queries = [
    ...RULES.map(({ expr }) => expr),
    ...DASHBOARD.panels.flatMap(({ targets }) => targets.map(({ expr }) => expr)),
  ];
  assert.deepEqual(
    [...metricNames(queries)].filter((name) => !known.has(name)),
    [],
  );
  const recordings = new Set(RULES.flatMap(({ record }) => record ?? []));
  const used = queries.flatMap((query) => query.match(/\blinkspan:\w+:\w+/g) ?? []);
  assert.ok(used.length > 0);
  assert.deepEqual(
    used.filter((name) => !recordings.has(name)),
    [],
  );
});

test('docs/alerts.md lists every alert with its severity, in order, and no other', () => {
  const documented = rows(read('docs/alerts.md')).filter(([, name]) => name?.startsWith('Linkspan') === true);
  assert.deepEqual(
    documented.map(([, name, severity]) => `${name} ${severity}`),
    ALERTS.map(({ alert, labels }) => `${alert} ${labels?.['severity']}`),
  );
  for (const { alert, annotations } of ALERTS) assert.ok(annotations?.['summary'] && annotations['description'], alert);
});

test('every alert has a unit test in which it fires, and one in which it is silent', () => {
  const { tests } = z
    .object({
      tests: z.array(
        z.object({
          alert_rule_test: z.array(z.object({ alertname: z.string(), exp_alerts: z.array(z.unknown()) })),
        }),
      ),
    })
    .parse(parse(read('deploy/prometheus/rules.test.yml')));
  const cases = tests.flatMap((one) => one.alert_rule_test);
  for (const { alert } of ALERTS) {
    const own = cases.filter(({ alertname }) => alertname === alert);
    assert.ok(
      own.some((one) => one.exp_alerts.length > 0),
      `${alert} fires`,
    );
    assert.ok(
      own.some((one) => one.exp_alerts.length === 0),
      `${alert} is silent`,
    );
  }
});

test('the panels of the dashboard do not overlap, and each query panel is described', () => {
  const ids = DASHBOARD.panels.map(({ id }) => id);
  assert.equal(new Set(ids).size, ids.length);
  const taken = new Map<string, string>();
  for (const { title, type, description, gridPos, targets } of DASHBOARD.panels) {
    if (type === 'row') continue;
    assert.ok(targets.length > 0 && description !== undefined, title);
    for (let x = gridPos.x; x < gridPos.x + gridPos.w; x++) {
      for (let y = gridPos.y; y < gridPos.y + gridPos.h; y++) {
        assert.equal(taken.get(`${x} ${y}`), undefined, title);
        taken.set(`${x} ${y}`, title);
      }
    }
  }
});

test('docs/troubleshooting.md has every row of the error table with codes and a link', () => {
  const [, index = ''] = read('docs/troubleshooting.md').split('## Index of error codes');
  const listed = rows(index)
    .filter(([, code]) => /^−\d+$/.test(code ?? ''))
    .map(
      ([, code, row, http, link]) =>
        `${row} ${code?.replace('−', '-')} ${http} ${/#([a-z-]+)\)$/.exec(link ?? '')?.[1]}`,
    );
  const actual = Object.entries(ERRORS).map(([row, { rpc, http }]) => `${row} ${rpc} ${http} ${row}`);
  assert.deepEqual(listed.toSorted(), actual.toSorted());
});

/** Returns what the published schema of compose files finds wrong. */
function composeErrors(file: unknown): readonly object[] {
  // Ajv knows the URL of the schema's dialect with http only.
  const { $schema: _dialect, ...schema } = z
    .looseObject({})
    .parse(JSON.parse(read('test/e2e/vendor/compose-spec.json')));
  const validate = new Ajv({ strict: false, validateFormats: false, allErrors: true }).compile(schema);
  return validate(file) ? [] : (validate.errors ?? [{}]);
}

test('the compose file matches the published schema', () => {
  assert.deepEqual(composeErrors(parse(read('docker-compose.yml'))), []);
  assert.notDeepEqual(composeErrors({ services: { linkspan: { imagee: 'x' } } }), []);
});

/** Removes the # of commented examples: lines that begin with # and no space. */
function withExamples(text: string): string {
  return text.replaceAll(/^( *)#(?=\S)/gm, '$1').replace('sha256: …', `sha256: ${KEY_HASH}`);
}

// N-87
test('the examples in the compose file and its config work once their # is removed', async () => {
  const compose = withExamples(read('docker-compose.yml'));
  assert.deepEqual(composeErrors(parse(compose)), []);
  const { services, secrets } = z
    .object({
      services: z.object({
        linkspan: z.object({
          environment: z.array(z.string()),
          secrets: z.array(z.string()),
          volumes: z.array(z.string()),
        }),
      }),
      secrets: z.record(z.string(), z.object({ file: z.string() })),
    })
    .parse(parse(compose));
  const { environment, secrets: used, volumes } = services.linkspan;
  assert.deepEqual(used, Object.keys(secrets));
  const dir = await mkdtemp(join(tmpdir(), 'linkspan-compose-'));
  try {
    for (const name of used) await writeFile(join(dir, name), 'secret\n');
    const config = withExamples(read('deploy/docker/config.yaml')).replaceAll('/run/secrets', dir);
    await writeFile(join(dir, 'config.yaml'), config);
    const env = Object.fromEntries(environment.map((name) => [name, 'from the environment']));
    const { config: loaded, problems } = await loadConfig(join(dir, 'config.yaml'), { env });
    assert.deepEqual(problems, []);
    assert.deepEqual(loaded.auth.apiKeys, [{ name: 'me', sha256: KEY_HASH }]);
    const headers = loaded.upstreams.flatMap(({ target }) =>
      target.kind === 'stdio' ? [] : [target.headers['Authorization']],
    );
    assert.deepEqual(headers, ['Bearer from the environment', 'Bearer secret']);
    const folder = loaded.upstreams
      .flatMap(({ target }) => (target.kind === 'stdio' ? target.args.slice(-1) : []))
      .at(-1);
    assert.ok(
      volumes.some((volume) => volume.endsWith(`:${folder}:ro`)),
      folder,
    );
  } finally {
    await rm(dir, { recursive: true });
  }
});

// N-87
test('the config of the gateway and of replicas can be outside the checkout', () => {
  for (const name of ['linkspan', 'replica']) {
    const { volumes } = z.object({ volumes: z.array(z.string()) }).parse(COMPOSE.services[name]);
    assert.ok(volumes.includes('${LINKSPAN_CONFIG_DIR:-./deploy/docker}:/etc/linkspan:ro'), name);
  }
  assert.ok(read('.gitignore').split('\n').includes('.env'));
});

// N-87
test('both images have the command, and every command of them knows of the first key', () => {
  const [, full = '', remote = ''] = read('Dockerfile').split(/^FROM (?:scratch|base) AS (?=remote$|full$)/m);
  for (const stage of [full, remote]) {
    assert.match(stage, /^COPY deploy\/docker\/linkspan \/usr\/local\/bin\/$/m);
    assert.match(stage, /^ENV .*LINKSPAN_FIRST_KEY=1 LINKSPAN_CONFIG=\/etc\/linkspan\/config\.yaml/m);
  }
  assert.equal(statSync(join(ROOT, 'deploy/docker/linkspan')).mode & 0o111, 0o111);
});

const COMPOSE = z
  .object({
    services: z.record(
      z.string(),
      z
        .object({
          pids_limit: z.number().optional(),
          mem_limit: z.string().optional(),
          restart: z.string().optional(),
          profiles: z.array(z.string()).optional(),
          tmpfs: z.array(z.string()).default([]),
          sysctls: z.record(z.string(), z.number()).optional(),
        })
        .loose(),
    ),
  })
  .parse(parse(read('docker-compose.yml')));

for (const folder of ['base', 'replicas']) {
  test(`the config of kubernetes/${folder} needs the secret, and says where to get it`, async () => {
    const file = join(ROOT, 'deploy/kubernetes', folder, 'linkspan.yaml');
    const redis = { LINKSPAN_WRAPPING_KEY: randomBytes(32).toString('base64'), REDIS_PASSWORD: 'password' };
    const { config, problems } = await loadConfig(file, { env: { LINKSPAN_API_KEY_SHA256: KEY_HASH, ...redis } });
    assert.deepEqual(problems, []);
    assert.deepEqual(config.auth.apiKeys, [{ name: 'cluster', sha256: KEY_HASH }]);
    assert.equal(config.redis !== undefined, folder === 'replicas');
    await assert.rejects(loadConfig(file, { env: {} }), /docs\/deployment\.md/);
  });
}

test('commands in a pod find the config of the gateway', () => {
  const container = z.object({
    args: z.array(z.string()),
    env: z.array(z.object({ name: z.string(), value: z.string().optional() })),
  });
  const { spec } = z
    .object({ spec: z.object({ template: z.object({ spec: z.object({ containers: z.tuple([container]) }) }) }) })
    .parse(parse(read('deploy/kubernetes/base/deployment.yaml')));
  const [{ args, env }] = spec.template.spec.containers;
  assert.deepEqual(args, ['run']);
  const named = env.find(({ name }) => name === 'LINKSPAN_CONFIG');
  assert.equal(named?.value, '/etc/linkspan/linkspan.yaml');
});

test('each lasting service of the compose file starts again, also after a reboot', () => {
  for (const [name, { restart }] of Object.entries(COMPOSE.services)) {
    assert.equal(restart, name === 'keys' ? undefined : 'unless-stopped', name);
  }
});

test('programs in a state directory in memory can be executed', () => {
  // The printers for npx and uvx are there. An engine mounts a tmpfs with noexec by default.
  const mounts = Object.values(COMPOSE.services).flatMap(({ tmpfs }) => tmpfs);
  const states = mounts.filter((mount) => mount.startsWith('/var/lib/linkspan'));
  assert.ok(states.length > 0);
  for (const mount of states) assert.ok(mount.split(/[:,]/).includes('exec'), mount);
});

// R16
test('each service that clients reach, or the balancer, gives vanished ones up soon', () => {
  for (const name of ['linkspan', 'replica', 'balancer']) {
    assert.deepEqual(COMPOSE.services[name]?.sysctls, { 'net.ipv4.tcp_retries2': 8 }, name);
  }
});

test('the keys of the replicas are made once, and their config is valid with them', async () => {
  const dir = await mkdtemp(join(tmpdir(), 'linkspan-keys-'));
  try {
    const make = () =>
      spawnSync(process.execPath, [join(ROOT, 'deploy/docker/make-keys.mjs'), dir], { encoding: 'utf8' });
    // As a full disk leaves them.
    for (const name of ['wrapping-key', 'api-key.sha256']) await writeFile(join(dir, name), '');
    const [, key = ''] = /^API key, shown only once: (\S+)\n$/.exec(make().stdout) ?? [];
    const file = join(dir, 'replica.yaml');
    await writeFile(file, read('deploy/docker/replica.yaml').replaceAll('/run/linkspan', dir));
    const { config, problems } = await loadConfig(file, { env: {} });
    assert.deepEqual(problems, []);
    assert.deepEqual(config.auth.apiKeys, [{ name: 'first', sha256: createHash('sha256').update(key).digest('hex') }]);
    const again = make();
    assert.deepEqual([again.status, again.stdout, again.stderr], [0, '', '']);
    assert.deepEqual((await loadConfig(file, { env: {} })).config.redis, config.redis);
  } finally {
    await rm(dir, { recursive: true });
  }
});

test('the Dockerfile copies only files that exist and that .dockerignore admits', () => {
  const admitted = read('.dockerignore')
    .split('\n')
    .flatMap((line) => (line.startsWith('!') ? line.slice(1) : []));
  const copied = [...read('Dockerfile').matchAll(/^COPY (?!--from)(.+)$/gm)].flatMap(([, files = '']) =>
    files.split(' ').slice(0, -1),
  );
  assert.ok(copied.length > 5);
  for (const file of copied) {
    assert.ok(existsSync(join(ROOT, file)), file);
    assert.ok(
      admitted.some((one) => file === one || file.startsWith(`${one}/`)),
      `${file} is ignored`,
    );
  }
});

test('each image runs without root or shell, with an init and a health check', () => {
  const [, remote = '', full = ''] =
    /FROM scratch AS remote\n([^]*?)FROM base AS full\n([^]*)$/.exec(read('Dockerfile')) ?? [];
  for (const image of [remote, full]) {
    assert.match(image, /^USER (?:node|1000:1000)$/m);
    assert.match(image, /^HEALTHCHECK [^]*?CMD \["linkspan", "healthcheck"\]$/m);
    assert.match(image, /^ENTRYPOINT \["tini", /m);
    assert.match(image, /^CMD \["run"\]$/m);
  }
});

/** Snippets of configs of clients: page, language, text. */
const snippets = globSync('docs/clients/*.md', { cwd: ROOT })
  .toSorted()
  .flatMap((page) =>
    [...read(page).matchAll(/```(json|toml)\n([^]*?)```/g)].map(([, language = '', text = '']) => ({
      page,
      language,
      text,
    })),
  );

for (const { page, language, text } of snippets) {
  test(`the ${language} of ${page} has one server`, async () => {
    const dir = await mkdtemp(join(tmpdir(), 'linkspan-snippet-'));
    try {
      const file = join(dir, `config.${language}`);
      await writeFile(file, text);
      const env = { LINKSPAN_KEY: 'key', INPUT_LINKSPAN_KEY: 'key' };
      const { config, problems } = await loadConfig(file, { env, listens: false });
      assert.deepEqual(problems, []);
      const [server] = config.upstreams;
      assert.equal(config.upstreams.length, 1);
      assert.equal(server?.id, 'linkspan');
      if (server?.target.kind === 'stdio') assert.deepEqual(server.target.args.slice(0, 2), ['stdio', '--config']);
      else assert.equal(server?.target.url, 'http://127.0.0.1:3000/mcp');
    } finally {
      await rm(dir, { recursive: true });
    }
  });
}
