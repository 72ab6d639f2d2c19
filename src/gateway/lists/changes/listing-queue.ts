import { FairSlots } from '../../../fair-slots.ts';
import { type LimitName, LIMITS } from '../../../limits.ts';

const NAMES = { slots: 'privateListings', slotsPerOwner: 'privateListingsPerUpstream' } as const;

/**
 * Bounds the listings of private connections that run at once, in total and for each upstream. Upstreams that have waiting
 * listings take turns.
 */
export class ListingQueue {
  readonly #slots = new FairSlots({
    slots: LIMITS.privateListings,
    slotsPerOwner: LIMITS.privateListingsPerUpstream,
    waiting: Infinity,
    waitingPerOwner: Infinity,
  });
  readonly #onLimit: (limit: LimitName) => void;

  /** @param onLimit runs for each listing that has to wait. */
  constructor(onLimit: (limit: LimitName) => void) {
    this.#onLimit = onLimit;
  }

  /** Runs a listing when the limits allow it, and settles as the listing does. */
  async run(upstream: string, list: () => Promise<void>): Promise<void> {
    const full = this.#slots.fullFor(upstream);
    if (full !== undefined) this.#onLimit(NAMES[full]);
    await this.#slots.run(upstream, list);
  }
}
