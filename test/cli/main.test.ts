import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { randomBytes } from 'node:crypto';
import { once } from 'node:events';
import { closeSync, existsSync, openSync, readFileSync, statSync } from 'node:fs';
import { mkdtemp, readdir, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { text } from 'node:stream/consumers';
import { after, before, test } from 'node:test';
import { fileURLToPath } from 'node:url';
import { Child } from '../support/child.ts';
import { type Ran, runCli } from '../support/cli.ts';
import { startGateway } from '../support/gateway.ts';
import { MAIN } from '../support/program.ts';
import { waitUntil } from '../support/wait-until.ts';

const MANIFEST: { version: string; engines: { node: string } } = JSON.parse(
  readFileSync(new URL('../../package.json', import.meta.url), 'utf8'),
);
const BOUNDED = { timeout: 120_000 };

let dir = '';

before(async () => {
  dir = await mkdtemp(join(tmpdir(), 'linkspan-cli-'));
  const good = {
    mcpServers: { Files: { command: 'npx', args: ['${SECRET}'] }, web: { url: 'https://x/${SECRET}', required: true } },
    gateway: { stateDir: '/state', profiles: { all: {} } },
  };
  await writeFile(join(dir, 'good.json'), JSON.stringify(good));
  await writeFile(join(dir, 'bad.yaml'), 'mcpServers:\n  a:\n    url: https://x\n    timeouts: {call: 30}\n');
});

after(async () => {
  await rm(dir, { recursive: true });
});

/** Runs the command line from source, with only these variables in its environment. */
function linkspan(args: readonly string[], env: NodeJS.ProcessEnv = {}): Promise<Ran> {
  return runCli(args, dir, env, 15_000);
}

test('version prints the version of package.json', BOUNDED, async () => {
  assert.deepEqual(await linkspan(['version']), { code: 0, stdout: `${MANIFEST.version}\n`, stderr: '' });
});

test('help names every verb and shows examples', BOUNDED, async () => {
  const { code, stdout, stderr } = await linkspan(['--help']);
  assert.deepEqual([code, stderr], [0, '']);
  for (const verb of ['run', 'prefetch', 'validate', 'schema', 'stdio', 'key', 'version'])
    assert.match(stdout, new RegExp(`^  ${verb} `, 'm'));
  assert.match(stdout, /Examples:\n {2}linkspan run --config/);
});

const misuses = [
  [],
  ['serve'],
  ['ls', 'nothing'],
  ['call'],
  ['completion'],
  ['validate', '--config', 'good.json', '--colour'],
];

for (const args of misuses) {
  test(`"linkspan ${args.join(' ')}" exits with 2, usage on stderr`, BOUNDED, async () => {
    const { code, stdout, stderr } = await linkspan(args);
    assert.deepEqual([code, stdout], [2, '']);
    assert.match(stderr, /linkspan --help|Usage: linkspan/);
  });
}

const ON_LINUX = { ...BOUNDED, skip: process.platform !== 'linux' };

test('run ends where no state directory can be made, also below /proc', ON_LINUX, async () => {
  const gateway = { listen: '127.0.0.1:0', operator: false };
  await writeFile(join(dir, 'homeless.json'), JSON.stringify({ mcpServers: {}, gateway }));
  const { code, stderr } = await linkspan(['run', '--config', 'homeless.json'], { HOME: '/proc' });
  assert.equal(code, 1);
  assert.match(stderr, /The state directory \/proc\/\S+ cannot be used: it does not exist and cannot be made/);
  assert.ok(!stderr.includes(' at '), 'no stack');
});

test('validate prints endpoints and upstreams, and no secret', BOUNDED, async () => {
  const PATH = await folderWith('npx');
  const { code, stdout, stderr } = await linkspan(['validate', '--config', 'good.json'], { SECRET: 'hunter2', PATH });
  assert.deepEqual([code, stderr], [0, '']);
  assert.equal(
    stdout,
    [
      'good.json is valid.',
      '',
      'clients    http://127.0.0.1:3000',
      '  /mcp        all 2 upstreams',
      '  /mcp/files  stdio npx, one per session, lazy',
      '  /mcp/web    http, one per session, lazy, required',
      '  /mcp/all    profile of files, web',
      'operators  http://127.0.0.1:3001',
      'state      /state',
      '',
    ].join('\n'),
  );
});

test('validate shows the first word of a command with its arguments', BOUNDED, async () => {
  const mcpServers = { a: { command: 'npx -y x --token=hunter2' } };
  await writeFile(join(dir, 'words.json'), JSON.stringify({ mcpServers }));
  const { stdout, stderr } = await linkspan(['validate', '--config', 'words.json'], { PATH: dir });
  assert.match(stdout, /^ {2}\/mcp\/a {2}stdio npx …, .*; CANNOT START$/m);
  assert.doesNotMatch(stdout + stderr, /hunter2/);
});

/** Creates a folder with a program of this name, for PATH. */
async function folderWith(program: string): Promise<string> {
  const folder = await mkdtemp(join(dir, 'path-'));
  await writeFile(join(folder, program), '#!/bin/sh\n', { mode: 0o755 });
  return folder;
}

// N-05
test('prefetch stores the lists of each upstream, and names those that failed', BOUNDED, async () => {
  const memory = fileURLToPath(
    new URL('../../node_modules/@modelcontextprotocol/server-memory/dist/index.js', import.meta.url),
  );
  const state = join(dir, 'prefetched');
  const env = { MEMORY_FILE_PATH: join(dir, 'memory.json') };
  const mcpServers = {
    memory: { command: process.execPath, args: [memory], env },
    broken: { command: process.execPath, args: ['-e', 'process.exit(3)'] },
  };
  await writeFile(join(dir, 'prefetch.json'), JSON.stringify({ mcpServers, gateway: { stateDir: state } }));
  const { code, stdout } = await linkspan(['prefetch', '--config', 'prefetch.json']);
  assert.equal(code, 1);
  assert.match(stdout, /^memory: 9 tools, 0 prompts, \d resources?\nbroken: FAILED .*exit.*\n$/);
  const kept = await readdir(join(state, 'offers'));
  assert.deepEqual(kept.map((name) => name.replace(/-[0-9a-f]{12}/, '')).toSorted(), [
    'broken.failed',
    'memory.legacy.json',
    'memory.listed',
  ]);
});

test('a gateway that starts during a prefetch keeps its sessions, and is found', BOUNDED, async () => {
  const own = await mkdtemp(join(dir, 'prefetch-'));
  const mark = join(own, 'started');
  const program = `fs.writeFileSync(${JSON.stringify(mark)}, ''); process.stdin.on('end', () => process.exit()).resume()`;
  const slow = { command: process.execPath, args: ['-e', program] };
  const file = join(own, 'prefetch.json');
  await writeFile(file, JSON.stringify({ mcpServers: { slow }, gateway: { stateDir: join(own, 'state') } }));
  await using prefetch = await Child.start(process.execPath, [MAIN, 'prefetch', '--config', file]);
  await waitUntil(() => existsSync(mark));
  await using beside = await startGateway({ mcpServers: {} }, { dir: own });
  assert.doesNotMatch(beside.logs(), /sessions are not kept/);
  assert.ok(prefetch.running);
  assert.equal((await linkspan(['healthcheck', '--config', beside.configFile])).code, 0);
});

test('prefetch refuses a state directory that it cannot write', BOUNDED, async () => {
  const place = join(dir, 'no-directory');
  await writeFile(place, '');
  const gateway = { stateDir: join(place, 'state') };
  await writeFile(join(dir, 'unwritable.json'), JSON.stringify({ mcpServers: {}, gateway }));
  const { code, stderr } = await linkspan(['prefetch', '--config', 'unwritable.json']);
  assert.equal(code, 1);
  assert.match(stderr, /^linkspan: .*no-directory/m);
});

test('prefetch says that replicas do not read what it stores', BOUNDED, async () => {
  const state = join(dir, 'prefetched-replica');
  const gateway = {
    stateDir: state,
    redis: { url: 'redis://127.0.0.1:9/0', wrappingKeys: [randomBytes(32).toString('base64')] },
  };
  await writeFile(join(dir, 'replica.json'), JSON.stringify({ mcpServers: {}, gateway }));
  const { code, stderr } = await linkspan(['prefetch', '--config', 'replica.json']);
  assert.equal(code, 0, stderr);
  assert.match(stderr, /^replicas keep the lists in Redis .* stores in .*prefetched-replica$/m);
});

// N-12
test('validate names a command that is not on PATH, and the file is valid', BOUNDED, async () => {
  const { code, stdout, stderr } = await linkspan(['validate', '--config', 'good.json'], { SECRET: 'x', PATH: dir });
  assert.equal(code, 0);
  assert.match(stderr, /^warning: upstream files cannot be started: command "npx" was not found; install Node\.js/m);
  assert.match(stdout, /^ {2}\/mcp\/files {2}stdio npx, .*; CANNOT START$/m);
});

// N-12
test('validate --start prints the lists or the failure of each upstream', BOUNDED, async () => {
  const memory = fileURLToPath(
    new URL('../../node_modules/@modelcontextprotocol/server-memory/dist/index.js', import.meta.url),
  );
  const env = { MEMORY_FILE_PATH: join(dir, 'memory.json') };
  const mcpServers = {
    memory: { command: process.execPath, args: [memory], env },
    broken: { command: process.execPath, args: ['-e', 'process.exit(3)'] },
  };
  await writeFile(join(dir, 'start.json'), JSON.stringify({ mcpServers, gateway: { stateDir: join(dir, 'unused') } }));
  const { code, stdout } = await linkspan(['validate', '--start', '--config', 'start.json']);
  assert.equal(code, 1);
  assert.match(stdout, /^ {2}\/mcp\/memory {2}ready, 9 tools, 0 prompts, \d resources?; stdio node/m);
  assert.match(stdout, /^ {2}\/mcp\/broken {2}FAILED .*exit/m);
  assert.ok(!existsSync(join(dir, 'unused')));
  const { stdout: text } = await linkspan(['validate', '--start', '--json', '--config', 'start.json']);
  assert.partialDeepStrictEqual(JSON.parse(text), {
    valid: true,
    upstreams: [
      { id: 'memory', state: 'ready', tools: 9 },
      { id: 'broken', state: 'failed' },
    ],
  });
});

test('validate --start and prefetch start a failing server once', BOUNDED, async () => {
  const starts = join(dir, 'starts');
  const code = `require('fs').appendFileSync(${JSON.stringify(starts)}, '.'); process.exit(3)`;
  const slow = await serverOf('slow', [tool('one')]);
  const mcpServers = {
    broken: { command: process.execPath, args: ['-e', code] },
    slow: { command: '/bin/sh', args: ['-c', 'sleep 3; exec "$@"', 'sh', slow.command, ...slow.args] }, // the time of several restarts of the other
  };
  await writeFile(join(dir, 'once.json'), JSON.stringify({ mcpServers, gateway: { stateDir: join(dir, 'once') } }));
  const tried = await linkspan(['validate', '--start', '--config', 'once.json']);
  assert.match(tried.stdout, /^ {2}\/mcp\/broken {2}FAILED .*exited with code 3/m);
  assert.match(tried.stdout, /^ {2}\/mcp\/slow {4}ready, 1 tool/m);
  assert.equal(readFileSync(starts, 'utf8'), '.');
  const prefetched = await linkspan(['prefetch', '--config', 'once.json']);
  assert.match(prefetched.stdout, /^broken: FAILED .*exited with code 3/m);
  assert.equal(readFileSync(starts, 'utf8'), '..');
});

/** A stdio server with these tools. */
async function serverOf(name: string, tools: readonly object[]) {
  const file = join(dir, `${name}.lists.json`);
  await writeFile(file, JSON.stringify({ tools }));
  return { command: process.execPath, args: [LISTED, file], prefix: '' };
}

const LISTED = fileURLToPath(new URL('../fixtures/servers/listed-stdio.ts', import.meta.url));
const tool = (name: string) => ({ name, inputSchema: { type: 'object' } });

/** Writes a config and tries it. */
async function tryConfig(config: object): Promise<Ran> {
  await writeFile(join(dir, 'gaps.json'), JSON.stringify(config));
  return await linkspan(['validate', '--start', '--config', 'gaps.json']);
}

test('validate --start writes nothing for npx into the state directory', BOUNDED, async () => {
  const server = await serverOf('npx', [tool('one')]);
  const { args } = server;
  const npx = join(dir, 'npx');
  await writeFile(npx, `#!/bin/sh\nexec "${process.execPath}" "$@"\n`, { mode: 0o700 });
  const stateDir = join(dir, 'untouched');
  const { code } = await tryConfig({ mcpServers: { a: { command: npx, args } }, gateway: { stateDir } });
  assert.deepEqual([code, existsSync(stateDir)], [0, false]);
});

test('validate --start removes its state directory when a signal ends it', BOUNDED, async () => {
  const temporary = await mkdtemp(join(dir, 'tmp-'));
  const started = join(temporary, 'started');
  const code = `require('fs').writeFileSync(${JSON.stringify(started)}, ''); process.stdin.resume()`;
  const mcpServers = { silent: { command: process.execPath, args: ['-e', code] } };
  await writeFile(join(dir, 'signal.json'), JSON.stringify({ mcpServers }));
  const own = async () => (await readdir(temporary)).filter((name) => name.startsWith('linkspan-validate-'));
  const args = [MAIN, 'validate', '--start', '--config', 'signal.json'];
  const child = spawn(process.execPath, args, { cwd: dir, env: { HOME: dir, TMPDIR: temporary }, stdio: 'ignore' });
  const exited = once(child, 'exit');
  await waitUntil(() => existsSync(started));
  assert.equal((await own()).length, 1);
  child.kill('SIGINT');
  assert.deepEqual(await exited, [null, 'SIGINT']);
  assert.deepEqual(await own(), []);
});

// N-86
test('validate --start names what clients would not see', BOUNDED, async () => {
  const a = await serverOf('a', [tool('search'), tool('get'), { name: 'broken', inputSchema: [] }]);
  const b = await serverOf('b', [tool('search'), tool('put')]);
  const { code, stderr } = await tryConfig({
    mcpServers: { a: { ...a, excludeTools: ['gett'] }, b: { ...b, includeTools: ['search', 'pu?', 'delete*'] } },
    gateway: { profiles: { dev: { upstreams: ['a'], includeTools: ['search', 'find'], renames: { fetch: 'get2' } } } },
  });
  for (const line of [
    /^warning: upstream a: tool "broken": item left out: has an "inputSchema"/m,
    /^warning: upstream a: excludeTools "gett" matches no tool; it lists search, get, broken$/m,
    /^warning: upstream a: profile "dev": includeTools "find" matches no tool; it lists search, get, broken$/m,
    /^warning: upstream a: profile "dev": renames "fetch" matches no tool/m,
    /^warning: upstream b: tool "search": item left out: would be called "search", as "search" of upstream "a"/m,
    /^warning: upstream b: includeTools "delete\*" matches no tool; it lists search, put$/m,
  ]) {
    assert.match(stderr, line);
  }
  assert.equal(code, 0);
});

test('validate --start and prefetch leave lists of callers to callers', BOUNDED, async () => {
  const personal = { url: 'https://personal.invalid/mcp', auth: { kind: 'identity' }, required: true };
  const config = { mcpServers: { personal }, gateway: { stateDir: join(dir, 'callers') } };
  const tried = await tryConfig(config);
  assert.match(tried.stdout, /^ {2}\/mcp\/personal {2}depends on the caller; not started; http, /m);
  assert.match(tried.stderr, /required: has no use with auth\.kind "identity"/);
  assert.equal(tried.code, 0);
  const json = await linkspan(['validate', '--start', '--json', '--config', 'gaps.json']);
  const [upstream] = JSON.parse(json.stdout).upstreams;
  assert.partialDeepStrictEqual(upstream, { state: 'configured', reason: 'depends on the caller; not started' });
  const prefetched = await linkspan(['prefetch', '--config', 'gaps.json']);
  assert.deepEqual([prefetched.code, prefetched.stdout], [0, 'personal: depends on the caller; not started\n']);
});

// N-86
test('validate --start fails if nothing of an upstream or a profile is left', BOUNDED, async () => {
  const same = [tool('one'), tool('two')];
  const [a, b, c] = [await serverOf('a', same), await serverOf('b', same), await serverOf('c', [tool('three')])];
  const { code, stderr } = await tryConfig({
    mcpServers: { a, b, c: { ...c, includeTools: ['tree'] } },
    gateway: { profiles: { none: { upstreams: ['a', 'b'], includeTools: ['missing'] } } },
  });
  assert.match(stderr, /^warning: upstream b: Clients get nothing of it at \/mcp and \/mcp\/none$/m);
  assert.match(stderr, /^warning: upstream c: Clients get nothing of it at \/mcp and \/mcp\/c$/m);
  assert.equal(code, 1);
});

// N-09
test('validate with one wrong entry exits with 1, names its place, shows the rest', BOUNDED, async () => {
  const others =
    '"b": {"url": "https://x"}, "c": {"command": "cat", "cwd": "/nowhere"}, "d": {"url": "https://x", "disabled": true}';
  await writeFile(join(dir, 'mixed.json'), `{"mcpServers": {"a": {"type": "ws"}, ${others}}}`);
  const { code, stdout, stderr } = await linkspan(['validate', '--config', 'mixed.json']);
  assert.equal(code, 1);
  assert.match(stderr, /^mixed\.json:1:31 mcpServers\.a\.type: expected one of/m);
  assert.match(stdout, /^ {2}\/mcp\/a {2}FAILED .*\n {2}\/mcp\/b {2}http, /m);
  assert.match(
    stderr,
    /^warning: upstream c cannot be started: the working directory of command "cat" does not exist or is no directory \(cwd: \/\S+\)$/m,
  );
  assert.match(stdout, /^ {2}\/mcp\/c {2}stdio cat, .*; CANNOT START$/m);
  assert.match(stdout, /^not served d$/m);
  assert.doesNotMatch(stderr, /upstream a cannot be started/, 'its problem is there once');
});

// N-12
test('schema --write writes the given file and no other', BOUNDED, async () => {
  const published = new URL('../../config/linkspan.schema.json', import.meta.url);
  const { mtimeMs } = statSync(published);
  assert.deepEqual(await linkspan(['schema', '--write', 'mine.json']), { code: 0, stdout: '', stderr: '' });
  assert.equal(readFileSync(join(dir, 'mine.json'), 'utf8'), readFileSync(published, 'utf8'));
  assert.equal((await linkspan(['schema', '--write'])).code, 2);
  assert.equal(statSync(published).mtimeMs, mtimeMs);
});

test('validate names the upstream with an unset variable, and the file is valid', BOUNDED, async () => {
  const { code, stdout, stderr } = await linkspan(['validate', '--config', 'good.json']);
  assert.equal(code, 0);
  assert.match(
    stderr,
    /^warning: upstream files cannot be started: environment variable SECRET is not set \(good\.json:1:\d+, mcpServers\.Files\.args\[0\]\)$/m,
  );
  assert.match(stdout, /^ {2}\/mcp\/files {2}FAILED environment variable SECRET is not set/m);
});

test('validate --json prints the same as JSON', BOUNDED, async () => {
  const { code, stdout, stderr } = await linkspan([
    'validate',
    '--config',
    'good.json',
    '--json',
    '--listen',
    '[::1]:1',
  ]);
  assert.deepEqual([code, stderr], [0, '']);
  const printed: unknown = JSON.parse(stdout);
  assert.partialDeepStrictEqual(printed, {
    valid: true,
    listen: '[::1]:1',
    operator: '127.0.0.1:3001',
    upstreams: [{ id: 'files', title: 'Files', endpoint: '/mcp/files', transport: 'stdio' }, { id: 'web' }],
    profiles: [{ id: 'all', endpoint: '/mcp/all', upstreams: ['files', 'web'] }],
    warnings: [],
  });
});

const PROBLEM = 'mcpServers.a.timeouts.call: expected a duration such as "30s", got 30 (did you mean "30s"?)';

for (const verb of ['validate', 'run', 'stdio']) {
  test(`${verb} of a wrong config exits with 1 and names the place on stderr`, BOUNDED, async () => {
    assert.deepEqual(await linkspan([verb, '--config', 'bad.yaml']), {
      code: 1,
      stdout: '',
      stderr: `bad.yaml:4:22 ${PROBLEM}\n`,
    });
  });
}

test('validate --json of a wrong config exits with 1 and prints the problems on stdout', BOUNDED, async () => {
  const { code, stdout, stderr } = await linkspan(['validate', '--config', 'bad.yaml', '--json']);
  assert.deepEqual([code, stderr], [1, '']);
  const message = PROBLEM.slice(PROBLEM.indexOf(' ') + 1);
  const problem = { file: 'bad.yaml', line: 4, column: 22, key: 'mcpServers.a.timeouts.call', message };
  assert.deepEqual(JSON.parse(stdout), { valid: false, problems: [problem] });
});

test('schema prints the published schema', BOUNDED, async () => {
  const { code, stdout } = await linkspan(['schema']);
  assert.equal(code, 0);
  assert.equal(stdout, readFileSync(new URL('../../config/linkspan.schema.json', import.meta.url), 'utf8'));
});

test('the oldest Node that main accepts is that of package.json', () => {
  const [, major, minor] = /^>=(\d+)\.(\d+)$/.exec(MANIFEST.engines.node) ?? [];
  assert.match(readFileSync(MAIN, 'utf8'), new RegExp(`OLDEST = \\[${major}, ${minor}\\]`));
});

test('on an older Node, main names the required version and loads no other module', BOUNDED, async () => {
  const older = 'Object.defineProperty(process,"versions",{value:{...process.versions,node:"20.11.1"}})';
  const ran = await linkspan(['version'], {
    NODE_OPTIONS: `--import=data:text/javascript,${encodeURIComponent(older)}`,
  });
  assert.deepEqual(ran, { code: 1, stdout: '', stderr: 'linkspan needs Node 22.19 or newer; this is Node 20.11.1.\n' });
});

test('output that cannot be written, such as on a full disk, is a failure', BOUNDED, async () => {
  const full = openSync('/dev/full', 'w');
  try {
    const child = spawn(process.execPath, [MAIN, 'schema'], { stdio: ['ignore', full, 'pipe'] });
    const ended = once(child, 'exit');
    assert.ok(child.stderr !== null);
    const stderr = await text(child.stderr);
    const [code] = await ended;
    assert.equal(code, 1);
    assert.match(stderr, /^linkspan: the output was not written: ENOSPC/);
  } finally {
    closeSync(full);
  }
});
