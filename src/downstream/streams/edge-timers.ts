import { ArraySet } from '../../small-collections.ts';
import { COMMENT } from '../../protocol/framing/event-stream.ts';
import type { StreamWriter } from './stream-writer.ts';

/** A reply whose form (JSON or events) is not decided yet. */
interface UndecidedReply {
  /** Monotonic ms at which it becomes an event stream. */
  readonly dueMs: number;
  /** Starts the event stream. */
  commit(): void;
}

interface ExpiringState {
  expire(nowMs: number): void;
}

const SWEEP_MS = 400;
/** Event logs are checked once in this many sweeps, because they keep events for minutes. */
const EXPIRE_SWEEPS = 16;
/** After this wait a client gets an event stream, which shows that the request runs and can be resumed. */
export const DECIDE_MS = 50;
const DECIDE_SWEEP_MS = 25;

/**
 * Runs the timers of the client's edge: one for undecided replies, one for streams and event logs, one for keep-alives.
 * No request has a timer of its own. A timer runs only while it has work.
 */
export class EdgeTimers {
  readonly #keepAliveMs: number;
  /** In the order of scheduling. */
  readonly #undecided = new ArraySet<UndecidedReply>();
  readonly #open = new ArraySet<StreamWriter>();
  readonly #expiring = new Set<ExpiringState>();
  #deciding: NodeJS.Timeout | undefined;
  #sweeping: NodeJS.Timeout | undefined;
  #keepingAlive: NodeJS.Timeout | undefined;
  #sweeps = 0;

  constructor(keepAliveMs: number) {
    this.#keepAliveMs = keepAliveMs;
  }

  scheduleDecision(reply: UndecidedReply): void {
    this.#undecided.add(reply);
    this.#deciding ??= setInterval(() => this.#decide(), DECIDE_SWEEP_MS).unref();
  }

  cancelDecision(reply: UndecidedReply): void {
    this.#undecided.delete(reply);
  }

  addStream(writer: StreamWriter): void {
    this.#open.add(writer);
    this.#run();
    this.#keepingAlive ??= setInterval(() => this.#keepAlive(), this.#keepAliveMs).unref();
  }

  removeStream(writer: StreamWriter): void {
    this.#open.delete(writer);
  }

  addExpiring(log: ExpiringState): void {
    this.#expiring.add(log);
    this.#run();
  }

  removeExpiring(log: ExpiringState): void {
    this.#expiring.delete(log);
  }

  #run(): void {
    this.#sweeping ??= setInterval(() => this.#sweep(), SWEEP_MS).unref();
  }

  #decide(): void {
    const nowMs = performance.now();
    let isWaiting = false;
    for (const reply of this.#undecided) {
      if (nowMs < reply.dueMs) {
        isWaiting = true;
        continue;
      }
      this.#undecided.delete(reply);
      reply.commit();
    }
    if (isWaiting) return;
    clearInterval(this.#deciding);
    this.#deciding = undefined;
  }

  #sweep(): void {
    const nowMs = performance.now();
    for (const writer of this.#open) writer.sweep(nowMs);
    if (++this.#sweeps % EXPIRE_SWEEPS === 0) {
      for (const log of this.#expiring) log.expire(nowMs);
    }
    if (this.#open.size > 0 || this.#expiring.size > 0) return;
    clearInterval(this.#sweeping);
    this.#sweeping = undefined;
  }

  #keepAlive(): void {
    for (const writer of this.#open) writer.comment(COMMENT);
    if (this.#open.size > 0) return;
    clearInterval(this.#keepingAlive);
    this.#keepingAlive = undefined;
  }
}
