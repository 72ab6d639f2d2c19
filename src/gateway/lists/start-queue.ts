import { settlesWithin } from '../../deadline.ts';
import { FairSlots } from '../../fair-slots.ts';

/** A start counts against the limit for at most this long. */
const SHARE_MS = 5_000;

/** Starts a bounded number of upstreams at a time, in the order of arrival. */
export class StartQueue {
  readonly #slots: FairSlots;

  constructor(limit: number) {
    this.#slots = new FairSlots({ slots: limit, slotsPerOwner: limit, waiting: Infinity, waitingPerOwner: Infinity });
  }

  /** Runs `start` when the limit allows it, and settles as `start` does. */
  run(start: () => Promise<void>): Promise<void> {
    return new Promise((resolve) => {
      void this.#slots.run('', async () => {
        const starting = start();
        resolve(starting);
        await settlesWithin(starting, SHARE_MS);
      });
    });
  }
}
