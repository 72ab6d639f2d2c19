/** Failures in a row after which commands fail at once. */
const MOST_FAILURES = 5;
/** The time between two commands that are let through after that. */
const PROBE_MS = 1_000;

/** Decides whether a command is sent to Redis. Times are monotonic ms. */
export class Breaker {
  #failures = 0;
  #reason: string | undefined;
  #probedMs = 0;

  /** The reason of the last failure while commands fail at once; undefined while they are sent. */
  get failure(): string | undefined {
    return this.#failures >= MOST_FAILURES ? this.#reason : undefined;
  }

  /** Returns whether a command may be sent now. */
  mayTry(nowMs: number): boolean {
    if (this.#failures < MOST_FAILURES) return true;
    if (nowMs - this.#probedMs < PROBE_MS) return false;
    this.#probedMs = nowMs;
    return true;
  }

  onSuccess(): void {
    this.#failures = 0;
    this.#reason = undefined;
  }

  onFailure(reason: string, nowMs: number): void {
    this.#failures++;
    this.#reason = reason;
    if (this.#failures === MOST_FAILURES) this.#probedMs = nowMs;
  }
}
