import { setTimeout as sleep } from 'node:timers/promises';
import { retryPauseMs } from '../../../upstream/lifecycle/retry-until-done.ts';
import type { Link } from '../../exchange/connection-holder.ts';

/**
 * The longest pause between two listings with different outcomes. After this time without a report, a link is listed without a pause: clients
 * get changes about once a second.
 */
const PAUSE_MS = 1_000;
/** The longest pause while the lists stay equal. Some servers start a program for each request, which reports its lists as changed. */
const EQUAL_PAUSE_MS = 10_000;
/** After so many equal listings, a report that comes during a listing leads to one more, and reports during that one to no other. */
const EQUAL_LISTINGS = 5;

/** The outcome of a listing: lists that differ from those before or do not, or `failed` if they have to be read once more. */
export type ListingOutcome = 'changed' | 'equal' | 'failed';

/**
 * Lists one link, and handles the outcome. Never rejects.
 *
 * @param onBegin must run when the listing begins.
 */
type ListOnce = (link: Link, onBegin: () => void) => Promise<ListingOutcome>;

/** The end of a listing, and the pause after it. Monotonic ms. */
interface Listed {
  readonly endMs: number;
  readonly pauseMs: number;
  /** Listings without a change, one soon after the other. */
  readonly equal: number;
}

/**
 * Lists links after they have reported changes, one listing of a link at a time. A report during or soon after a listing leads to one more,
 * after a pause of at least the length of the last one. The pause doubles each time, as some servers report a change whenever they are
 * listed. It grows to a second, or to 10 s while the lists stay equal. One that reports a change with each list is left alone then until it
 * reports one at another time.
 */
export class RepeatedListings {
  readonly #list: ListOnce;
  /** Links that are being listed; true if they have changed again meanwhile. */
  readonly #listing = new Map<Link, boolean>();
  readonly #last = new WeakMap<Link, Listed>();

  constructor(list: ListOnce) {
    this.#list = list;
  }

  onChanged(link: Link): void {
    const isListing = this.#listing.has(link);
    this.#listing.set(link, isListing);
    if (!isListing) void this.#listWhileChanged(link);
  }

  /** Lists a link until no change is reported during a listing. One that fails is repeated, as often as equal ones. */
  async #listWhileChanged(link: Link): Promise<void> {
    let last = this.#last.get(link) ?? { endMs: -Infinity, pauseMs: 0, equal: 0 };
    if (performance.now() - last.endMs > 2 * EQUAL_PAUSE_MS) last = { ...last, equal: 0 };
    let isFinal = false;
    let hasFailed = false;
    do {
      const sinceMs = performance.now() - last.endMs;
      const retryMs = hasFailed ? retryPauseMs(last.equal, Math.random()) : 0;
      const pauseMs = isFinal ? EQUAL_PAUSE_MS : Math.max(retryMs, last.pauseMs);
      if (sinceMs < Math.min(PAUSE_MS, pauseMs)) await sleep(pauseMs - sinceMs, undefined, { ref: false });
      if (link.connection.isClosed) break;
      let begunMs = performance.now();
      const outcome = await this.#list(link, () => {
        this.#listing.set(link, false);
        begunMs = performance.now();
      });
      const endMs = performance.now();
      const doubledMs = sinceMs < PAUSE_MS ? 2 * last.pauseMs : 1;
      const isChanged = outcome === 'changed';
      hasFailed = outcome === 'failed';
      const longestMs = isChanged ? PAUSE_MS : EQUAL_PAUSE_MS;
      last = {
        endMs,
        pauseMs: Math.min(longestMs, Math.max(endMs - begunMs, doubledMs)),
        equal: isChanged ? 0 : last.equal + 1,
      };
      this.#last.set(link, last);
      if (isFinal && !isChanged) break;
      isFinal = last.equal >= EQUAL_LISTINGS;
    } while (hasFailed || this.#listing.get(link) === true);
    this.#listing.delete(link);
  }
}
