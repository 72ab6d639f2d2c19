import { isCode } from '../../thrown.ts';
import type { ChildProcess } from 'node:child_process';
import { setTimeout as sleep } from 'node:timers/promises';
import type { Logger } from 'pino';
import type { ProcessGuard } from './process-guard.ts';

const POLL_MS = 20;

/**
 * Longest wait after SIGKILL. Killed processes stay in their group until they are reaped, which may take long. A process that hangs in the
 * kernel may stay forever.
 */
const KILL_MS = 500;

/** A child that leads a process group, and the processes that it has started: the server may run below a wrapper such as `npx`. */
export class ProcessGroup {
  readonly #leader: ChildProcess;
  readonly #id: number;
  readonly #tag: string;
  readonly #guard: ProcessGuard;
  readonly #log: Logger;
  #ending: Promise<void> | undefined;
  #isEnded = false;

  /** @param tag the tag in the environment of the child, from `guard.tagged`. */
  constructor(leader: ChildProcess, id: number, tag: string, guard: ProcessGuard, log: Logger) {
    this.#leader = leader;
    this.#id = id;
    this.#tag = tag;
    this.#guard = guard;
    this.#log = log;
    guard.add(id);
  }

  /** Returns whether the child has exited; processes that it has started may still run. */
  get hasExited(): boolean {
    return this.#leader.exitCode !== null || this.#leader.signalCode !== null;
  }

  /**
   * Ends the group: waits `patienceMs` for its end, then sends SIGTERM, and SIGKILL `graceMs` later. Resolves when no process is
   * left. Further calls have no effect; {@link kill} ends the group at once.
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
      void this.#guard.tagged.terminateOutside(this.#id, this.#tag);
      strayGraceMs = 0;
      if (!(await this.#isGone(graceMs))) {
        this.#signal('SIGKILL');
        if (!(await this.#isGone(KILL_MS)) && !this.hasExited) this.#log.warn('upstream process outlives SIGKILL');
      }
    }
    this.#isEnded = true;
    this.#guard.remove(this.#id);
    // A process that has started a session of its own is not in the group.
    await this.#guard.tagged.end(this.#tag, strayGraceMs);
  }

  async #isGone(withinMs: number): Promise<boolean> {
    const untilMs = performance.now() + withinMs;
    // The system does not reuse the id of a group while a process is in it, or before the child is reaped.
    while (!this.hasExited || this.#signal(0)) {
      if (performance.now() >= untilMs) return false;
      await sleep(POLL_MS);
    }
    return true;
  }

  /** Sends a signal to the group. Returns whether there was a process to signal. */
  #signal(signal: NodeJS.Signals | 0): boolean {
    try {
      process.kill(-this.#id, signal);
      return true;
    } catch (thrown) {
      if (isCode(thrown, 'ESRCH')) return false;
      // Processes that have changed their user cannot be signalled.
      if (isCode(thrown, 'EPERM')) return true;
      throw thrown;
    }
  }
}
