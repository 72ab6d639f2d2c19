import { type ChildProcess, spawn, spawnSync } from 'node:child_process';
import { once } from 'node:events';
import { open, readFile } from 'node:fs/promises';
import { cpus } from 'node:os';
import { join } from 'node:path';
import { setTimeout as delay } from 'node:timers/promises';
import { childrenOf } from './process-cost.ts';

const POLL_MS = 20;
const STOP_MS = 8_000;

const living = new Set<ChildProcess>();
let guarded = false;

/** Workers of nginx outlive their parent, and children of a gateway need its help to end. */
function killWithChildren(child: ChildProcess): void {
  const children = child.pid === undefined ? [] : childrenOf(child.pid);
  child.kill('SIGKILL');
  for (const pid of children) {
    try {
      process.kill(pid, 'SIGKILL');
    } catch {
      // The process has ended in the meantime.
    }
  }
}

/** Kills all programs when this process exits. */
function guard(): void {
  if (guarded) return;
  guarded = true;
  process.once('exit', () => {
    for (const child of living) killWithChildren(child);
  });
  for (const [signal, code] of [['SIGINT', 130] as const, ['SIGTERM', 143] as const]) {
    process.once(signal, () => process.exit(code));
  }
}

/** Returns the command on one core; unchanged if no core is given. */
export function pinned(core: number | undefined, command: readonly string[]): readonly string[] {
  return core === undefined ? command : [TASKSET, '-c', String(core), ...command];
}

/** Returns the command on every core, even if this process is on one. */
export function onEveryCore(command: readonly string[]): readonly string[] {
  return [TASKSET, '-c', `0-${cpus().length - 1}`, ...command];
}

// With its path, because a gateway starts its stdio children with a restricted environment.
const TASKSET = '/usr/bin/taskset';

/** Returns whether a command can be put on the second core. */
export function canPin(): boolean {
  const [command = '', ...args] = pinned(1, ['true']);
  return spawnSync(command, args).status === 0;
}

/**
 * A program under test, or one that helps. Its output goes to a file instead of a pipe: reading an access log in
 * this
 * process would take time from the measured program.
 */
export class Program implements AsyncDisposable {
  readonly pid: number;
  readonly #name: string;
  /** Only of use for its messages; the rest is done here. */
  readonly child: ChildProcess;
  readonly #logFile: string;

  private constructor(name: string, child: ChildProcess, pid: number, logFile: string) {
    this.#name = name;
    this.child = child;
    this.pid = pid;
    this.#logFile = logFile;
  }

  /**
   * @param dir folder of `<name>.log`.
   * @param listens whether it takes messages from this process.
   * @throws {Error} if the program cannot be started.
   */
  static async start(
    name: string,
    [command = '', ...args]: readonly string[],
    dir: string,
    env: Readonly<Record<string, string>> = {},
    listens?: 'listens',
  ): Promise<Program> {
    guard();
    const logFile = join(dir, `${name}.log`);
    const log = await open(logFile, 'w');
    try {
      const channel = listens === undefined ? [] : ['ipc' as const];
      const stdio = ['ignore' as const, log.fd, log.fd, ...channel];
      const child = spawn(command, args, { stdio, env: { ...process.env, ...env } });
      living.add(child);
      child.once('exit', () => living.delete(child));
      await once(child, 'spawn');
      if (child.pid === undefined) throw new Error(`${command} has no process id`);
      return new Program(name, child, child.pid, logFile);
    } finally {
      await log.close();
    }
  }

  get running(): boolean {
    return this.child.exitCode === null && this.child.signalCode === null;
  }

  log(): Promise<string> {
    return readFile(this.#logFile, 'utf8');
  }

  /** Resolves with the first defined value of `find`. @throws {Error} with the log, if that takes too long. */
  async until<T>(find: () => T | undefined | Promise<T | undefined>, timeoutMs: number): Promise<T> {
    const untilMs = performance.now() + timeoutMs;
    for (;;) {
      const isRunning = this.running;
      const found = await find();
      if (found !== undefined) return found;
      if (!isRunning) throw await this.failure(`ended (${this.child.signalCode ?? this.child.exitCode})`);
      if (performance.now() > untilMs) throw await this.failure(`was not there within ${timeoutMs} ms`);
      await delay(POLL_MS);
    }
  }

  /** Resolves with the URL in its line `{"msg":"listening","url":…}`. @throws {Error} */
  listening(timeoutMs = 20_000): Promise<string> {
    const url = /^\{.*"msg":"listening"/;
    return this.until(async () => {
      const line = (await this.log()).split('\n').find((line) => url.test(line));
      return line === undefined ? undefined : /"url":"([^"]+)"/.exec(line)?.[1];
    }, timeoutMs);
  }

  /** Returns the URLs in its first lines `{"msg":"listening","url":…}`. @throws {Error} */
  listeningAll(count: number, timeoutMs = 60_000): Promise<readonly string[]> {
    return this.until(async () => {
      const urls = [...(await this.log()).matchAll(/^\{"msg":"listening","url":"([^"]+)"/gm)].map(
        ([, url = '']) => url,
      );
      return urls.length < count ? undefined : urls;
    }, timeoutMs);
  }

  /** Resolves with its exit code, or null if a signal ended it. Kills it after `timeoutMs`. */
  async exited(timeoutMs: number): Promise<number | null> {
    if (this.running) {
      const timer = setTimeout(() => killWithChildren(this.child), timeoutMs);
      await once(this.child, 'exit');
      clearTimeout(timer);
    }
    return this.child.exitCode;
  }

  async failure(what: string): Promise<Error> {
    return new Error(`${this.#name} ${what}; the end of what it said:\n${(await this.log()).slice(-2_000)}`);
  }

  async [Symbol.asyncDispose](): Promise<void> {
    if (this.running) this.child.kill('SIGTERM');
    await this.exited(STOP_MS);
  }
}

/**
 * Puts this process with all its threads on one core. Programs that it starts later inherit that unless they are
 * pinned.
 */
export function pinThisProcess(core: number): void {
  spawnSync(TASKSET, ['-acp', String(core), String(process.pid)]);
}
