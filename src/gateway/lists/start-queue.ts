import { settlesWithin } from '../../deadline.ts';
import { FairSlots } from '../../fair-slots.ts';
import { type LimitName, LIMITS } from '../../limits.ts';

/** A start counts against the limit for at most this long. */
const SHARE_MS = 5_000;

/** The owner of what the gateway starts for itself: at most once for each upstream, so its starts are never too many. */
export const GATEWAY = '';

/** Starts a bounded number of upstreams at a time. Principals that wait take turns, each in the order of arrival. */
export class StartQueue {
  readonly #slots: FairSlots;

  constructor(limit: number) {
    this.#slots = new FairSlots({ slots: limit, slotsPerOwner: limit, waiting: Infinity, waitingPerOwner: Infinity });
  }

  /** Returns the bound on waiting starts that a further one for this owner would exceed; undefined if it may wait. */
  fullFor(owner: string): LimitName | undefined {
    if (owner === GATEWAY) return undefined;
    if (this.#slots.waitingCallers(owner) >= LIMITS.waitingListingsPerPrincipal) return 'waitingListingsPerPrincipal';
    return this.#slots.waitingCallers() >= LIMITS.waitingListings ? 'waitingListings' : undefined;
  }

  /** Runs `start` when the limit allows it. */
  run(owner: string, start: () => Promise<void>): void {
    void this.#slots.run(owner, () => settlesWithin(start(), SHARE_MS));
  }
}
