import { setTimeout as sleep } from 'node:timers/promises';
import type { Link } from '../exchange/connection-holder.ts';

/** The longest pause between two listings. */
const PAUSE_MS = 1_000;

/** Lists one link, and handles the outcome. Never rejects. @param onBegin must run when the listing begins. */
type ListOnce = (link: Link, onBegin: () => void) => Promise<void>;

/**
 * Lists links after they have reported changes, one listing of a link at a time. A report during a listing leads to one more, after a pause of the
 * length of the last one, since a link may report changes without end.
 */
export class RepeatedListings {
  readonly #list: ListOnce;
  /** Links that are being listed; true if they have changed again meanwhile. */
  readonly #listing = new Map<Link, boolean>();

  constructor(list: ListOnce) {
    this.#list = list;
  }

  onChanged(link: Link): void {
    const isListing = this.#listing.has(link);
    this.#listing.set(link, isListing);
    if (!isListing) void this.#listWhileChanged(link);
  }

  /** Lists a link until no change is reported during a listing, also during one that fails. */
  async #listWhileChanged(link: Link): Promise<void> {
    const isChanged = () => this.#listing.get(link) === true && !link.connection.isClosed;
    do {
      let begunMs = performance.now();
      await this.#list(link, () => {
        this.#listing.set(link, false);
        begunMs = performance.now();
      });
      const tookMs = performance.now() - begunMs;
      if (isChanged()) await sleep(Math.min(tookMs, PAUSE_MS), undefined, { ref: false });
    } while (isChanged());
    this.#listing.delete(link);
  }
}
