import type { ChildProcess } from 'node:child_process';
import { setTimeout as sleep } from 'node:timers/promises';
import type { Logger } from 'pino';
import type { ProcessGuard } from './process-guard.ts';

const POLL_MS = 20;

/**
 * How long SIGKILL may take. Not longer, for the dead stay in their group until they are reaped, which init may be slow at,
 * and a process that hangs in the kernel may stay for ever.
 */
const KILL_MS = 500;

/** A child that leads a process group, and all that it started: a wrapper such as `npx` is not the server. */
export class ProcessGroup {
  readonly #leader: ChildProcess;
  readonly #id: number;
  readonly #tag: string;
  readonly #guard: ProcessGuard;
  readonly #log: Logger;
  #ending: Promise<void> | undefined;
  #isEnded = false;

  /** @param tag of its environment, from `guard.tagged`. */
  constructor(leader: ChildProcess, id: number, tag: string, guard: ProcessGuard, log: Logger) {
    this.#leader = leader;
    this.#id = id;
    this.#tag = tag;
    this.#guard = guard;
    this.#log = log;
    guard.add(id);
  }

  /** Whether the child itself has ended. */
  get hasExited(): boolean {
    return this.#leader.exitCode !== null || this.#leader.signalCode !== null;
  }

  /**
   * Waits `patienceMs` for it to end by itself, then sends SIGTERM, and SIGKILL `graceMs` later. Resolves when nothing of it
   * is left. The first call decides; see {@link kill} for haste.
   */
  end(patienceMs: number, graceMs: number): Promise<void> {
    this.#ending ??= this.#end(patienceMs, graceMs);
    return this.#ending;
  }

  kill(): void {
    if (!this.#isEnded) this.#signal('SIGKILL');
  }

  async #end(patienceMs: number, graceMs: number): Promise<void> {
    let strayGraceMs = graceMs;
    if (!(await this.#isGone(patienceMs))) {
      this.#signal('SIGTERM');
      void this.#guard.tagged.terminate(this.#tag);
      strayGraceMs = 0;
      if (!(await this.#isGone(graceMs))) {
        this.#signal('SIGKILL');
        if (!(await this.#isGone(KILL_MS)) && !this.hasExited) this.#log.warn('upstream process outlives SIGKILL');
      }
    }
    this.#isEnded = true;
    this.#guard.remove(this.#id);
    // A grandchild that made itself a session of its own is not in the group.
    await this.#guard.tagged.end(this.#tag, strayGraceMs);
  }

  async #isGone(withinMs: number): Promise<boolean> {
    const untilMs = performance.now() + withinMs;
    // The number of a group cannot be given to another while a process is in it, nor before the child was reaped.
    while (!this.hasExited || this.#signal(0)) {
      if (performance.now() >= untilMs) return false;
      await sleep(POLL_MS);
    }
    return true;
  }

  /** @returns whether there was anything to signal. */
  #signal(signal: NodeJS.Signals | 0): boolean {
    try {
      process.kill(-this.#id, signal);
      return true;
    } catch (thrown) {
      if (!(thrown instanceof Error && 'code' in thrown)) throw thrown;
      if (thrown.code === 'ESRCH') return false;
      // Processes that changed their user are not ours to end.
      if (thrown.code === 'EPERM') return true;
      throw thrown;
    }
  }
}
