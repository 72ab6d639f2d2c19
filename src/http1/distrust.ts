/**
 * The time for which no socket is used for a second request, after bytes have come that belong to no response. If such bytes come
 * once a request is written, it fails, and nobody knows whether it has run.
 */
export const DISTRUST_MS = 60_000;

/** The distrust of the sockets of one server, after bytes that belong to no response. */
export class Distrust {
  /** Monotonic ms; 0 if there were no such bytes. */
  #untilMs = 0;

  get isOn(): boolean {
    // Without such bytes, which is nearly always, the clock is not read.
    return this.#untilMs > 0 && performance.now() < this.#untilMs;
  }

  begin(): void {
    this.#untilMs = performance.now() + DISTRUST_MS;
  }
}
