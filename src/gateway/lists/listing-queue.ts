import { type LimitName, LIMITS } from '../../limits.ts';

interface UpstreamListings {
  running: number;
  /** Callbacks that start waiting listings, in the order of arrival. */
  readonly waiting: (() => void)[];
}

/**
 * Bounds the listings of private connections that run at once, in total and for each upstream. Upstreams that have waiting
 * listings take turns.
 */
export class ListingQueue {
  readonly #onLimit: (limit: LimitName) => void;
  /** By upstream, the next one to start a listing first. Only upstreams with listings are included. */
  readonly #byUpstream = new Map<string, UpstreamListings>();
  #running = 0;

  /** @param onLimit runs for each listing that has to wait. */
  constructor(onLimit: (limit: LimitName) => void) {
    this.#onLimit = onLimit;
  }

  /** Runs a listing when the limits allow it, and settles as the listing does. */
  async run(upstream: string, list: () => Promise<void>): Promise<void> {
    const listings = this.#byUpstream.get(upstream) ?? { running: 0, waiting: [] };
    this.#byUpstream.set(upstream, listings);
    const limit = this.#limitFor(listings);
    if (limit === undefined) this.#begin(listings);
    else {
      this.#onLimit(limit);
      await new Promise<void>((resolve) => listings.waiting.push(resolve));
    }
    try {
      await list();
    } finally {
      this.#end(upstream, listings);
    }
  }

  /** Returns the limit that the next listing has to wait for; undefined if it can start. */
  #limitFor({ running }: UpstreamListings): LimitName | undefined {
    if (running >= LIMITS.privateListingsPerUpstream) return 'privateListingsPerUpstream';
    return this.#running >= LIMITS.privateListings ? 'privateListings' : undefined;
  }

  #begin(listings: UpstreamListings): void {
    listings.running++;
    this.#running++;
  }

  #end(upstream: string, listings: UpstreamListings): void {
    listings.running--;
    this.#running--;
    if (listings.running === 0 && listings.waiting.length === 0) this.#byUpstream.delete(upstream);
    this.#beginNext();
  }

  #beginNext(): void {
    for (const [upstream, listings] of this.#byUpstream) {
      const next =
        listings.waiting.length > 0 && this.#limitFor(listings) === undefined ? listings.waiting.shift() : undefined;
      if (next === undefined) continue;
      // Moved to the end, so that every other upstream comes first.
      this.#byUpstream.delete(upstream);
      this.#byUpstream.set(upstream, listings);
      this.#begin(listings);
      next();
      return;
    }
  }
}
