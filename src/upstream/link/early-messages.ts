import { JsonTextError, type RawObject } from '../../json/json.ts';
import { type LimitName, LIMITS } from '../../limits.ts';

/** A character of a text takes up to two bytes. */
const CHAR_BYTES = 2;

/** The notifications and requests that a server sends before the end of its handshake. They are delivered right after it. */
export class EarlyMessages<Target> {
  readonly #onLimit: (limit: LimitName) => void;
  #waiting: ((target: Target) => void)[] = [];
  #bytes = 0;
  #target: Target | undefined;

  /** @param onLimit called for each message that is not kept. */
  constructor(onLimit: (limit: LimitName) => void) {
    this.#onLimit = onLimit;
  }

  /** Delivers a message after the handshake; at once if it has ended. Returns false if there are too many to keep it. */
  add(params: RawObject | undefined, deliver: (target: Target) => void): boolean {
    if (this.#target !== undefined) {
      deliver(this.#target);
      return true;
    }
    const bytes = this.#bytes + CHAR_BYTES * (params?.toString().length ?? 0);
    const isFull = this.#waiting.length >= LIMITS.earlyMessages;
    if (isFull || bytes > LIMITS.earlyMessageBytes) {
      this.#onLimit(isFull ? 'earlyMessages' : 'earlyMessageBytes');
      return false;
    }
    this.#bytes = bytes;
    this.#waiting.push(deliver);
    return true;
  }

  /** Delivers the messages so far. Ignores invalid JSON inside of them, which must not fail a successful handshake. */
  deliverTo(target: Target): void {
    this.#target = target;
    const waiting = this.#waiting;
    this.#waiting = [];
    for (const deliver of waiting) {
      try {
        deliver(target);
      } catch (thrown) {
        if (!(thrown instanceof JsonTextError)) throw thrown;
      }
    }
  }
}
