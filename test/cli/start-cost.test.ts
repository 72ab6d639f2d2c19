import assert from 'node:assert/strict';
import { execFile } from 'node:child_process';
import { readdirSync, readFileSync } from 'node:fs';
import { mkdtemp, readdir, readFile, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, test } from 'node:test';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';
import { Child } from '../support/child.ts';
import { startGateway } from '../support/gateway.ts';
import { PATIENCE_MS } from '../support/patience.ts';

const ROOT = fileURLToPath(new URL('../..', import.meta.url));
const MAIN = join(ROOT, 'src/main.ts');
const BOUNDED = { timeout: 120_000 };

const exec = promisify(execFile);

let dir = '';
let config = '';

/** Writes the packages that a program loads, and where Node keeps its compiled code, to a file when it ends. */
const RECORDER = `
import { getCompileCacheDir, registerHooks } from 'node:module';
import { writeFileSync } from 'node:fs';
const loaded = new Set();
registerHooks({
  load(url, context, next) {
    const [, name] = /\\/node_modules\\/((?:@[^/]+\\/)?[^/]+)\\//.exec(url) ?? [];
    if (name !== undefined) loaded.add(name);
    return next(url, context);
  },
});
process.on('exit', () => {
  const record = { loaded: [...loaded], compileCache: getCompileCacheDir() ?? '' };
  writeFileSync(process.env.RECORD, JSON.stringify(record));
});
`;

interface Recorded {
  readonly loaded: readonly string[];
  /** Empty if there is none. */
  readonly compileCache: string;
}

before(async () => {
  dir = await mkdtemp(join(tmpdir(), 'linkspan-start-'));
  config = join(dir, 'config.json');
  await writeFile(join(dir, 'recorder.mjs'), RECORDER);
  const mcpServers = { plain: { url: 'http://127.0.0.1:9/mcp' } };
  const gateway = { listen: '127.0.0.1:0', operator: '127.0.0.1:0', stateDir: join(dir, 'state') };
  await writeFile(config, JSON.stringify({ mcpServers, gateway }));
});

after(async () => {
  await rm(dir, { recursive: true, force: true });
});

/** Runs the command line with an empty stdin until it ends. */
async function record(args: readonly string[], env: NodeJS.ProcessEnv = {}): Promise<Recorded> {
  const RECORD = join(dir, 'record.json');
  const running = exec(process.execPath, ['--import', join(dir, 'recorder.mjs'), MAIN, ...args], {
    env: { RECORD, ...env },
    timeout: 120_000,
  });
  running.child.stdin?.end();
  await running;
  return JSON.parse(await readFile(RECORD, 'utf8'));
}

// N-04
test('stdio loads no HTTP server, and no TLS client for an upstream without TLS', BOUNDED, async () => {
  const { loaded } = await record(['stdio', '--config', config]);
  assert.ok(loaded.includes('zod'));
  for (const name of ['hono', '@hono/node-server', 'undici']) assert.ok(!loaded.includes(name), name);
});

test('a gateway without Redis does not load its client', BOUNDED, async () => {
  const RECORD = join(dir, 'run.json');
  const args = ['--import', join(dir, 'recorder.mjs'), MAIN, 'run', '--config', config];
  const child = await Child.start(process.execPath, args, { env: { RECORD } });
  await child.waitForLine((line) => (line.includes('"listening"') ? true : undefined));
  await child.stop(PATIENCE_MS);
  const { loaded }: Recorded = JSON.parse(await readFile(RECORD, 'utf8'));
  assert.ok(loaded.includes('hono'));
  assert.ok(!loaded.includes('ioredis'));
});

test('the OpenTelemetry SDK is loaded only if config or environment ask for traces', BOUNDED, async () => {
  // prom-client loads the API.
  const isSdk = (name: string) => name.startsWith('@opentelemetry/') && name !== '@opentelemetry/api';
  assert.deepEqual((await record(['stdio', '--config', config])).loaded.filter(isSdk), []);
  const env = { OTEL_EXPORTER_OTLP_ENDPOINT: 'http://127.0.0.1:9' };
  const { loaded } = await record(['stdio', '--config', config], env);
  assert.ok(loaded.includes('@opentelemetry/sdk-trace'), loaded.join(' '));
});

// N-04
test('compiled code is kept beside the program for the next start', BOUNDED, async () => {
  const { compileCache } = await record(['version']);
  assert.ok(compileCache.startsWith(join(ROOT, 'node_modules/.cache/linkspan')), compileCache);
  assert.notDeepEqual(await readdir(compileCache), []);
});

test('with NODE_DISABLE_COMPILE_CACHE no compiled code is kept', BOUNDED, async () => {
  assert.equal((await record(['version'], { NODE_DISABLE_COMPILE_CACHE: '1' })).compileCache, '');
});

test('eight names without an answer do not keep others from being looked up', BOUNDED, async () => {
  await using gateway = await startGateway({ mcpServers: {} });
  const threads = readdirSync(`/proc/${gateway.pid}/task`);
  const names = threads.map((thread) => readFileSync(`/proc/${gateway.pid}/task/${thread}/comm`, 'utf8').trim());
  // Half of them look names up.
  assert.equal(names.filter((name) => name === 'libuv-worker').length, 16);
});
