import { MAX_TIMER_MS } from '../../deadline.ts';
import type { Sealer } from '../handles/sealer.ts';
import type { Sessions } from './sessions.ts';

/** Ends the sessions in memory whose ids were sealed by a key that has expired. Other sessions are refused when their ids are opened. */
export class KeyExpiry {
  readonly #sealer: Sealer;
  readonly #sessions: Sessions;
  #timer: NodeJS.Timeout | undefined;

  constructor(sealer: Sealer, sessions: Sessions) {
    this.#sealer = sealer;
    this.#sessions = sessions;
  }

  /** Ends sessions by the keys as they are now, and waits for the next key that expires. */
  readonly apply = (): void => {
    clearTimeout(this.#timer);
    const nowMs = Date.now();
    this.#sessions.releaseInvalid((id) => this.#sealer.mayOpen(id, nowMs));
    const nextMs = this.#sealer.nextExpiryMs(nowMs);
    if (nextMs === undefined) return;
    this.#timer = setTimeout(this.apply, Math.min(nextMs - nowMs, MAX_TIMER_MS)).unref();
  };

  close(): void {
    clearTimeout(this.#timer);
  }
}
