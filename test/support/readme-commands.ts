import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { after, before, test } from 'node:test';
import { fileURLToPath } from 'node:url';
import { Client, StreamableHTTPClientTransport } from '@modelcontextprotocol/client';
import { Checkout, STEP_MS } from './checkout.ts';
import { Child } from './child.ts';
import { blocksOf, isRun } from './shell-blocks.ts';

const ROOT = fileURLToPath(new URL('../../', import.meta.url));
const README = readFileSync(join(ROOT, 'README.md'), 'utf8');
const VERSION = String(JSON.parse(readFileSync(join(ROOT, 'package.json'), 'utf8')).version);

const BOUNDED = { timeout: STEP_MS };

/** Returns the commands of the first shell block of the README, without their comments. */
function firstCommands(): readonly string[] {
  const text = blocksOf('README.md', README).find(isRun)?.text ?? '';
  return text
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
  let checkout: Checkout;
  const skip = process.platform !== 'linux' && 'Node comes as a package of npm for Linux alone';

  /** Waits until the program listens, lists tools as a client, does the rest while it runs, and stops it. */
  const serves = async (
    cwd: string,
    [command, ...args]: readonly [string, ...string[]],
    meanwhile = async (): Promise<void> => undefined,
  ): Promise<void> => {
    const ports = ['--listen', '127.0.0.1:0', '--operator', '127.0.0.1:0'];
    await using program = await Child.start(command, [...args, ...ports], { cwd, env: checkout.env, group: true });
    const url = await program.waitForLine((line) => /"url":"([^"]+)".*"msg":"listening"/.exec(line)?.[1], STEP_MS / 2);
    const client = new Client({ name: 'reader', version: '1' });
    await client.connect(new StreamableHTTPClientTransport(new URL(url)));
    const { tools } = await client.listTools();
    assert.ok(
      tools.some(({ name }) => name.startsWith('memory__')),
      tools.map(({ name }) => name).join(),
    );
    await client.close();
    await meanwhile();
  };

  before(
    async () => {
      if (skip === false) checkout = await Checkout.create(version);
    },
    { timeout: STEP_MS },
  );
  after(async () => {
    if (skip === false) await checkout[Symbol.asyncDispose]();
  });

  // N-09
  test(`the first block of the README is what is run here on Node ${version}`, () => {
    assert.deepEqual(firstCommands(), ['npm ci && npm start', 'npm ci && npm test']);
  });

  // N-09
  test(`npm ci on Node ${version} succeeds without a warning`, { ...BOUNDED, skip }, async () => {
    const { stdout } = await checkout.run(checkout.path, 'node', '--version');
    assert.equal(stdout.trim(), `v${version}`);
    const installed = await checkout.run(checkout.path, 'npm', 'ci');
    assert.equal(installed.code, 0, installed.stderr);
    // A registry that is slow or fails once is another warning.
    assert.doesNotMatch(installed.stderr, /EBADENGINE|deprecated/i);
  });

  // N-85
  // N-09
  test(`npm start on Node ${version} serves the example`, { ...BOUNDED, skip }, async () => {
    await serves(checkout.path, ['npm', 'start', '--'], async () => {
      const command = 'npm run -s linkspan -- status';
      assert.ok(README.includes(`\n${command} `));
      const [npm = '', ...args] = command.split(' ');
      const { code, stdout, stderr } = await checkout.run(checkout.path, npm, ...args);
      assert.equal(code, 0, stderr);
      assert.match(stdout, /^Linkspan [^]*\nmemory /);
    });
  });

  // N-09
  test(`npm run validate on Node ${version} says what would be served`, { ...BOUNDED, skip }, async () => {
    assert.ok(README.includes('npm run validate -- --config config/example.yaml'));
    const args = ['run', 'validate', '--', '--config', 'config/example.yaml'];
    const { code, stdout, stderr } = await checkout.run(checkout.path, 'npm', ...args);
    assert.equal(code, 0, stderr);
    assert.match(stdout, /config\/example\.yaml is valid\./);
  });

  const does = runsPackage ? 'runs' : 'says which Node it needs';
  // N-09
  test(`the package that is installed on Node ${version} ${does}`, { ...BOUNDED, skip }, async () => {
    const { dir } = checkout;
    const linkspan = join(await checkout.installPackage(), 'linkspan');
    const shown = await checkout.run(dir, linkspan, 'version');
    if (!runsPackage) {
      const stderr = `linkspan needs Node 22.19 or newer; this is Node ${version}.\n`;
      assert.deepEqual(shown, { code: 1, stdout: '', stderr });
      return;
    }
    assert.deepEqual(shown, { code: 0, stdout: `${VERSION}\n`, stderr: '' });
    const server = join(checkout.path, 'node_modules/@modelcontextprotocol/server-memory/dist/index.js');
    const memory = { command: 'node', args: [server], env: { MEMORY_FILE_PATH: join(dir, 'memory') } };
    const config = join(dir, 'config.json');
    await writeFile(config, JSON.stringify({ mcpServers: { memory } }));
    const valid = await checkout.run(dir, linkspan, 'validate', '--start', '--config', config);
    assert.equal(valid.code, 0, valid.stdout + valid.stderr);
    await serves(dir, [linkspan, 'run', '--config', config]);
    const workers = join(dir, 'workers.json');
    await writeFile(workers, JSON.stringify({ gateway: { workers: 2 }, mcpServers: { memory } }));
    await serves(dir, [linkspan, 'run', '--config', workers]);
  });
}
