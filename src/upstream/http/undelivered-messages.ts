import { LIMITS, type LimitName } from '../../limits.ts';

/**
 * Bounds the POSTs of one upstream without an answer: notifications, and answers to requests of the upstream. Each takes a socket until the upstream
 * accepts it, and an upstream can ask without end.
 */
export class UndeliveredMessages {
  readonly #onLimit: (limit: LimitName) => void;
  #count = 0;

  /** @param onLimit called for each message that is dropped. */
  constructor(onLimit: (limit: LimitName) => void = () => undefined) {
    this.#onLimit = onLimit;
  }

  /** Number of messages that the upstream has not accepted. */
  get count(): number {
    return this.#count;
  }

  /** Counts a message before it is sent. Returns false if there are too many, so that it must not be sent. */
  take(): boolean {
    if (this.#count >= LIMITS.undeliveredMessages) {
      this.#onLimit('undeliveredMessages');
      return false;
    }
    this.#count++;
    return true;
  }

  /** Ends the count of a message: the upstream has accepted it, or its connection is closed. */
  release(): void {
    this.#count--;
  }
}
