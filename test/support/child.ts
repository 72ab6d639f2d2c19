import { spawn, type ChildProcess } from 'node:child_process';
import { once } from 'node:events';
import { createInterface } from 'node:readline';
import { setTimeout as delay } from 'node:timers/promises';
import { PATIENCE_MS } from './patience.ts';

interface ChildOptions {
  /** Added to our own environment. */
  readonly env?: Readonly<Record<string, string>>;
  readonly cwd?: string;
  /** Makes the child lead a process group, which is killed as a whole after the child has ended. */
  readonly group?: boolean;
}

interface Ending {
  readonly code: number | null;
  readonly signal: NodeJS.Signals | null;
}

/** The time in which the rest of the output of an ended child is read. */
const DRAIN_MS = 1_000; // subject

const living = new Set<Child>();
let guarded = false;

/** Ends the children together with this process: node:test ends a test file that takes too long with SIGTERM. */
function guard(): void {
  if (guarded) return;
  guarded = true;
  process.once('exit', () => {
    for (const child of living) child.kill('SIGKILL');
  });
  for (const [signal, code] of [['SIGINT', 130] as const, ['SIGTERM', 143] as const]) {
    process.once(signal, () => process.exit(code));
  }
}

/** A child process. Keeps its output, and ends no later than this process. */
export class Child implements AsyncDisposable {
  readonly pid: number;
  readonly ended: Promise<Ending>;
  readonly #process: ChildProcess;
  readonly #group: boolean;
  readonly #lines: string[] = [];
  readonly #listeners = new Set<(line: string) => void>();

  private constructor(child: ChildProcess, pid: number, group: boolean) {
    this.pid = pid;
    this.#process = child;
    this.#group = group;
    // Pipes that a grandchild holds stay open after the child has ended. Later output is not the child's.
    const closed = once(child, 'close');
    this.ended = once(child, 'exit').then(async () => {
      living.delete(this);
      if (group) this.#signalGroup('SIGKILL');
      await Promise.race([closed, delay(DRAIN_MS, undefined, { ref: false })]);
      return { code: child.exitCode, signal: child.signalCode };
    });
    for (const stream of [child.stdout, child.stderr]) {
      if (stream === null) continue;
      createInterface({ input: stream }).on('line', (line) => {
        this.#lines.push(line);
        for (const listener of this.#listeners) listener(line);
      });
    }
  }

  /** @throws {Error} if the program cannot be started. */
  static async start(command: string, args: readonly string[], options: ChildOptions = {}): Promise<Child> {
    guard();
    const { NODE_TEST_CONTEXT: _inherited, ...env } = process.env;
    const group = options.group ?? false;
    const child = spawn(command, args, {
      stdio: ['ignore', 'pipe', 'pipe'],
      detached: group,
      env: { ...env, ...options.env },
      ...(options.cwd === undefined ? {} : { cwd: options.cwd }),
    });
    await once(child, 'spawn');
    if (child.pid === undefined) throw new Error(`${command} has no process id`);
    const started = new Child(child, child.pid, group);
    living.add(started);
    return started;
  }

  /** Returns the lines of stdout and stderr, in the order of arrival. */
  logs(): string {
    return this.#lines.join('\n');
  }

  get running(): boolean {
    return this.#process.exitCode === null && this.#process.signalCode === null;
  }

  kill(signal: NodeJS.Signals): void {
    if (this.#group) this.#signalGroup(signal);
    else this.#process.kill(signal);
  }

  /**
   * Returns the first value that `find` returns for a line, including earlier lines.
   *
   * @throws {Error} with the log, if the program ends or `timeoutMs` pass before that.
   */
  async waitForLine<T>(find: (line: string) => T | undefined, timeoutMs = PATIENCE_MS): Promise<T> {
    for (const line of this.#lines) {
      const found = find(line);
      if (found !== undefined) return found;
    }
    const { promise, resolve, reject } = Promise.withResolvers<T>();
    const listener = (line: string) => {
      const found = find(line);
      if (found !== undefined) resolve(found);
    };
    const giveUp = (why: string) => reject(new Error(`process ${this.pid} ${why}; it said:\n${this.logs()}`));
    const timer = setTimeout(() => giveUp(`did not say what was awaited within ${timeoutMs} ms`), timeoutMs);
    this.#listeners.add(listener);
    void this.ended.then(({ code, signal }) => giveUp(`ended (${signal ?? code})`));
    try {
      return await promise;
    } finally {
      clearTimeout(timer);
      this.#listeners.delete(listener);
    }
  }

  /** Sends SIGTERM, and SIGKILL after `graceMs`. @returns how the child ended; undefined if it was killed. */
  async stop(graceMs = 5_000): Promise<Ending | undefined> {
    this.kill('SIGTERM');
    const timer = new AbortController();
    const late = delay(graceMs, 'late' as const, { signal: timer.signal }).catch(() => 'late' as const);
    const ending = await Promise.race([this.ended, late]);
    timer.abort();
    if (ending !== 'late') return ending;
    this.kill('SIGKILL');
    await this.ended;
    return undefined;
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.stop();
  }

  #signalGroup(signal: NodeJS.Signals): void {
    try {
      process.kill(-this.pid, signal);
    } catch (error) {
      // The group has no process any more.
      if (!(error instanceof Error && 'code' in error && error.code === 'ESRCH')) throw error;
    }
  }
}
