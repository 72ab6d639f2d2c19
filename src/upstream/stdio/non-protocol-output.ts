import { LIMITS } from '../../limits.ts';

/** A server that prints too many lines or bytes within this time, which are no messages, counts as broken. */
const WINDOW_MS = 10_000;

export class NonProtocolOutput {
  #windowMs = Number.NEGATIVE_INFINITY;
  #windowLines = 0;
  #windowBytes = 0;
  #lines = 0;

  /** Number of lines since the start. */
  get lines(): number {
    return this.#lines;
  }

  /** Number of lines in the current window. Only the first few of a window are logged. */
  get windowLines(): number {
    return this.#windowLines;
  }

  /**
   * Counts one line.
   *
   * @param nowMs monotonic.
   * @returns the bound that is exceeded; undefined if there is none.
   */
  add(bytes: number, nowMs: number): 'nonProtocolLines' | 'nonProtocolBytes' | undefined {
    if (nowMs - this.#windowMs >= WINDOW_MS) {
      this.#windowMs = nowMs;
      this.#windowLines = 0;
      this.#windowBytes = 0;
    }
    this.#lines++;
    this.#windowLines++;
    this.#windowBytes += bytes;
    if (this.#windowLines > LIMITS.nonProtocolLines) return 'nonProtocolLines';
    return this.#windowBytes > LIMITS.nonProtocolBytes ? 'nonProtocolBytes' : undefined;
  }
}
