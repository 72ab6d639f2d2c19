import { type ChildProcess, spawn } from 'node:child_process';
import { access, chmod, mkdir, readFile, rename, writeFile } from 'node:fs/promises';
import { homedir } from 'node:os';
import { basename, dirname, join } from 'node:path';
import type { Logger } from 'pino';
import type { StdioTarget } from '../../config/config.ts';
import { LIMITS } from '../../limits.ts';
import { LineSplitter } from '../../protocol/lines.ts';
import { BEGIN, END, type Launch, parsePrinted } from './printed-launch.ts';
import { ProcessGroup } from './process-group.ts';
import type { ProcessGuard } from './process-guard.ts';
import { TAG_NAME } from './tagged-processes.ts';
import { isUvx, PRINTING_PROGRAM, uvxLaunch, uvxQuestion } from './uvx-command.ts';

/** npm runs this in place of a shell. It prints the command that npm would have the shell run, and its environment. */
const PRINTING_SHELL = `#!/bin/sh
printf '%s\\0%s\\0' ${BEGIN} "$2"
env -0
printf '%s\\0' ${END}
`;

/** A wrapper is done when the command is printed, and mostly ends within this time. */
const EXIT_MS = 5_000;
const KILL_MS = 1_000;
const STDERR_LINE_BYTES = 16_384;

/** Whether npm decides what is run, and a shell runs it: `npx …` or `npm exec …`, without options that concern that shell. */
export function isNpx({ command, args }: Pick<StdioTarget, 'command' | 'args'>): boolean {
  const name = basename(command);
  const isExec = name === 'npx' || (name === 'npm' && (args[0] === 'exec' || args[0] === 'x'));
  // Such an argument may be meant for the server; then the wrapper stays, which does no harm.
  return isExec && !args.some((arg) => /^(-c|--call|--script-shell)(=|$)/.test(arg));
}

/**
 * Finds out which command an `npx` or `uvx` would run, so that the server runs without the wrapper beside it: npm and a shell,
 * or uv.
 *
 * The wrapper itself decides, at each start, as it always does: which version, from where, whether to install. Only the last
 * step, to run the command, is left to the caller.
 */
export class WrapperCommands {
  readonly #dir: string;
  readonly #guard: ProcessGuard;
  readonly #log: Logger;
  readonly #printers = new Map<string, Promise<string>>();

  /** @param dir where the printers are written. */
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
    if (process.platform === 'win32') return undefined;
    const log = this.#log.child({ upstream });
    try {
      if (isNpx(target)) return await this.#findNpx(target, env, signal, log);
      if (isUvx(target)) return await this.#findUvx(target, env, signal, log);
    } catch (thrown) {
      log.debug({ err: thrown }, 'the wrapper did not say what it runs');
    }
    return undefined;
  }

  async #findNpx(
    target: StdioTarget,
    env: Readonly<Record<string, string>>,
    signal: AbortSignal,
    log: Logger,
  ): Promise<Launch | undefined> {
    if (await hasOwnShell(target, env)) return undefined;
    const npm_config_script_shell = await this.#printer('npm-shell', PRINTING_SHELL);
    const output = await this.#run(target, { ...env, npm_config_script_shell }, signal, log);
    const printed = parsePrinted(output);
    if (printed === undefined) {
      log.debug('npx did not say what it runs');
      return undefined;
    }
    return { command: '/bin/sh', args: ['-c', `exec ${printed.text}`], env: printed.env, cwd: printed.env['PWD'] };
  }

  async #findUvx(
    target: StdioTarget,
    env: Readonly<Record<string, string>>,
    signal: AbortSignal,
    log: Logger,
  ): Promise<Launch | undefined> {
    const printer = await this.#printer('uvx-printer', PRINTING_PROGRAM(BEGIN, END));
    const question = uvxQuestion(target, env, printer);
    if (question === undefined) return undefined;
    const output = await this.#run({ ...target, args: question.args }, env, signal, log, 'closed');
    const printed = parsePrinted(output);
    // An environment that uv made for this one run is gone when uv has ended.
    const isThere =
      printed !== undefined &&
      (await access(printed.text).then(
        () => true,
        () => false,
      ));
    if (isThere) return uvxLaunch(printed, question.serverArgs);
    log.debug('uvx did not say what it runs');
    return undefined;
  }

  /** Writes the printer where that was not done yet, and returns its path. */
  #printer(name: string, text: string): Promise<string> {
    const known = this.#printers.get(name) ?? writeProgram(join(this.#dir, name), text);
    this.#printers.set(name, known);
    return known;
  }

  /** Resolves with the standard output, when the command is printed or, for `closed`, when the wrapper has ended. */
  async #run(
    { command, args, cwd }: StdioTarget,
    env: Readonly<Record<string, string>>,
    signal: AbortSignal,
    log: Logger,
    until: 'printed' | 'closed' = 'printed',
  ): Promise<string> {
    const tag = this.#guard.tagged.next('wrapper');
    const stdio = ['ignore', 'pipe', 'pipe'] as const;
    const child = spawn(command, args, { cwd, env: { ...env, [TAG_NAME]: tag }, detached: true, stdio: [...stdio] });
    const group = child.pid === undefined ? undefined : new ProcessGroup(child, child.pid, tag, this.#guard, log);
    const kill = () => group?.kill();
    signal.addEventListener('abort', kill, { once: true });
    let isPrinted = false;
    try {
      const output = await outputOf(child, log, until);
      isPrinted = output.includes(END);
      return output;
    } finally {
      signal.removeEventListener('abort', kill);
      void group?.end(isPrinted ? EXIT_MS : 0, KILL_MS);
    }
  }
}

function outputOf(child: ChildProcess, log: Logger, until: 'printed' | 'closed'): Promise<string> {
  const { promise, resolve, reject } = Promise.withResolvers<string>();
  let output = '';
  child.stdout?.setEncoding('utf8').on('data', (text: string) => {
    output += text;
    const isPrinted = until === 'printed' && output.includes(`${END}\0`);
    if (isPrinted || output.length > LIMITS.npxOutputChars) resolve(output);
  });
  const words = new LineSplitter(STDERR_LINE_BYTES, (line) => log.debug({ line }, 'upstream stderr'));
  child.stderr?.on('data', (chunk: Buffer) => words.push(chunk));
  child.once('error', reject);
  child.once('close', () => resolve(output));
  return promise;
}

async function writeProgram(path: string, text: string): Promise<string> {
  await mkdir(dirname(path), { recursive: true, mode: 0o700 });
  // Another process may be running the old file.
  const fresh = `${path}.${process.pid}`;
  await writeFile(fresh, text, { mode: 0o700 });
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
