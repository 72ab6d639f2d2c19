import type { Logger } from 'pino';
import { LIMITS, type LimitName } from '../../limits.ts';

const WINDOW_MS = 1_000;
/** The largest number of senders whose refusals are counted apart. Further ones are counted together. */
const MAX_SENDERS = 1_000;
const OTHERS = '(others)';

/** Refusals of one sender since the window began. */
interface Refusals {
  readonly principal: string | undefined;
  lines: number;
  suppressed: number;
}

/**
 * Decides which refused requests get a line in the log. A refusal costs its sender next to nothing, so the lines of each second are
 * bounded. One more says how many requests have none.
 */
export class RefusalLines {
  readonly #log: Logger;
  readonly #onLimit: (limit: LimitName) => void;
  readonly #senders = new Map<string, Refusals>();
  #timer: NodeJS.Timeout | undefined;

  constructor(log: Logger, onLimit: (limit: LimitName) => void) {
    this.#log = log;
    this.#onLimit = onLimit;
  }

  /**
   * Returns whether a refused request gets a line now, and counts it. At level debug, each one does.
   *
   * @param principal undefined for a request whose sender is not known.
   */
  admits(principal: { readonly key: string; readonly label: string } | undefined): boolean {
    if (this.#log.isLevelEnabled('debug')) return true;
    const refusals = this.#refusalsOf(principal);
    if (refusals.lines < LIMITS.refusalLinesPerSecond) {
      refusals.lines++;
      return true;
    }
    if (refusals.suppressed++ === 0) this.#onLimit('refusalLinesPerSecond');
    return false;
  }

  #refusalsOf(principal: { readonly key: string; readonly label: string } | undefined): Refusals {
    const isFull = this.#senders.size >= MAX_SENDERS;
    const own = principal === undefined ? '' : `p${principal.key}`;
    const key = isFull && !this.#senders.has(own) ? OTHERS : own;
    let refusals = this.#senders.get(key);
    if (refusals === undefined) {
      refusals = { principal: key === OTHERS ? OTHERS : principal?.label, lines: 0, suppressed: 0 };
      this.#senders.set(key, refusals);
    }
    this.#timer ??= setTimeout(() => this.flush(), WINDOW_MS).unref();
    return refusals;
  }

  /** Writes the counts of refused requests without a line, and begins to count anew. */
  flush(): void {
    clearTimeout(this.#timer);
    this.#timer = undefined;
    for (const { principal, suppressed } of this.#senders.values()) {
      if (suppressed > 0) this.#log.info({ principal, suppressed }, 'further refused requests have no line');
    }
    this.#senders.clear();
  }
}
