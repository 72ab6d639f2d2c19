import assert from 'node:assert/strict';
import { globSync, readFileSync } from 'node:fs';
import { mkdir, mkdtemp, writeFile } from 'node:fs/promises';
import { delimiter, dirname, join } from 'node:path';
import { after, before, test } from 'node:test';
import { fileURLToPath } from 'node:url';
import { Checkout, type Ran, STEP_MS } from '../support/checkout.ts';
import { Child } from '../support/child.ts';
import { npmPrograms } from '../support/programs.ts';
import { type Block, blocksOf, isRun } from '../support/shell-blocks.ts';
import { shortened } from '../support/test-name.ts';

const ROOT = fileURLToPath(new URL('../..', import.meta.url));
const NODE = '24.21.0';
const BOUNDED = { timeout: STEP_MS };
/** Longest time of many commands. */
const ALL_MS = 600_000;
const PORTS = '--listen 127.0.0.1:0 --operator 127.0.0.1:0';

/** Command lines that are run elsewhere, with the place. */
const ELSEWHERE: Readonly<Record<string, string>> = {
  'npm ci': 'before the tests of this file',
  'npm ci && npm start': 'by readme-node-24.test.ts, which also connects a client',
  'npm ci && npm test': 'it runs this test',
  'npm test': 'it runs this test',
  'npm run test:full': 'it runs this test',
  'npm run check': 'its parts are steps of `npm test`',
};

/** A command that serves until it is stopped. */
const SERVES = /^(?:npm start|linkspan run)\b/;

/** The clients that npm has, by the program of their command line. */
const CLIENTS = {
  claude: '@anthropic-ai/claude-code@2.1.330',
  codex: '@openai/codex@0.169.0',
  gemini: '@google/gemini-cli@0.61.0',
} as const;
type Client = keyof typeof CLIENTS;

const BLOCKS = globSync(['*.md', '{docs,deploy,bench}/**/*.md'], { cwd: ROOT })
  .toSorted()
  .flatMap((page) => blocksOf(page, readFileSync(join(ROOT, page), 'utf8')).filter(isRun));

/** Returns the clients whose command line a block calls. */
function clientsOf({ text }: Block): readonly Client[] {
  return (['claude', 'codex', 'gemini'] as const).filter((name) => new RegExp(`^${name} `, 'm').test(text));
}

let checkout: Checkout;
let gateway: Child;
/** The folder of the running gateway, which is also its home directory. */
let work = '';
let bin = '';
let url = '';
let operatorUrl = '';

before(
  async () => {
    checkout = await Checkout.create(NODE);
    const installed = await checkout.run(checkout.path, 'npm', 'ci');
    assert.equal(installed.code, 0, installed.stderr);
    bin = await checkout.installPackage();
    work = await mkdtemp(join(checkout.dir, 'work-'));
    const server = join(checkout.path, 'node_modules/@modelcontextprotocol/server-filesystem/dist/index.js');
    const files = { command: 'node', args: [server, work] };
    // YAML includes JSON.
    await writeFile(join(work, 'linkspan.yaml'), JSON.stringify({ mcpServers: { files } }));
    const env = environment(work);
    gateway = await Child.start('sh', ['-c', `exec linkspan run ${PORTS}`], { cwd: work, env, group: true });
    const listening = await gateway.waitForLine(
      (line) => (line.includes('"msg":"listening"') ? line : undefined),
      STEP_MS / 2,
    );
    ({ url, operatorUrl } = JSON.parse(listening));
  },
  { timeout: ALL_MS },
);

after(async () => {
  await gateway.stop();
  await checkout[Symbol.asyncDispose]();
});

/** Returns the environment of a shell with this home directory, `linkspan` and these clients. */
function environment(home: string, clients: readonly string[] = []): Record<string, string> {
  const PATH = [bin, ...clients, checkout.env['PATH']].join(delimiter);
  // These keep the clients from reporting the run to their makers.
  const quiet = { DISABLE_TELEMETRY: '1', CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC: '1', NO_COLOR: '1' };
  const { TERM: _none, ...env } = checkout.env;
  return { ...env, ...quiet, PATH, HOME: home, XDG_STATE_HOME: join(work, 'state'), LINKSPAN_KEY: 'key' };
}

/** Writes the files of clients that a block names, as these clients would. */
async function writeNamedFiles({ text }: Block, home: string): Promise<void> {
  const servers = { memory: { command: 'node', args: [memoryServer()] } };
  const projects = { [join(home, 'shop')]: { mcpServers: servers } };
  const files: Readonly<Record<string, string>> = {
    '.cursor/mcp.json': JSON.stringify({ mcpServers: servers }),
    '.codex/config.toml': `[mcp_servers.memory]\ncommand = "node"\nargs = [${JSON.stringify(memoryServer())}]\n`,
    '.claude.json': JSON.stringify({ mcpServers: servers, projects }),
  };
  for (const [name, content] of Object.entries(files)) {
    if (!text.includes(`~/${name}`)) continue;
    await mkdir(dirname(join(home, name)), { recursive: true });
    await writeFile(join(home, name), content);
  }
}

function memoryServer(): string {
  return join(checkout.path, 'node_modules/@modelcontextprotocol/server-memory/dist/index.js');
}

/** Returns a script that ends with the first line that fails. (`sh -e` goes on if the first part of `a && b` fails.) */
function strict(lines: readonly string[]): string {
  const commands = lines.map((line) => line.replace(/(?:^|\s+)#\s.*$/, '')).filter((line) => line !== '');
  return commands.map((line) => `${line} || exit\n`).join('');
}

/** Runs a shell script of a page. */
function shell(script: string, cwd: string, env: Readonly<Record<string, string>>): Promise<Ran> {
  return checkout.run(
    cwd,
    'env',
    '-i',
    ...Object.entries(env).map(([name, value]) => `${name}=${value}`),
    'sh',
    '-euc',
    script,
  );
}

/** Starts a command that serves, on ports of its own, and stops it when it listens. */
async function tryToServe(line: string, cwd: string, env: Readonly<Record<string, string>>): Promise<void> {
  const [command = ''] = line.split(/\s+#/);
  const separator = command.startsWith('npm start') && !command.includes(' -- ') ? ' --' : '';
  await using program = await Child.start('sh', ['-euc', `${command}${separator} ${PORTS}`], { cwd, env, group: true });
  await program.waitForLine((text) => (text.includes('"msg":"listening"') ? true : undefined), STEP_MS / 2);
}

/** Runs a block, and asks each of its clients for the servers that it knows. @param programs the folders of these clients. */
async function runBlock(block: Block, programs: readonly string[] = []): Promise<void> {
  const isOnGateway = /^linkspan /m.test(block.text);
  const home = isOnGateway ? work : await mkdtemp(join(checkout.dir, 'home-'));
  const cwd = /^npm /m.test(block.text) ? checkout.path : home;
  const env = environment(home, programs);
  await writeNamedFiles(block, home);
  const text = block.text.replaceAll('http://127.0.0.1:3000/mcp', url).replaceAll('http://127.0.0.1:3001', operatorUrl);
  const lines = text.split('\n').filter((line) => !((line.split(/\s+#/)[0] ?? '') in ELSEWHERE));
  for (const line of lines.filter((one) => SERVES.test(one))) await tryToServe(line, cwd, env);
  const { code, stdout, stderr } = await shell(strict(lines.filter((one) => !SERVES.test(one))), cwd, env);
  assert.equal(code, 0, `${text}\n${stdout}\n${stderr}`);

  for (const client of clientsOf(block)) {
    const listed = await shell(`${client} mcp list`, cwd, env);
    assert.match(`${listed.stdout}${listed.stderr}`, client === 'claude' ? /linkspan.*Connected/ : /linkspan/);
  }
}

function nameOf({ page, line, text }: Block): string {
  return `${page}:${line} runs: ${shortened(text.split('\n')[0] ?? '')}`;
}

for (const block of BLOCKS) {
  if (clientsOf(block).length === 0) test(nameOf(block), BOUNDED, () => runBlock(block));
}

test('the clients of other projects connect as the pages say', { timeout: ALL_MS }, async (t) => {
  // All at once, and before the first test, so that the time of a download is no other test's.
  await Promise.all(Object.values(CLIENTS).map((spec) => npmPrograms([spec])));
  for (const block of BLOCKS.filter((one) => clientsOf(one).length > 0)) {
    const found = await npmPrograms(clientsOf(block).map((name) => CLIENTS[name]));
    const skip = 'missing' in found && found.missing;
    const programs = 'path' in found ? found.path.split(delimiter) : [];
    await t.test(nameOf(block), { ...BOUNDED, skip }, () => runBlock(block, programs));
  }
});

test('the command lines that are run elsewhere are on the pages', () => {
  const lines = new Set(BLOCKS.flatMap(({ text }) => text.split('\n').map((line) => line.split(/\s+#/)[0])));
  assert.deepEqual(
    Object.keys(ELSEWHERE).filter((line) => !lines.has(line)),
    [],
  );
});

test('each command of linkspan that a page names exists, with its options', BOUNDED, async () => {
  const pages = globSync(['*.md', '{docs,deploy}/**/*.md'], { cwd: ROOT, exclude: ['docs/decisions/**'] });
  const named = pages.flatMap((page) =>
    [...readFileSync(join(ROOT, page), 'utf8').matchAll(/`linkspan ([a-z][^`]*)`/g)].map(([, text = '']) => ({
      page,
      words: text.replaceAll('\\|', ' ').split(/\s+/),
    })),
  );
  assert.ok(named.length > 20);
  const helps = new Map<string, string>();
  const help = async (...words: readonly string[]): Promise<string> => {
    const key = words.join(' ');
    const known = helps.get(key) ?? (await shell(`linkspan ${key} --help`, work, environment(work))).stdout;
    helps.set(key, known);
    return known;
  };
  const top = await help();
  for (const { page, words } of named) {
    const [verb = '', sub = ''] = words;
    assert.match(top, new RegExp(`^  ${verb}\\b`, 'm'), `${page}: linkspan ${words.join(' ')}`);
    const text = await (['audit', 'config', 'key', 'policy'].includes(verb) ? help(verb, sub) : help(verb));
    for (const option of words.filter((word) => /^\[?-/.test(word)).map((word) => word.replaceAll(/[[\]]/g, ''))) {
      assert.match(text, new RegExp(`(?:^|[ ,])${option}\\b`, 'm'), `${page}: linkspan ${words.join(' ')}`);
    }
  }
});
