import { type LimitName, LIMITS } from '../../limits.ts';

/** The least time that an upstream may go on with a call that ended without its answer. */
const LEAST_MS = 300_000;

interface AbandonedCall {
  readonly sender: string | undefined;
  /** The time from which on the upstream counts as done with it. Monotonic ms. */
  readonly dueMs: number;
}

/**
 * The calls of one connection that ended without an answer of the upstream: they were cancelled, timed out or lost. The upstream may still run them,
 * and send messages about them that name no call.
 */
export class AbandonedCalls {
  readonly #calls = new Map<number, AbandonedCall>();
  readonly #onLimit: ((limit: LimitName) => void) | undefined;
  /** The time until which calls that did not fit may run. */
  #othersDueMs = -Infinity;

  constructor(onLimit: ((limit: LimitName) => void) | undefined) {
    this.#onLimit = onLimit;
  }

  /** Adds a call. @param mayEndMs the time at which the call would have timed out at the latest. */
  add(id: number, sender: string | undefined, mayEndMs: number, nowMs: number): void {
    const dueMs = Math.max(nowMs + LEAST_MS, mayEndMs);
    if (this.#calls.size >= LIMITS.abandonedCalls) this.#removeOver(nowMs);
    if (this.#calls.size < LIMITS.abandonedCalls || this.#calls.has(id)) {
      this.#calls.set(id, { sender, dueMs });
      return;
    }
    this.#othersDueMs = Math.max(this.#othersDueMs, dueMs);
    this.#onLimit?.('abandonedCalls');
  }

  /** Removes a call that the upstream has answered. */
  remove(id: number): void {
    this.#calls.delete(id);
  }

  /** Returns whether the upstream may still run one. @param except the calls of this sender do not count. */
  has(except: string | undefined, nowMs: number): boolean {
    if (nowMs < this.#othersDueMs) return true;
    this.#removeOver(nowMs);
    for (const { sender } of this.#calls.values()) if (except === undefined || sender !== except) return true;
    return false;
  }

  #removeOver(nowMs: number): void {
    for (const [id, { dueMs }] of this.#calls) if (nowMs >= dueMs) this.#calls.delete(id);
  }
}
