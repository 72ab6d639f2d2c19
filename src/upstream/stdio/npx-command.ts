import { type ChildProcess, spawn } from 'node:child_process';
import { chmod, mkdir, readFile, rename, writeFile } from 'node:fs/promises';
import { homedir } from 'node:os';
import { basename, join } from 'node:path';
import type { Logger } from 'pino';
import type { StdioTarget } from '../../config/config.ts';
import { LIMITS } from '../../limits.ts';
import { LineSplitter } from '../../protocol/lines.ts';
import { ProcessGroup } from './process-group.ts';
import type { ProcessGuard } from './process-guard.ts';
import { TAG_NAME } from './tagged-processes.ts';

/** How to start a server. */
export interface Launch {
  readonly command: string;
  readonly args: readonly string[];
  readonly env: Readonly<Record<string, string>>;
  readonly cwd: string | undefined;
}

const BEGIN = 'linkspan-npx-command';
const END = 'linkspan-npx-end';

/** npm runs this in place of a shell. It prints the command that npm would have the shell run, and its environment. */
const PRINTING_SHELL = `#!/bin/sh
printf '%s\\0%s\\0' ${BEGIN} "$2"
env -0
printf '%s\\0' ${END}
`;

/** npm is done when the command is printed, and mostly ends within this time. */
const EXIT_MS = 5_000;
const KILL_MS = 1_000;
const STDERR_LINE_BYTES = 16_384;

/** Variables of the printing shell that are not npm's. */
const NOT_PASSED_ON = new Set(['_', 'SHLVL', 'OLDPWD', 'npm_config_script_shell']);

/** Whether npm decides what is run, and a shell runs it: `npx …` or `npm exec …`, without options that concern that shell. */
export function isNpx({ command, args }: Pick<StdioTarget, 'command' | 'args'>): boolean {
  const name = basename(command);
  const isExec = name === 'npx' || (name === 'npm' && (args[0] === 'exec' || args[0] === 'x'));
  // Such an argument may be meant for the server; then the wrapper stays, which does no harm.
  return isExec && !args.some((arg) => /^(-c|--call|--script-shell)(=|$)/.test(arg));
}

/** Reads the output of the printing shell. Returns undefined for any other output. */
export function parsePrinted(output: string): Launch | undefined {
  const parts = output.split('\0');
  // Package scripts may have printed something before.
  const begin = parts.findIndex((part) => part.endsWith(BEGIN));
  const end = parts.lastIndexOf(END);
  const line = parts[begin + 1];
  if (begin < 0 || end < begin + 2 || line === undefined || line === '') return undefined;
  const variables = parts.slice(begin + 2, end).map((part): [string, string] => {
    const at = part.indexOf('=');
    return [part.slice(0, at), part.slice(at + 1)];
  });
  const env = Object.fromEntries(variables.filter(([name]) => name !== '' && !NOT_PASSED_ON.has(name)));
  return { command: '/bin/sh', args: ['-c', `exec ${line}`], env, cwd: env['PWD'] };
}

/**
 * Finds out which command an `npx` would run, so that the server runs without the npm and the shell that `npx` keeps beside it.
 *
 * npm itself decides, at each start, as it always does: which version, from where, whether to install. Only the last step, to
 * run the command, is left to the caller.
 */
export class NpxCommands {
  readonly #dir: string;
  readonly #guard: ProcessGuard;
  readonly #log: Logger;
  #shell: Promise<string> | undefined;

  /** @param dir where the printing shell is written. */
  constructor(dir: string, guard: ProcessGuard, log: Logger) {
    this.#dir = dir;
    this.#guard = guard;
    this.#log = log;
  }

  /** Returns undefined where that is not known for sure; then the wrapper runs the server. Never throws. */
  async find(
    upstream: string,
    target: StdioTarget,
    env: Readonly<Record<string, string>>,
    signal: AbortSignal,
  ): Promise<Launch | undefined> {
    if (process.platform === 'win32' || !isNpx(target) || (await hasOwnShell(target, env))) return undefined;
    const log = this.#log.child({ upstream });
    try {
      this.#shell ??= writeShell(this.#dir);
      const npm_config_script_shell = await this.#shell;
      const output = await this.#run(target, { ...env, npm_config_script_shell }, signal, log);
      const launch = parsePrinted(output);
      if (launch === undefined) log.debug('npx did not say what it runs');
      return launch;
    } catch (thrown) {
      log.debug({ err: thrown }, 'npx did not say what it runs');
      return undefined;
    }
  }

  /** Resolves with the standard output, when the command is printed or npm has ended. */
  async #run(
    { command, args, cwd }: StdioTarget,
    env: Readonly<Record<string, string>>,
    signal: AbortSignal,
    log: Logger,
  ): Promise<string> {
    const tag = this.#guard.tagged.next('npx');
    const stdio = ['ignore', 'pipe', 'pipe'] as const;
    const child = spawn(command, args, { cwd, env: { ...env, [TAG_NAME]: tag }, detached: true, stdio: [...stdio] });
    const group = child.pid === undefined ? undefined : new ProcessGroup(child, child.pid, tag, this.#guard, log);
    const kill = () => group?.kill();
    signal.addEventListener('abort', kill, { once: true });
    let isPrinted = false;
    try {
      const output = await outputOf(child, log);
      isPrinted = output.includes(END);
      return output;
    } finally {
      signal.removeEventListener('abort', kill);
      void group?.end(isPrinted ? EXIT_MS : 0, KILL_MS);
    }
  }
}

function outputOf(child: ChildProcess, log: Logger): Promise<string> {
  const { promise, resolve, reject } = Promise.withResolvers<string>();
  let output = '';
  child.stdout?.setEncoding('utf8').on('data', (text: string) => {
    output += text;
    if (output.includes(`${END}\0`) || output.length > LIMITS.npxOutputChars) resolve(output);
  });
  const words = new LineSplitter(STDERR_LINE_BYTES, (line) => log.debug({ line }, 'upstream stderr'));
  child.stderr?.on('data', (chunk: Buffer) => words.push(chunk));
  child.once('error', reject);
  child.once('close', () => resolve(output));
  return promise;
}

/** Writes the printing shell to this directory, and returns its path. */
async function writeShell(dir: string): Promise<string> {
  const path = join(dir, 'npm-shell');
  await mkdir(dir, { recursive: true, mode: 0o700 });
  // Another process may be running the old file.
  const fresh = `${path}.${process.pid}`;
  await writeFile(fresh, PRINTING_SHELL, { mode: 0o700 });
  await chmod(fresh, 0o700);
  await rename(fresh, path);
  return path;
}

/** Whether the user has chosen a shell for npm, which then has to run the command. */
async function hasOwnShell({ cwd }: StdioTarget, env: Readonly<Record<string, string>>): Promise<boolean> {
  if (Object.keys(env).some((name) => name.toLowerCase() === 'npm_config_script_shell')) return true;
  for (const dir of [env['HOME'] ?? homedir(), cwd ?? process.cwd()]) {
    const text = await readFile(join(dir, '.npmrc'), 'utf8').catch(() => '');
    if (text.includes('script-shell')) return true;
  }
  return false;
}
