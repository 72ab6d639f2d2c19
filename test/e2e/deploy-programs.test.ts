import assert from 'node:assert/strict';
import { mkdtemp, readFile, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { test } from 'node:test';
import { fileURLToPath } from 'node:url';
import { spawnSync } from 'node:child_process';
import { createHash } from 'node:crypto';
import { Agent, fetch as fetchOver } from 'undici';
import { parse, parseAllDocuments } from 'yaml';
import * as z from 'zod';
import { Child } from '../support/child.ts';
import { startGateway } from '../support/gateway.ts';
import { findHaproxy, startHaproxy } from '../support/haproxy.ts';
import { modernHeaders, modernText } from '../support/modern-wire.ts';
import { waitUntil } from '../support/wait-until.ts';
import { debianProgram, type FoundProgram, goProgram, installedProgram, pypiPrograms } from '../support/programs.ts';
import { freePort } from '../support/free-port.ts';
import { Replicas } from '../support/replicas.ts';
import { connectSdk2 } from '../support/sdk-client.ts';

const ROOT = fileURLToPath(new URL('../..', import.meta.url));
const BASE = 'deploy/kubernetes/base';
const REPLICAS = 'deploy/kubernetes/replicas';
const ASKER = fileURLToPath(new URL('../fixtures/servers/nonce-stdio.ts', import.meta.url));
const TIMEOUT_MS = 60_000;
/** The time of a call that its client leaves. */
const LONG_MS = 300_000; // subject

const PROMTOOL = await debianProgram('promtool', 'prometheus', 'usr/bin/promtool');
const NGINX = await debianProgram('nginx', 'nginx', 'usr/sbin/nginx');
const HAPROXY = await findHaproxy();
const CADDY = await debianProgram('caddy', 'caddy', 'usr/bin/caddy');
const OPENSSL = installedProgram('openssl');
const SYSTEMD = installedProgram('systemd-analyze');
const KUSTOMIZE = await kustomizeProgram();
const PYPI = await pypiPrograms();
const HADOLINT: FoundProgram = 'path' in PYPI ? { path: join(PYPI.path, 'bin', 'hadolint') } : PYPI;
const KUBERNETES: FoundProgram = 'path' in PYPI ? { path: join(PYPI.path, 'bin', 'kubernetes-validate') } : PYPI;

/** Returns a program that renders the base when it gets these arguments and the folder: kubectl, or else kustomize. */
async function kustomizeProgram(): Promise<FoundProgram & { readonly args: readonly string[] }> {
  const kubectl = installedProgram('kubectl');
  // That of Debian 12 is too old for the base.
  const renders = 'path' in kubectl && spawnSync(kubectl.path, ['kustomize', BASE], { cwd: ROOT }).status === 0;
  if (renders) return { ...kubectl, args: ['kustomize'] };
  return { ...(await goProgram('kustomize', 'sigs.k8s.io/kustomize/kustomize/v5@v5.7.1')), args: ['build'] };
}

/** Skips a test whose program is missing, with the reason. */
function needs(...programs: readonly FoundProgram[]): { readonly timeout: number; readonly skip?: string } {
  const missing = programs.flatMap((program) => ('missing' in program ? program.missing : []));
  return { timeout: TIMEOUT_MS, ...(missing.length > 0 ? { skip: missing.join('; ') } : {}) };
}

/** Runs a program to its end. @throws {assert.AssertionError} with its output, if it fails. */
function run(
  program: FoundProgram & { readonly env?: Readonly<Record<string, string>> },
  args: readonly string[],
): string {
  assert.ok('path' in program);
  const { status, stdout, stderr, error } = spawnSync(program.path, args, {
    cwd: ROOT,
    encoding: 'utf8',
    timeout: TIMEOUT_MS,
    // The programs of PyPI find their modules there.
    env: { ...process.env, ...program.env, ...('path' in PYPI ? { PYTHONPATH: PYPI.path } : {}) },
  });
  assert.equal(status, 0, `${program.path} ${args.join(' ')}: ${error?.message ?? ''}\n${stdout}\n${stderr}`);
  return `${stdout}${stderr}`;
}

test('promtool accepts the rules and their unit tests pass', needs(PROMTOOL), () => {
  run(PROMTOOL, ['check', 'config', 'deploy/prometheus/prometheus.yml']);
  run(PROMTOOL, ['check', 'rules', 'deploy/prometheus/rules.yml']);
  run(PROMTOOL, ['test', 'rules', 'deploy/prometheus/rules.test.yml']);
});

test('promtool finds nothing wrong with the metrics of a running gateway', needs(PROMTOOL), async () => {
  await using gateway = await startGateway({ mcpServers: { asker: { command: process.execPath, args: [ASKER] } } });
  const text = await (await fetch(`${gateway.operatorUrl}/metrics`)).text();
  assert.ok('path' in PROMTOOL);
  const { status, stdout, stderr } = spawnSync(PROMTOOL.path, ['check', 'metrics'], { input: text, encoding: 'utf8' });
  assert.deepEqual([stdout, stderr, status], ['', '', 0]);
});

/** Replaces the names of an example by those of a test. */
async function adaptFile(file: string, replacements: Readonly<Record<string, string>>): Promise<string> {
  let text = await readFile(join(ROOT, file), 'utf8');
  for (const [from, to] of Object.entries(replacements)) {
    assert.ok(text.includes(from), `${file} has ${from}`);
    text = text.replaceAll(from, to);
  }
  return text;
}

const INITIALIZE = {
  jsonrpc: '2.0',
  id: 1,
  method: 'initialize',
  params: { protocolVersion: '2025-11-25', capabilities: {}, clientInfo: { name: 'test', version: '1' } },
};

test('nginx accepts the example, and events pass through it at once', needs(NGINX, OPENSSL), async () => {
  const dir = await mkdtemp(join(tmpdir(), 'linkspan-nginx-'));
  try {
    const sessions = { keepAlive: '1s' };
    await using gateway = await startGateway({
      mcpServers: {},
      gateway: { sessions, allowedHosts: ['mcp.example.com'] },
    });
    const [pem, key] = [join(dir, 'fullchain.pem'), join(dir, 'privkey.pem')];
    const subject = ['-subj', '/CN=mcp.example.com', '-days', '1', '-nodes'];
    run(OPENSSL, ['req', '-x509', '-newkey', 'rsa:2048', ...subject, '-keyout', key, '-out', pem]);
    const port = await freePort();
    const server = await adaptFile('deploy/nginx/linkspan.conf', {
      'listen 443 ssl': `listen 127.0.0.1:${port} ssl`,
      'server 127.0.0.1:3000': `server ${new URL(gateway.url).host}`,
      '/etc/ssl/linkspan': dir,
    });
    const temporary = ['client_body', 'proxy', 'fastcgi', 'uwsgi', 'scgi'].map(
      (kind) => `${kind}_temp_path ${dir}/${kind};`,
    );
    const main = [
      'daemon off;',
      'worker_processes 1;',
      process.getuid?.() === 0 ? 'user root;' : '',
      `pid ${dir}/nginx.pid;`,
      'error_log stderr warn;',
      'events { worker_connections 64; }',
      `http { access_log off; ${temporary.join(' ')}\n${server}\n}`,
    ].join('\n');
    await writeFile(join(dir, 'nginx.conf'), main);
    const args = ['-p', dir, '-e', 'stderr', '-c', join(dir, 'nginx.conf')];
    run(NGINX, [...args, '-t']);

    assert.ok('path' in NGINX);
    await using connections = new AsyncDisposableStack();
    await using proxy = await Child.start(NGINX.path, args);
    const dispatcher = new Agent({ connect: { rejectUnauthorized: false, servername: 'mcp.example.com' } });
    connections.defer(() => dispatcher.destroy());
    const url = `https://127.0.0.1:${port}/mcp`;
    const headers = { host: 'mcp.example.com', accept: 'application/json, text/event-stream' };
    const post = () =>
      fetchOver(url, {
        dispatcher,
        method: 'POST',
        headers: { ...headers, 'content-type': 'application/json' },
        body: JSON.stringify(INITIALIZE),
      });
    let response = await post().catch(() => undefined);
    while (response === undefined) {
      assert.ok(proxy.running, proxy.logs());
      response = await post().catch(() => undefined);
    }
    assert.equal(response.status, 200);
    await response.text();
    const session = {
      'mcp-session-id': response.headers.get('mcp-session-id') ?? '',
      'mcp-protocol-version': '2025-11-25',
    };
    const stream = await fetchOver(url, { dispatcher, headers: { ...headers, ...session } });
    assert.equal(stream.status, 200);
    assert.ok(stream.body !== null);
    const decoder = new TextDecoder();
    // Comments are sent each second. A proxy that buffers would pass none of them on.
    for await (const chunk of stream.body) if (/^:/m.test(decoder.decode(chunk))) break;
  } finally {
    await rm(dir, { recursive: true, force: true });
  }
});

test('Caddy accepts the example', needs(CADDY), () => {
  run(CADDY, ['validate', '--adapter', 'caddyfile', '--config', 'deploy/caddy/Caddyfile']);
});

test('HAProxy accepts the balancer of the compose file', needs(HAPROXY), () => {
  run(HAPROXY, ['-c', '-f', 'deploy/haproxy/balancer.cfg']);
});

const LONG_CALLS = { command: process.execPath, args: [ASKER], timeouts: { call: '5m' } };

/** Leaves a call of 2026-07-28 that runs at a gateway, through a proxy, and waits until the gateway has cancelled it. */
async function leaveCall(proxyUrl: string, operatorUrl: string): Promise<void> {
  const inFlight = async () => {
    const text = await (await fetch(`${operatorUrl}/metrics`)).text();
    return /^linkspan_requests_in_flight(?:\{[^}]*\})? (\d+)/m.exec(text)?.[1];
  };
  const params = { name: 'nonce__act', arguments: { nonce: 'n', steps: [], pauseMs: LONG_MS, fails: false } };
  const leaving = new AbortController();
  const call = fetch(proxyUrl, {
    method: 'POST',
    headers: {
      'content-type': 'application/json',
      // The head of the response comes with the answer alone.
      accept: 'application/json',
      ...z.record(z.string(), z.string()).parse(JSON.parse(JSON.stringify(modernHeaders('tools/call', params)))),
    },
    body: modernText('tools/call', params),
    signal: leaving.signal,
  });
  const left = assert.rejects(call.then((response) => response.text()));
  await waitUntil(async () => (await inFlight()) === '1');
  leaving.abort();
  await left;
  await waitUntil(async () => (await inFlight()) === '0');
}

test('Caddy lets a client cancel its call by leaving', needs(CADDY), async () => {
  const dir = await mkdtemp(join(tmpdir(), 'linkspan-caddy-'));
  try {
    await using gateway = await startGateway({ mcpServers: { nonce: LONG_CALLS } });
    const port = await freePort();
    const site = await adaptFile('deploy/caddy/Caddyfile', {
      'mcp.example.com {': `http://127.0.0.1:${port} {`,
      '127.0.0.1:3000': new URL(gateway.url).host,
    });
    const file = join(dir, 'Caddyfile');
    await writeFile(file, `{\n\tadmin off\n}\n${site}`);
    assert.ok('path' in CADDY);
    const env = { XDG_CONFIG_HOME: dir, XDG_DATA_HOME: dir };
    await using proxy = await Child.start(CADDY.path, ['run', '--adapter', 'caddyfile', '--config', file], { env });
    const url = `http://127.0.0.1:${port}/mcp`;
    await waitUntil(async () => {
      assert.ok(proxy.running, proxy.logs());
      return await fetch(url).then(
        () => true,
        () => false,
      );
    });
    await leaveCall(url, gateway.operatorUrl);
  } finally {
    await rm(dir, { recursive: true, force: true });
  }
});

test('HAProxy lets a client cancel its call by leaving', needs(HAPROXY), async () => {
  const dir = await mkdtemp(join(tmpdir(), 'linkspan-haproxy-'));
  try {
    await using gateway = await startGateway({ mcpServers: { nonce: LONG_CALLS } });
    const port = await freePort();
    await using _proxy = await startHaproxy(HAPROXY, dir, port, [gateway]);
    await leaveCall(`http://127.0.0.1:${port}/mcp`, gateway.operatorUrl);
  } finally {
    await rm(dir, { recursive: true, force: true });
  }
});

test('replicas behind the balancer of the compose file, also while one restarts', needs(HAPROXY), async () => {
  const { gateway } = z
    .object({ gateway: z.record(z.string(), z.unknown()) })
    .parse(parse(await readFile(join(ROOT, 'deploy/docker/replica.yaml'), 'utf8')));
  const key = 'key-of-the-test';
  const ofMachine = ['listen', 'operator', 'stateDir'];
  const own = {
    ...Object.fromEntries(Object.entries(gateway).filter(([name]) => !ofMachine.includes(name))),
    auth: { apiKeys: [{ name: 'first', sha256: createHash('sha256').update(key).digest('hex') }] },
  };
  const mcpServers = { nonce: { command: process.execPath, args: [ASKER] } };
  await using replicas = await Replicas.start(3, { mcpServers, gateway: own }, { events: true }, 'ready in turn');
  await using sdk = await connectSdk2(replicas.url, { mode: 'legacy', headers: { authorization: `Bearer ${key}` } });
  const { tools } = await sdk.client.listTools();
  assert.ok(tools.length > 0);
  const restart = { isDone: false };
  const restarted = replicas.restart(0).finally(() => {
    restart.isDone = true;
  });
  while (!restart.isDone) assert.deepEqual((await sdk.client.listTools()).tools, tools);
  await restarted;
});

test('systemd accepts the unit', needs(SYSTEMD), () => {
  assert.ok('path' in SYSTEMD);
  const { stdout, stderr } = spawnSync(SYSTEMD.path, ['verify', 'deploy/systemd/linkspan.service'], {
    cwd: ROOT,
    encoding: 'utf8',
    timeout: TIMEOUT_MS,
  });
  const about = `${stdout}${stderr}`.split('\n').filter((line) => line.includes('linkspan'));
  assert.deepEqual(about, []);
});

const OBJECT = z.object({ kind: z.string(), metadata: z.object({ name: z.string() }) });

const SELECTOR = z.object({ matchLabels: z.record(z.string(), z.string()) });
const PEER = z.object({ podSelector: SELECTOR.optional() });
const POLICY = z.object({
  spec: z.object({
    podSelector: SELECTOR,
    ingress: z.array(z.object({ from: z.array(PEER) })),
    egress: z.array(z.object({ to: z.array(PEER) })),
  }),
});

test('hadolint finds nothing wrong with the Dockerfile', needs(HADOLINT), () => {
  assert.equal(run(HADOLINT, ['Dockerfile']), '');
});

for (const [folder, count] of [
  [BASE, 6],
  [REPLICAS, 9],
] as const) {
  test(`the objects of ${folder} match the schemas of Kubernetes`, needs(KUSTOMIZE, KUBERNETES), async () => {
    const dir = await mkdtemp(join(tmpdir(), 'linkspan-kubernetes-'));
    try {
      const file = join(dir, 'objects.yaml');
      await writeFile(file, run(KUSTOMIZE, [...KUSTOMIZE.args, folder]));
      const report = run(KUBERNETES, ['--strict', file]);
      assert.equal(report.match(/ passed for resource /g)?.length, count, report);
    } finally {
      await rm(dir, { recursive: true, force: true });
    }
  });
}

test('the replicas for Kubernetes keep no state, and have a port for each other', needs(KUSTOMIZE), () => {
  const text = run(KUSTOMIZE, [...KUSTOMIZE.args, REPLICAS]);
  const documents = parseAllDocuments(text).map((document): unknown => document.toJS());
  const names = documents
    .map((document) => OBJECT.parse(document))
    .map(({ kind, metadata }) => `${kind} ${metadata.name}`);
  assert.deepEqual(names.toSorted(), [
    'ConfigMap linkspan',
    'Deployment linkspan',
    'NetworkPolicy linkspan',
    'NetworkPolicy linkspan-redis',
    'PodDisruptionBudget linkspan',
    'Service linkspan',
    'Service linkspan-operator',
    'Service linkspan-redis',
    'StatefulSet linkspan-redis',
  ]);
  assert.doesNotMatch(text, /claimName/);
  assert.equal(text.match(/port: internal/g)?.length, 2);
});

test('kustomize renders the base for Kubernetes', needs(KUSTOMIZE), () => {
  const text = run(KUSTOMIZE, [...KUSTOMIZE.args, BASE]);
  const documents = parseAllDocuments(text).map((document): unknown => document.toJS());
  const objects = documents.map((document) => OBJECT.parse(document));
  assert.deepEqual(objects.map(({ kind, metadata }) => `${kind} ${metadata.name}`).toSorted(), [
    'ConfigMap linkspan',
    'Deployment linkspan',
    'NetworkPolicy linkspan',
    'PersistentVolumeClaim linkspan-state',
    'Service linkspan',
    'Service linkspan-operator',
  ]);
  const policy = POLICY.parse(documents.find((one) => OBJECT.parse(one).kind === 'NetworkPolicy')).spec;
  const own = { 'app.kubernetes.io/name': 'linkspan' };
  assert.deepEqual(policy.podSelector.matchLabels, own);
  const peers = [...policy.ingress.flatMap(({ from }) => from), ...policy.egress.flatMap(({ to }) => to)];
  assert.deepEqual(
    peers.flatMap(({ podSelector }) => (podSelector === undefined ? [] : Object.values(podSelector.matchLabels))),
    ['prometheus', 'kube-dns'],
  );
});
