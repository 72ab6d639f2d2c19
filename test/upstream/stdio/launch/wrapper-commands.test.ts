import assert from 'node:assert/strict';
import { access, mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { test } from 'node:test';
import { type Logger, pino } from 'pino';
import type { LimitName } from '../../../../src/limits.ts';
import { parsePrinterOutput } from '../../../../src/upstream/stdio/launch/printed-launch.ts';
import { isNpx, WrapperCommands } from '../../../../src/upstream/stdio/launch/wrapper-commands.ts';
import { ProcessGuard } from '../../../../src/upstream/stdio/process-guard.ts';
import { PATIENCE_MS } from '../../../support/patience.ts';

const TIMEOUT = { timeout: 120_000 };
const ON_LINUX = { ...TIMEOUT, skip: process.platform !== 'linux' };
const ROOT = join(import.meta.dirname, '../../..');
const LOG = pino({ level: 'silent' });
const MEMORY = '@modelcontextprotocol/server-memory';

function target(command: string, args: readonly string[], cwd = ROOT) {
  return { kind: 'stdio', command, args, env: {}, cwd } as const;
}

interface FindOptions {
  readonly cwd?: string;
  readonly env?: Readonly<Record<string, string>>;
  readonly onLimit?: (limit: LimitName) => void;
  readonly log?: Logger;
  readonly signal?: AbortSignal;
}

async function find(
  command: string,
  args: readonly string[],
  { cwd = ROOT, env = {}, onLimit = () => {}, log = LOG, signal = AbortSignal.timeout(PATIENCE_MS) }: FindOptions = {},
) {
  const dir = await mkdtemp(join(tmpdir(), 'linkspan-npx-'));
  const guard = new ProcessGuard(LOG);
  try {
    const { PATH = '', HOME = '' } = process.env;
    const commands = new WrapperCommands(dir, guard, log, onLimit);
    return await commands.find('up', target(command, args, cwd), { PATH, HOME, ...env }, signal);
  } finally {
    await guard[Symbol.asyncDispose]();
    await rm(dir, { recursive: true });
  }
}

// N-07
test('npm prints the command, with quoted arguments and its own environment', TIMEOUT, async () => {
  const launch = await find('npx', ['-y', MEMORY, "it's", 'a b'], { env: { OWN: 'one\ntwo' } });
  assert.deepEqual(launch?.args, ['-c', "exec 'mcp-server-memory' 'it'\\''s' 'a b'"]);
  assert.equal(launch?.cwd, ROOT);
  assert.equal(launch?.env['OWN'], 'one\ntwo');
  assert.ok(launch?.env['PATH']?.startsWith(join(ROOT, 'node_modules/.bin')));
  assert.equal(launch?.env['npm_config_script_shell'], undefined);
});

// N-07
test('the wrapper runs the server if npm runs no package or cannot find it', TIMEOUT, async () => {
  assert.equal(await find('npx', ['--offline', '-y', '@linkspan-test/there-is-no-such-package']), undefined);
  assert.equal(await find('/bin/true', []), undefined);
});

// N-07
for (const [command, ...args] of [
  ['npx', '-y'],
  ['npm', 'exec'],
  ['npx', '-y', '-p', MEMORY],
] as const) {
  test(`a start of "${[command, ...args].join(' ')}" fails, since it names nothing to run`, TIMEOUT, async () => {
    await assert.rejects(find(command, args), {
      code: 'upstream-unavailable',
      detail: {
        upstream: 'up',
        message: `command "${command}" names no server in its args`,
        executed: 'no',
        retryable: false,
      },
    });
  });
}

// N-07
test('the wrapper runs the server if the user has configured a shell for npm', TIMEOUT, async () => {
  assert.equal(await find('npx', ['-y', MEMORY], { env: { npm_config_script_shell: '/bin/sh' } }), undefined);
  const home = await mkdtemp(join(tmpdir(), 'linkspan-home-'));
  await writeFile(join(home, '.npmrc'), 'script-shell=/bin/sh\n');
  assert.equal(await find('npx', ['-y', MEMORY], { env: { HOME: home } }), undefined);
  await rm(home, { recursive: true });
});

// N-07
test('the wrapper runs the server if no printer can be written, also below /proc', ON_LINUX, async () => {
  await using guard = new ProcessGuard(LOG);
  const commands = new WrapperCommands('/proc/nothing/state', guard, LOG);
  const signal = AbortSignal.timeout(PATIENCE_MS);
  assert.equal(await commands.find('up', target('npx', ['-y', MEMORY], ROOT), { HOME: '/proc' }, signal), undefined);
});

// N-07
test('only npx and npm exec without shell options count as npx', () => {
  const cases: readonly (readonly [string, readonly string[], boolean])[] = [
    ['npx', ['-y', 'x'], true],
    ['/usr/bin/npx', ['x'], true],
    ['npm', ['exec', 'x'], true],
    ['npm', ['run', 'x'], false],
    ['npx', ['-c', 'echo'], false],
    ['npx', ['--call=echo'], false],
    ['uvx', ['x'], false],
    ['node', ['npx'], false],
  ];
  for (const [command, args, expected] of cases)
    assert.equal(isNpx({ command, args }), expected, `${command} ${args.join(' ')}`);
});

// N-07
test('output that is no command is not parsed as one', () => {
  assert.equal(parsePrinterOutput(''), undefined);
  assert.equal(parsePrinterOutput('linkspan-command\0server\0A=1\0'), undefined, 'cut');
  assert.equal(parsePrinterOutput('linkspan-command\0\0A=1\0linkspan-end\0'), undefined, 'no command');
  assert.deepEqual(parsePrinterOutput('noise\nlinkspan-command\0server\0A=1=2\0PWD=/x\0linkspan-end\0'), {
    text: 'server',
    env: { A: '1=2', PWD: '/x' },
  });
});

// N-07
test('a printer that could not be written is written at the next start', TIMEOUT, async () => {
  const parent = await mkdtemp(join(tmpdir(), 'linkspan-npx-'));
  const [dir, npx] = [join(parent, 'state'), join(parent, 'npx')];
  await writeFile(npx, '#!/bin/sh\nPWD=/ exec "$npm_config_script_shell" -c server\n', { mode: 0o700 });
  await writeFile(dir, 'no folder');
  const guard = new ProcessGuard(LOG);
  const commands = new WrapperCommands(dir, guard, LOG);
  const env = { PATH: process.env['PATH'] ?? '', HOME: parent };
  const found = () => commands.find('up', target(npx, [], parent), env, AbortSignal.timeout(PATIENCE_MS));
  try {
    assert.equal(await found(), undefined);
    await rm(dir);
    assert.deepEqual((await found())?.args, ['-c', 'exec server']);
  } finally {
    await guard[Symbol.asyncDispose]();
    await rm(parent, { recursive: true });
  }
});

// N-07
test('limit npxOutputChars: with longer output, the wrapper runs the server', TIMEOUT, async () => {
  const dir = await mkdtemp(join(tmpdir(), 'linkspan-npx-'));
  const flood = join(dir, 'npx');
  await writeFile(flood, '#!/bin/sh\nexec yes linkspan\n', { mode: 0o700 });
  const limits: LimitName[] = [];
  assert.equal(await find(flood, [], { onLimit: (limit) => limits.push(limit) }), undefined);
  assert.deepEqual(limits, ['npxOutputChars']);
  await rm(dir, { recursive: true });
});

// N-07
test('the stderr of a wrapper is logged without secrets, escaped and bounded', TIMEOUT, async () => {
  const dir = await mkdtemp(join(tmpdir(), 'linkspan-npx-'));
  const loud = join(dir, 'npx');
  await writeFile(loud, '#!/bin/sh\nprintf "npm error $* \\001\\n%.0s" $(seq 1000) >&2\n', { mode: 0o700 });
  const lines: string[] = [];
  const log = pino({ level: 'debug' }, { write: (line: string) => lines.push(line) });
  const limits: LimitName[] = [];
  await find(loud, ['x', '--token=secret-0123'], { log, onLimit: (limit) => limits.push(limit) });
  await rm(dir, { recursive: true });
  const printed = lines.filter((line) => line.includes('"upstream stderr"'));
  assert.match(printed[0] ?? '', /"line":"npm error x --token=\[redacted\] \\\\u0001"/);
  assert.ok(printed.length < 1_000, `${printed.length} lines`);
  assert.ok(lines.some((line) => line.includes('lines of upstream stderr are not logged')));
  assert.ok(limits.includes('stderrLinesPerSecond'));
  assert.ok(!lines.join('').includes('secret-0123'));
});

// N-07
test('no wrapper is started for a start that was aborted meanwhile', TIMEOUT, async () => {
  const dir = await mkdtemp(join(tmpdir(), 'linkspan-npx-'));
  const npx = join(dir, 'npx');
  await writeFile(npx, `#!/bin/sh\ntouch '${dir}/started'\n`, { mode: 0o700 });
  assert.equal(await find(npx, ['x'], { signal: AbortSignal.abort() }), undefined);
  await assert.rejects(access(join(dir, 'started')));
  await rm(dir, { recursive: true });
});
