import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import { existsSync, globSync } from 'node:fs';
import { mkdir, mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, test } from 'node:test';
import { SHELLS } from '../../../src/cli/operator/commands.ts';
import { runCli } from '../../support/cli.ts';
import { debianPackages, type FoundProgram, installedProgram } from '../../support/programs.ts';

/** A shell that can be run, with the variables that it needs. */
interface Shell {
  readonly path: string;
  readonly env: NodeJS.ProcessEnv;
  /** The folder of its own functions; undefined if it knows it. */
  readonly functions?: string;
}

const BOUNDED = { timeout: 120_000 };

let dir = '';
/** Shells complete names of files too, so they run in a folder without any. */
let empty = '';

before(async () => {
  dir = await mkdtemp(join(tmpdir(), 'linkspan-completion-'));
  empty = join(dir, 'empty');
  await mkdir(empty);
});

after(async () => {
  await rm(dir, { recursive: true, force: true });
});

/** Returns the path of the file with the completions of a shell. */
async function scriptOf(shell: string): Promise<string> {
  const { code, stdout } = await runCli(['completion', shell], dir, { HOME: dir }, 30_000);
  assert.equal(code, 0);
  const file = join(dir, shell);
  await writeFile(file, stdout);
  return file;
}

/** Runs a program of a shell. Returns the lines that it prints, without descriptions. */
function lines({ path, env }: Shell, args: readonly string[]): string[] {
  const { status, stdout, stderr } = spawnSync(path, args, {
    encoding: 'utf8',
    env: { ...env, HOME: dir },
    cwd: empty,
  });
  assert.equal(status, 0, stderr);
  return stdout.split('\n').flatMap((line) => line.split('\t')[0] || []);
}

async function zsh(): Promise<Shell | { readonly missing: string }> {
  const installed = installedProgram('zsh');
  if ('path' in installed) return { path: installed.path, env: {} };
  const unpacked: FoundProgram = await debianPackages(['zsh']);
  if ('missing' in unpacked) return unpacked;
  // Debian 13 has it below usr/.
  const path = ['bin/zsh', 'usr/bin/zsh'].map((name) => join(unpacked.path, name)).find((name) => existsSync(name));
  return path === undefined ? { missing: "Debian's package zsh has another layout" } : { path, env: {} };
}

async function fish(): Promise<Shell | { readonly missing: string }> {
  const installed = installedProgram('fish');
  if ('path' in installed) return { path: installed.path, env: {} };
  const unpacked: FoundProgram = await debianPackages(['fish', 'fish-common', 'libpcre2-32-0']);
  if ('missing' in unpacked) return unpacked;
  const libraries = globSync(join(unpacked.path, 'usr/lib/*-linux-gnu*')).join(':');
  const functions = join(unpacked.path, 'usr/share/fish/functions');
  return { path: join(unpacked.path, 'usr/bin/fish'), env: { LD_LIBRARY_PATH: libraries }, functions };
}

const BASH = installedProgram('bash');
const ZSH = await zsh();
const FISH = await fish();

function needs(shell: object): { readonly timeout: number; readonly skip?: string } {
  return 'missing' in shell ? { ...BOUNDED, skip: String(shell.missing) } : BOUNDED;
}

const CASES: readonly { readonly words: readonly string[]; readonly expected: readonly string[] }[] = [
  { words: ['heal'], expected: ['healthcheck'] },
  { words: ['ls', 's'], expected: ['sessions', 'streams'] },
  { words: ['log-level', 'err'], expected: ['error'] },
  { words: ['key', 'ro'], expected: ['rotate'] },
  { words: ['audit', 'ver'], expected: ['verify'] },
  { words: ['status', '--sta'], expected: ['--state-dir'] },
];

test('completions name every command but those that only the gateway runs', BOUNDED, async () => {
  for (const shell of SHELLS) {
    const { code, stdout } = await runCli(['completion', shell], dir, { HOME: dir }, 30_000);
    assert.equal(code, 0);
    for (const word of ['status', 'healthcheck', 'sessions']) assert.match(stdout, new RegExp(`\\b${word}\\b`), shell);
    assert.doesNotMatch(stdout, /\bworker\b/, shell);
  }
});

test('bash accepts its completions, and completes commands, words and options', needs(BASH), async () => {
  assert.ok('path' in BASH);
  const shell = { path: BASH.path, env: {} };
  const script = await scriptOf('bash');
  lines(shell, ['-n', script]);
  for (const { words, expected } of CASES) {
    const set = `COMP_WORDS=(linkspan ${words.join(' ')}); COMP_CWORD=${words.length}`;
    const program = `. ${script}; ${set}; _linkspan; printf '%s\\n' "\${COMPREPLY[@]}"`;
    assert.deepEqual(lines(shell, ['--norc', '-c', program]), expected, words.join(' '));
  }
  const unknown = `. ${script}; COMP_WORDS=(linkspan nothing s); COMP_CWORD=2; _linkspan; printf '%s' "\${COMPREPLY[@]}"`;
  assert.deepEqual(lines(shell, ['--norc', '-c', unknown]), []);
});

test('zsh accepts its completions, and gets the commands, words and options', needs(ZSH), async () => {
  assert.ok('path' in ZSH);
  const script = await scriptOf('zsh');
  lines(ZSH, ['-n', script]);
  // The completion system of zsh needs a terminal and its own functions. It would choose from these candidates.
  const stubs = 'compdef() { }; compadd() { shift; print -l -- $@ }';
  for (const { words, expected } of CASES) {
    const program = `${stubs}; source ${script}; words=(linkspan ${words.join(' ')}); CURRENT=${words.length + 1}; _linkspan`;
    const candidates = lines(ZSH, ['-f', '-c', program]);
    const begun = words.at(-1) ?? '';
    assert.deepEqual(
      candidates.filter((one) => one.startsWith(begun)),
      expected,
      words.join(' '),
    );
  }
});

test('fish accepts its completions, and completes commands, words and options', needs(FISH), async () => {
  assert.ok('path' in FISH);
  const script = await scriptOf('fish');
  lines(FISH, ['--no-config', '-n', script]);
  const functions = FISH.functions === undefined ? '' : `set fish_function_path ${FISH.functions}; `;
  for (const { words, expected } of CASES) {
    const program = `${functions}source ${script}; complete -C 'linkspan ${words.join(' ')}'`;
    const completed = lines(FISH, ['--no-config', '-c', program]);
    assert.deepEqual(completed, expected, words.join(' '));
  }
});
