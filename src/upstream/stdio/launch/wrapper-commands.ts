import { type ChildProcess, spawn } from 'node:child_process';
import { addAbortListener } from 'node:events';
import { GatewayError } from '../../../errors.ts';
import { isFulfilled } from '../../../thrown.ts';
import { access, chmod, readFile, rename, writeFile } from 'node:fs/promises';
import { homedir } from 'node:os';
import { basename, dirname, join } from 'node:path';
import type { Logger } from 'pino';
import type { StdioTarget } from '../../../config/values/upstream-config.ts';
import { LIMITS, type LimitName } from '../../../limits.ts';
import { makeStateDir } from '../../../store/disk/state-file.ts';
import { PRINTER_BEGIN, PRINTER_END, type Launch, parsePrinterOutput } from './printed-launch.ts';
import { ProgramError } from '../spawn-failure.ts';
import { ProcessGroup } from '../process-group.ts';
import type { ProcessGuard } from '../process-guard.ts';
import { StderrLog } from '../stderr-log.ts';
import { tagVariables } from '../tagged-processes.ts';
import { configSecrets } from './config-secrets.ts';
import { isUvx, uvxPrinter, uvxLaunch, printerRun } from './uvx-command.ts';

/** The printer for npm, which runs it in place of a shell. It prints the command for the shell, and its environment. */
const PRINTING_SHELL = `#!/bin/sh
printf '%s\\0%s\\0' ${PRINTER_BEGIN} "$2"
env -0
printf '%s\\0' ${PRINTER_END}
`;

/** Longest wait for the exit of a wrapper after it has printed the command. */
const EXIT_MS = 5_000;
const KILL_MS = 1_000;

/** Returns whether the command is `npx …` or `npm exec …`, without options that concern the shell of npm. */
export function isNpx({ command, args }: Pick<StdioTarget, 'command' | 'args'>): boolean {
  const name = basename(command);
  const isExec = name === 'npx' || (name === 'npm' && (args[0] === 'exec' || args[0] === 'x'));
  // Such an argument may belong to the server. Then the wrapper keeps running, which is harmless.
  return isExec && !args.some((arg) => /^(-c|--call|--script-shell)(=|$)/.test(arg));
}

interface WrapperRun {
  readonly upstream: string;
  readonly target: StdioTarget;
  readonly env: Readonly<Record<string, string>>;
  readonly signal: AbortSignal;
  readonly log: Logger;
}

/**
 * Finds the command that an `npx` or `uvx` would run, so that no wrapper (npm and a shell, or uv) runs beside the server.
 *
 * At each start, the wrapper itself chooses the version and the source, and installs the package if necessary. Only the last step,
 * running the command, is left to the caller.
 */
export class WrapperCommands {
  readonly #dir: string;
  readonly #guard: ProcessGuard;
  readonly #log: Logger;
  readonly #onLimit: ((limit: LimitName) => void) | undefined;
  readonly #printers = new Map<string, Promise<string>>();

  /**
   * @param dir the directory for the printers.
   * @param onLimit called when a wrapper prints too much.
   */
  constructor(dir: string, guard: ProcessGuard, log: Logger, onLimit?: (limit: LimitName) => void) {
    this.#dir = dir;
    this.#guard = guard;
    this.#log = log;
    this.#onLimit = onLimit;
  }

  /**
   * Resolves with the launch of the server; undefined if it is uncertain, so that the wrapper has to run it.
   *
   * @throws {GatewayError} `upstream-unavailable`, if the wrapper gets no package to run.
   */
  async find(
    upstream: string,
    target: StdioTarget,
    env: Readonly<Record<string, string>>,
    signal: AbortSignal,
  ): Promise<Launch | undefined> {
    if (process.platform === 'win32') return undefined;
    const log = this.#log.child({ upstream });
    const run = { upstream, target, env, signal, log };
    try {
      if (isNpx(target)) return await this.#findNpx(run);
      if (isUvx(target)) return await this.#findUvx(run);
    } catch (thrown) {
      if (thrown instanceof GatewayError) throw thrown;
      log.debug({ err: thrown }, 'the wrapper did not report its command');
    }
    return undefined;
  }

  async #findNpx(run: WrapperRun): Promise<Launch | undefined> {
    if (await hasOwnShell(run.target, run.env)) return undefined;
    const npm_config_script_shell = await this.#printer('npm-shell', PRINTING_SHELL);
    const output = await this.#run({ ...run, env: { ...run.env, npm_config_script_shell } });
    const printed = parsePrinterOutput(output);
    if (printed === undefined) {
      run.log.debug('npx did not report its command');
      return undefined;
    }
    // Without a package, npm runs its shell, which is the printer.
    if (printed.text.includes(npm_config_script_shell)) throw noPackage(run);
    return { command: '/bin/sh', args: ['-c', `exec ${printed.text}`], env: printed.env, cwd: printed.env['PWD'] };
  }

  async #findUvx(run: WrapperRun): Promise<Launch | undefined> {
    const printer = await this.#printer('uvx-printer', uvxPrinter(PRINTER_BEGIN, PRINTER_END));
    const printing = printerRun(run.target, run.env, printer);
    if (printing === undefined) return undefined;
    const output = await this.#run({ ...run, target: { ...run.target, args: printing.args } }, 'closed');
    const printed = parsePrinterOutput(output);
    // If uv made an environment for this run only, uv has removed it at its end.
    const programExists = printed !== undefined && (await isFulfilled(access(printed.text)));
    if (programExists) return uvxLaunch(printed, printing.serverArgs);
    run.log.debug('uvx did not report its command');
    return undefined;
  }

  /** Writes the printer unless it is already written. Resolves with its path. */
  #printer(name: string, text: string): Promise<string> {
    const known = this.#printers.get(name);
    if (known !== undefined) return known;
    const written = writeProgram(join(this.#dir, name), text);
    this.#printers.set(name, written);
    // A full disk may have room again at the next start.
    written.catch(() => this.#printers.delete(name));
    return written;
  }

  /** Runs a wrapper. Resolves with its stdout when the command is printed or, with `closed`, when the wrapper has ended. */
  async #run({ target, env, signal, log }: WrapperRun, until: 'printed' | 'closed' = 'printed'): Promise<string> {
    // An abort during the waits before would not be noticed by a listener.
    if (signal.aborted) return '';
    const { command, args, cwd } = target;
    const tag = this.#guard.tagged.next('wrapper');
    const stdio = ['ignore', 'pipe', 'pipe'] as const;
    const child = spawn(command, args, {
      cwd,
      env: { ...env, ...tagVariables(tag) },
      detached: true,
      stdio: [...stdio],
    });
    const group = child.pid === undefined ? undefined : new ProcessGroup(child, child.pid, tag, this.#guard, log);
    using _killing = addAbortListener(signal, () => group?.kill());
    // npm and uv repeat arguments and variables in their messages.
    const stderr = new StderrLog({ log, secrets: configSecrets(target), onLimit: this.#onLimit });
    let isPrinted = false;
    try {
      const output = await outputOf(child, stderr, until);
      if (output.length > LIMITS.npxOutputChars) this.#onLimit?.('npxOutputChars');
      isPrinted = output.includes(PRINTER_END);
      return output;
    } finally {
      void group?.end(isPrinted ? EXIT_MS : 0, KILL_MS);
    }
  }
}

function noPackage({ upstream, target }: WrapperRun): GatewayError {
  const message = `command "${basename(target.command)}" names no server in its args`;
  const cause = new ProgramError('add the package of the server to "args", after -y');
  return new GatewayError('upstream-unavailable', { upstream, message, executed: 'no', retryable: false }, cause);
}

function outputOf(child: ChildProcess, stderr: StderrLog, until: 'printed' | 'closed'): Promise<string> {
  const { promise, resolve, reject } = Promise.withResolvers<string>();
  let output = '';
  const onText = (text: string) => {
    output += text;
    const isPrinted = until === 'printed' && output.includes(`${PRINTER_END}\0`);
    if (!isPrinted && output.length <= LIMITS.npxOutputChars) return;
    resolve(output);
    // It may go on for some seconds, and nobody reads that.
    child.stdout?.off('data', onText).resume();
  };
  child.stdout?.setEncoding('utf8').on('data', onText);
  stderr.read(child);
  child.once('error', reject);
  child.once('close', () => resolve(output));
  return promise;
}

async function writeProgram(path: string, text: string): Promise<string> {
  await makeStateDir(dirname(path));
  // Another process may be running the old file.
  const temporary = `${path}.${process.pid}`;
  await writeFile(temporary, text, { mode: 0o700 });
  await chmod(temporary, 0o700);
  await rename(temporary, path);
  return path;
}

/** Resolves with whether the user has configured a shell for npm, which then has to run the command. */
async function hasOwnShell({ cwd }: StdioTarget, env: Readonly<Record<string, string>>): Promise<boolean> {
  if (Object.keys(env).some((name) => name.toLowerCase() === 'npm_config_script_shell')) return true;
  for (const dir of [env['HOME'] ?? homedir(), cwd ?? process.cwd()]) {
    const text = await readFile(join(dir, '.npmrc'), 'utf8').catch(() => '');
    if (text.includes('script-shell')) return true;
  }
  return false;
}
