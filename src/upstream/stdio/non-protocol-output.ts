/** What a server may print beside its messages before it counts as broken: more of either within the window. */
const LIMIT_LINES = 100;
const LIMIT_BYTES = 1_048_576;
const WINDOW_MS = 10_000;

/** Counts lines that are no messages. */
export class NonProtocolOutput {
  #windowMs = Number.NEGATIVE_INFINITY;
  #windowLines = 0;
  #windowBytes = 0;
  #lines = 0;

  /** Of its whole life. */
  get lines(): number {
    return this.#lines;
  }

  /** The first so many of a window are worth a line in the log. */
  get windowLines(): number {
    return this.#windowLines;
  }

  /**
   * @param nowMs monotonic
   * @returns whether it is too much.
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
