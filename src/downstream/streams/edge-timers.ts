import { ArraySet } from '../../small-collections.ts';
import { COMMENT } from '../../protocol/event-stream.ts';
import type { StreamWriter } from './stream-writer.ts';

/** A reply nobody has begun to write. */
interface UndecidedReply {
  /** When it is begun at the latest; monotonic ms. */
  readonly dueMs: number;
  /** Begins it as events. */
  commit(): void;
}

interface ExpiringState {
  expire(nowMs: number): void;
}

const SWEEP_MS = 400;
/** What is kept for minutes is looked through once in so many sweeps. */
const EXPIRE_SWEEPS = 16;
/** A client that waits longer than this gets events: proof that somebody works on it, and a stream it can come back to. */
export const DECIDE_MS = 50;
const DECIDE_SWEEP_MS = 25;

/**
 * All that happens by the clock at the client's edge: one timer for replies, one for what else comes due, one for keep-alives,
 * none per request. They run while there is anything to look after.
 */
export class EdgeTimers {
  readonly #keepAliveMs: number;
  /** In the order they began. */
  readonly #undecided = new ArraySet<UndecidedReply>();
  readonly #open = new ArraySet<StreamWriter>();
  readonly #remembering = new Set<ExpiringState>();
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
    this.#remembering.add(log);
    this.#run();
  }

  removeExpiring(log: ExpiringState): void {
    this.#remembering.delete(log);
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
      for (const log of this.#remembering) log.expire(nowMs);
    }
    if (this.#open.size > 0 || this.#remembering.size > 0) return;
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
