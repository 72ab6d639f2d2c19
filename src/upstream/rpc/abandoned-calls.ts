import { type LimitName, LIMITS } from '../../limits.ts';

/** The time that an upstream may go on with a call that it was told to cancel. */
const LATE_MS = 60_000;

/** A message that an upstream may send about a call that it goes on with. */
export type LateMessage = 'question' | 'log';

interface AbandonedCall {
  /** The key of its client; undefined if that is unknown, or there are several. */
  readonly sender: string | undefined;
  /** Messages about it that may come. */
  readonly late: ReadonlySet<LateMessage>;
  /** The time from which on the upstream counts as done with it. Monotonic ms. */
  readonly dueMs: number;
}

const ANY: ReadonlySet<LateMessage> = new Set(['question', 'log']);

/**
 * The calls of one connection that ended without an answer of the upstream: they were cancelled, timed out or lost. The upstream may still run them,
 * and send messages about them that name no call.
 */
export class AbandonedCalls {
  readonly #calls = new Map<number, AbandonedCall>();
  readonly #onLimit: ((limit: LimitName) => void) | undefined;
  /** The calls that did not fit. */
  #others: AbandonedCall | undefined;

  constructor(onLimit: ((limit: LimitName) => void) | undefined) {
    this.#onLimit = onLimit;
  }

  add(id: number, sender: string | undefined, late: ReadonlySet<LateMessage>, nowMs: number): void {
    const dueMs = nowMs + LATE_MS;
    if (this.#calls.size >= LIMITS.abandonedCalls) this.#removeOver(nowMs);
    if (this.#calls.size < LIMITS.abandonedCalls || this.#calls.has(id)) {
      this.#calls.set(id, { sender, late, dueMs });
      return;
    }
    const others = this.#others;
    const isOfOne = others === undefined || nowMs >= others.dueMs || others.sender === sender;
    this.#others = { sender: isOfOne ? sender : undefined, late: ANY, dueMs };
    this.#onLimit?.('abandonedCalls');
  }

  remove(id: number): void {
    this.#calls.delete(id);
  }

  /** Returns whether the upstream may still send such a message about one. @param except the calls of the client with this key do not count. */
  has(message: LateMessage, except: string | undefined, nowMs: number): boolean {
    this.#removeOver(nowMs);
    const counts = ({ sender, late }: AbandonedCall) =>
      late.has(message) && (except === undefined || sender !== except);
    return (this.#others !== undefined && counts(this.#others)) || this.#calls.values().some(counts);
  }

  #removeOver(nowMs: number): void {
    if (nowMs >= (this.#others?.dueMs ?? Infinity)) this.#others = undefined;
    for (const [id, { dueMs }] of this.#calls) if (nowMs >= dueMs) this.#calls.delete(id);
  }
}
