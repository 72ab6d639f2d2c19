import { GatewayError } from '../../errors.ts';
import { LIMITS, type LimitName } from '../../limits.ts';
import type { KeyedCall, KeyedCallStore } from '../../store/keyed-call-store.ts';

const REPEAT_MS = 1_000;

/** A write that the store has not accepted. */
interface LateWrite {
  readonly call: KeyedCall;
  /** Undefined for a release. */
  readonly end: { readonly outcome: string | undefined; readonly untilMs: number } | undefined;
}

/** Writes about keyed calls that the store could not accept. They are repeated each second, until it does or nobody needs them any more. */
export class LateWrites {
  readonly #store: KeyedCallStore;
  readonly #onLimit: (limit: LimitName) => void;
  readonly #writes = new Map<string, LateWrite>();
  #bytes = 0;
  #timer: NodeJS.Timeout | undefined;
  #isWriting = false;

  constructor(store: KeyedCallStore, onLimit: (limit: LimitName) => void) {
    this.#store = store;
    this.#onLimit = onLimit;
  }

  /** Stores the end of a call, at once if the store accepts it. */
  async end(call: KeyedCall, claim: string, outcome: string | undefined, keepMs: number): Promise<void> {
    await this.#write(claim, { call, end: { outcome, untilMs: performance.now() + keepMs } });
  }

  /** Releases a call, at once if the store accepts it. */
  async release(call: KeyedCall, claim: string): Promise<void> {
    await this.#write(claim, { call, end: undefined });
  }

  /** Repeats the write of a claim now, if there is one. Resolves with whether the store has accepted it. */
  async repeat(claim: string): Promise<boolean> {
    const write = this.#writes.get(claim);
    if (write === undefined || !(await this.#try(claim, write))) return false;
    this.#remove(claim);
    return true;
  }

  close(): void {
    clearInterval(this.#timer);
  }

  async #write(claim: string, write: LateWrite): Promise<void> {
    if (!(await this.#try(claim, write))) this.#keep(claim, write);
  }

  /** @returns false if the store cannot be used now. */
  async #try(claim: string, { call, end }: LateWrite): Promise<boolean> {
    try {
      const keepMs = end === undefined ? 0 : end.untilMs - performance.now();
      if (end === undefined) await this.#store.release(call, claim);
      else if (keepMs > 0) await this.#store.end(call, claim, end.outcome, keepMs);
      return true;
    } catch (thrown) {
      if (thrown instanceof GatewayError) return false;
      throw thrown;
    }
  }

  #keep(claim: string, write: LateWrite): void {
    if (this.#writes.size >= LIMITS.unwrittenKeyedCalls) return this.#onLimit('unwrittenKeyedCalls');
    const bytes = bytesOf(write);
    const isTooMuch = this.#bytes + bytes > LIMITS.unwrittenOutcomesBytes;
    if (isTooMuch) this.#onLimit('unwrittenOutcomesBytes');
    else this.#bytes += bytes;
    // Without its outcome, the call still counts as made.
    const kept = isTooMuch && write.end !== undefined ? { ...write, end: { ...write.end, outcome: undefined } } : write;
    this.#writes.set(claim, kept);
    this.#timer ??= setInterval(() => void this.#repeatAll(), REPEAT_MS).unref();
  }

  #remove(claim: string): void {
    const write = this.#writes.get(claim);
    if (write === undefined) return;
    this.#bytes -= bytesOf(write);
    this.#writes.delete(claim);
    if (this.#writes.size > 0) return;
    clearInterval(this.#timer);
    this.#timer = undefined;
  }

  async #repeatAll(): Promise<void> {
    if (this.#isWriting) return;
    this.#isWriting = true;
    try {
      // While the store cannot be used, one attempt is enough.
      for (const claim of this.#writes.keys()) if (!(await this.repeat(claim))) break;
    } finally {
      this.#isWriting = false;
    }
  }
}

function bytesOf({ end }: LateWrite): number {
  return 2 * (end?.outcome?.length ?? 0);
}
