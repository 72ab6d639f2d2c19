import { KeyedSums } from '../../map-entries.ts';
import { GatewayError } from '../../errors.ts';
import { isRetry } from '../../protocol/input-required.ts';
import type { Request } from '../../protocol/jsonrpc.ts';
import type { BudgetLimits } from './byte-budget.ts';

/** Shorter bodies are not counted: nearly all are. */
const LARGE_CHARS = 32_768;

/** A large body, which counts until it is released, and until all that keeps it has ended. */
export class RunningBody {
  readonly #onReleased: () => void;
  #holders = 1;
  #isReleased = false;

  constructor(onReleased: () => void) {
    this.#onReleased = onReleased;
  }

  /** @param ended never rejects. */
  keepUntil(ended: Promise<unknown>): void {
    this.#holders++;
    void ended.then(() => this.#end());
  }

  /** May be called again. */
  release(): void {
    if (!this.#isReleased) this.#end();
    this.#isReleased = true;
  }

  #end(): void {
    if (--this.#holders === 0) this.#onReleased();
  }
}

/** Bounds the bytes of large bodies whose requests are not answered, per principal and in total. */
export class RunningBodies {
  #limits: BudgetLimits;
  readonly #onRefused: () => void;
  /** By principal, and by principal for its retries. */
  readonly #sums = new KeyedSums();

  /** @param onRefused called when a request is refused for lack of room. */
  constructor(limits: BudgetLimits, onRefused: () => void) {
    this.#limits = limits;
    this.#onRefused = onRefused;
  }

  get bytes(): number {
    return this.#sums.total;
  }

  /** Sets other bounds. What is held stays. */
  setLimits(limits: BudgetLimits): void {
    this.#limits = limits;
  }

  /**
   * Counts the body of a request that begins. Returns undefined for one that is not counted, or the refusal. A principal may always have one,
   * whatever others have.
   *
   * @param modern a request of 2026-07-28. A retry repeats the arguments of its parked call, so it has room beside it.
   */
  hold(principal: string, text: string, modern?: Request): RunningBody | GatewayError | undefined {
    if (text.length <= LARGE_CHARS) return undefined;
    const continuesCall = isRetry(modern?.params);
    const account = continuesCall ? `retry ${principal}` : principal;
    const bytes = Buffer.byteLength(text);
    const { principalBytes, totalBytes } = this.#limits;
    const own = this.#sums.of(account);
    if (own > 0 && (own + bytes > principalBytes || this.#sums.total + bytes > totalBytes)) {
      this.#onRefused();
      const message =
        `your large requests that are not answered yet have ${own} bytes together, which leaves no room for this one. ` +
        'Wait for an answer; half of gateway.limits.bodyTotal is for one principal';
      return new GatewayError('overloaded', { message, ...(continuesCall ? { executed: 'unknown' } : {}) });
    }
    this.#sums.add(account, bytes);
    return new RunningBody(() => this.#sums.add(account, -bytes));
  }
}
