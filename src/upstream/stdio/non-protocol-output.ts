/** A server that prints more lines or bytes than this within the window, which are no messages, counts as broken. */
const LIMIT_LINES = 100;
const LIMIT_BYTES = 1_048_576;
const WINDOW_MS = 10_000;

/** Counts the lines on stdout that are no messages. */
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
   * @returns whether the limit is exceeded.
   */
  add(bytes: number, nowMs: number): boolean {
    if (nowMs - this.#windowMs >= WINDOW_MS) {
      this.#windowMs = nowMs;
      this.#windowLines = 0;
      this.#windowBytes = 0;
    }
    this.#lines++;
    this.#windowLines++;
    this.#windowBytes += bytes;
    return this.#windowLines > LIMIT_LINES || this.#windowBytes > LIMIT_BYTES;
  }
}
