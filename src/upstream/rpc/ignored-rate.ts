import { type LimitName, LIMITS } from '../../limits.ts';
import { TokenBucket } from './token-bucket.ts';

/**
 * Bounds what one event stream has besides messages: comments, unknown fields, and events that are no messages. Each stream has its own
 * rate, so that the keep-alives of many do not add up. Over stdio, it bounds the empty lines.
 */
export class IgnoredRate {
  readonly #pause: (forMs: number) => boolean;
  readonly #onLimit: ((limit: LimitName) => void) | undefined;
  /** Undefined until there is something to count. */
  #bucket: TokenBucket | undefined;

  /**
   * @param pause stops reading for this long (ms). Returns false if nothing is being read, or reading is already paused.
   * @param onLimit called for each pause.
   */
  constructor(pause: (forMs: number) => boolean, onLimit?: (limit: LimitName) => void) {
    this.#pause = pause;
    this.#onLimit = onLimit;
  }

  count(): void {
    this.#bucket ??= new TokenBucket(LIMITS.notificationsPerSecond);
    const waitMs = this.#bucket.take(performance.now());
    if (waitMs > 0 && this.#pause(waitMs)) this.#onLimit?.('notificationsPerSecond');
  }
}
