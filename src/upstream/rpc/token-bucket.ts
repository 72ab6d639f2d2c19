/** Measures a rate per second. Permits bursts of up to one second, and no burst costs more than a wait of one second. */
export class TokenBucket {
  readonly #perSecond: number;
  #tokens: number;
  #atMs = 0;

  constructor(perSecond: number) {
    this.#perSecond = perSecond;
    this.#tokens = perSecond;
  }

  /** Takes a token, even if none is left. Returns how long to wait until the rate is not exceeded any more, in milliseconds. */
  take(nowMs: number): number {
    const refilled = this.#tokens + ((nowMs - this.#atMs) * this.#perSecond) / 1_000;
    // One read may bring more messages than a minute allows.
    this.#tokens = Math.max(Math.min(this.#perSecond, refilled) - 1, -this.#perSecond);
    this.#atMs = nowMs;
    return this.#tokens >= 0 ? 0 : (-this.#tokens * 1_000) / this.#perSecond;
  }
}
