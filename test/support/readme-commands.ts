import assert from 'node:assert/strict';
import { execFile } from 'node:child_process';
import { readFileSync } from 'node:fs';
import { cp, mkdtemp, readdir, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, test } from 'node:test';
import { fileURLToPath } from 'node:url';
import { Client, StreamableHTTPClientTransport } from '@modelcontextprotocol/client';
import { Child } from './child.ts';
import { environmentOn, nodeFolder } from './node-versions.ts';

const ROOT = fileURLToPath(new URL('../../', import.meta.url));
const README = readFileSync(join(ROOT, 'README.md'), 'utf8');
const VERSION = String(JSON.parse(readFileSync(join(ROOT, 'package.json'), 'utf8')).version);

/** The files of the checkout that `npm ci && npm start` and the package need. */
const CHECKOUT = ['package.json', 'package-lock.json', '.npmrc', 'tsconfig.json', 'src', 'scripts', 'config'];
const PAPERS = ['README.md', 'LICENSE', 'CHANGELOG.md'];

const STEP_MS = 120_000;
const BOUNDED = { timeout: STEP_MS };

interface Ran {
  readonly code: number | string | null | undefined;
  readonly stdout: string;
  readonly stderr: string;
}

/** Returns the commands of the first shell block of the README, without their comments. */
function firstCommands(): readonly string[] {
  const [, block = ''] = /```sh\n([^]*?)```/.exec(README) ?? [];
  return block
    .split('\n')
    .map((line) => line.replace(/\s+#.*$/, ''))
    .filter((line) => line !== '');
}

/**
 * Runs the commands of the README with this version of Node: those of a checkout, and the package that
 * `npm install --global` installs.
 *
 * @param runsPackage whether the package runs on this version; otherwise it must report the version that it needs.
 */
export function readmeCommands(version: string, runsPackage: boolean): void {
  let dir = '';
  let checkout = '';
  let env: Record<string, string> = {};
  const skip = process.platform !== 'linux' && 'Node comes as a package of npm for Linux alone';

  const run = (cwd: string, command: string, ...args: readonly string[]): Promise<Ran> =>
    new Promise((resolve) => {
      execFile(command, args, { cwd, env, timeout: STEP_MS, killSignal: 'SIGKILL' }, (error, stdout, stderr) => {
        resolve({ code: error === null ? 0 : error.code, stdout, stderr });
      });
    });

  /** Waits until the program listens, lists tools as a client, and stops it. */
  const serves = async (cwd: string, command: string, ...args: readonly string[]): Promise<void> => {
    const ports = ['--listen', '127.0.0.1:0', '--operator', '127.0.0.1:0'];
    await using program = await Child.start(command, [...args, ...ports], { cwd, env, group: true });
    const url = await program.waitForLine((line) => /"url":"([^"]+)".*"msg":"listening"/.exec(line)?.[1], STEP_MS / 2);
    const client = new Client({ name: 'reader', version: '1' });
    await client.connect(new StreamableHTTPClientTransport(new URL(url)));
    const { tools } = await client.listTools();
    assert.ok(
      tools.some(({ name }) => name.startsWith('memory__')),
      tools.map(({ name }) => name).join(),
    );
    await client.close();
  };

  before(
    async () => {
      if (skip !== false) return;
      dir = await mkdtemp(join(tmpdir(), 'linkspan-node-'));
      checkout = join(dir, 'checkout');
      for (const name of [...CHECKOUT, ...PAPERS]) {
        await cp(join(ROOT, name), join(checkout, name), {
          recursive: true,
          filter: (file) => !file.includes('node_modules'),
        });
      }
      const state = { HOME: join(dir, 'home'), XDG_STATE_HOME: join(dir, 'state'), XDG_RUNTIME_DIR: dir };
      const cache = process.env['npm_config_cache'] ?? join(process.env['HOME'] ?? '', '.npm');
      env = environmentOn(await nodeFolder(version), {
        ...state,
        npm_config_cache: cache,
        npm_config_prefer_offline: 'true',
      });
    },
    { timeout: STEP_MS },
  );
  after(() => rm(dir, { recursive: true, force: true }));

  test(`N-09 the first block of the README is what is run here on Node ${version}`, () => {
    assert.deepEqual(firstCommands(), ['npm ci && npm start', 'npm ci && npm test']);
  });

  test(`N-09 npm ci on Node ${version} succeeds without a warning`, { ...BOUNDED, skip }, async () => {
    const { stdout } = await run(checkout, 'node', '--version');
    assert.equal(stdout.trim(), `v${version}`);
    const installed = await run(checkout, 'npm', 'ci');
    assert.equal(installed.code, 0, installed.stderr);
    assert.doesNotMatch(installed.stderr, /EBADENGINE|warn/i);
  });

  test(`N-09 npm start on Node ${version} serves the example`, { ...BOUNDED, skip }, async () => {
    await serves(checkout, 'npm', 'start', '--');
  });

  test(`N-09 npm run validate on Node ${version} says what would be served`, { ...BOUNDED, skip }, async () => {
    assert.ok(README.includes('npm run validate -- --config config/example.yaml'));
    const { code, stdout, stderr } = await run(
      checkout,
      'npm',
      'run',
      'validate',
      '--',
      '--config',
      'config/example.yaml',
    );
    assert.equal(code, 0, stderr);
    assert.match(stdout, /config\/example\.yaml is valid\./);
  });

  const does = runsPackage ? 'runs' : 'says which Node it needs';
  test(`N-09 the package that is installed on Node ${version} ${does}`, { ...BOUNDED, skip }, async () => {
    const packed = await run(checkout, 'npm', 'pack', '--pack-destination', dir);
    assert.equal(packed.code, 0, packed.stderr);
    const tarball = (await readdir(dir)).find((name) => name.endsWith('.tgz')) ?? '';
    const prefix = join(dir, 'prefix');
    const installed = await run(dir, 'npm', 'install', '--global', '--prefix', prefix, join(dir, tarball));
    assert.equal(installed.code, 0, installed.stderr);
    const linkspan = join(prefix, 'bin', 'linkspan');
    const told = await run(dir, linkspan, 'version');
    if (!runsPackage) {
      const stderr = `linkspan needs Node 22.19 or newer; this is Node ${version}.\n`;
      assert.deepEqual(told, { code: 1, stdout: '', stderr });
      return;
    }
    assert.deepEqual(told, { code: 0, stdout: `${VERSION}\n`, stderr: '' });
    const server = join(checkout, 'node_modules/@modelcontextprotocol/server-memory/dist/index.js');
    const memory = { command: 'node', args: [server], env: { MEMORY_FILE_PATH: join(dir, 'memory') } };
    const config = join(dir, 'config.json');
    await writeFile(config, JSON.stringify({ mcpServers: { memory } }));
    const valid = await run(dir, linkspan, 'validate', '--start', '--config', config);
    assert.equal(valid.code, 0, valid.stdout + valid.stderr);
    await serves(dir, linkspan, 'run', '--config', config);
  });
}
