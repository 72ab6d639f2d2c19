import { spawn, type ChildProcess } from 'node:child_process';
import { once } from 'node:events';
import { createInterface } from 'node:readline';
import { setTimeout as delay } from 'node:timers/promises';

interface ChildOptions {
  /** Added to our own environment. */
  readonly env?: Readonly<Record<string, string>>;
  readonly cwd?: string;
  /** In a process group of its own, which is killed as a whole once the child has ended. */
  readonly group?: boolean;
}

interface Ending {
  readonly code: number | null;
  readonly signal: NodeJS.Signals | null;
}

const DRAIN_MS = 1_000;

const living = new Set<Child>();
let guarded = false;

/** Children end with us: node:test ends a test file that takes too long with SIGTERM. */
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

/** A program we started: what it says is kept, and it never outlives us. */
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
    // The pipes close later than the program ends where a grandchild holds them; what is not there by then is not ours.
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

  /** @throws {Error} where the program cannot be started. */
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

  /** Lines of stdout and stderr as they came. */
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
   * The first thing `find` makes of a line, past lines included.
   *
   * @throws {Error} with the log, where the program ends or `timeoutMs` pass before that.
   */
  async saying<T>(find: (line: string) => T | undefined, timeoutMs: number): Promise<T> {
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

  /** SIGTERM, and after `graceMs` SIGKILL. @returns how it ended, or undefined where it had to be killed. */
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
      // Nobody left in the group.
      if (!(error instanceof Error && 'code' in error && error.code === 'ESRCH')) throw error;
    }
  }
}
