import { setImmediate as nextTurn, setTimeout as sleep } from 'node:timers/promises';
import type { Logger } from 'pino';
import { isSameOffer } from '../../catalog/offer.ts';
import type { ClientFeatures } from '../../upstream/link/link.ts';
import type { ConnectionHolder, Link, Upstreams } from '../exchange/connection-holder.ts';
import type { ListingQueue } from './listing-queue.ts';
import type { Offers } from './offers.ts';
import { LEAST_GAP_MS } from './pace.ts';

export interface PrivateListsParts {
  readonly upstreams: Upstreams;
  readonly offers: Offers;
  readonly queue: ListingQueue;
  readonly log: Logger;
  /** Gives a holder the catalog of the current offers. */
  refreshCatalog(holder: ConnectionHolder): void;
  /** Runs when the lists of the link were compared with those for all clients, or could not be fetched. */
  readonly onListed: (link: Link, outcome: 'equal' | 'differs' | 'failed') => void;
}

/** Fetches the lists of private connections again after they changed. Only the users of the connection get them. */
export class PrivateLists {
  readonly #parts: PrivateListsParts;
  /** Links whose lists are being fetched; true if they have changed again meanwhile. */
  readonly #listing = new Map<Link, boolean>();
  #lastTurn: Promise<void> = Promise.resolve();

  constructor(parts: PrivateListsParts) {
    this.#parts = parts;
  }

  /** Fetches the lists after an upstream reported a change on this link. Reports during a listing lead to one more. */
  onChanged(link: Link): void {
    const isListing = this.#listing.has(link);
    this.#listing.set(link, isListing);
    if (!isListing) void this.#listWhileChanged(link);
  }

  /**
   * Lists the link until no change is reported during a listing. Each listing waits in the queue again, after a pause
   * of its own length, since a link may report changes without end.
   */
  async #listWhileChanged(link: Link): Promise<void> {
    const { queue, log, onListed } = this.#parts;
    try {
      do {
        let tookMs = 0;
        let isOwn = false;
        await queue.run(link.upstream, async () => {
          if (link.connection.isClosed) return;
          this.#listing.set(link, false);
          const begunMs = performance.now();
          isOwn = await this.#list(link);
          tookMs = performance.now() - begunMs;
        });
        onListed(link, isOwn ? 'differs' : 'equal');
        if (this.#listing.get(link) === true) await sleep(Math.min(tookMs, LEAST_GAP_MS), undefined, { ref: false });
      } while (this.#listing.get(link) === true && !link.connection.isClosed);
    } catch (thrown) {
      log.warn({ err: thrown, upstream: link.upstream }, 'changed lists not fetched');
      onListed(link, 'failed');
    } finally {
      this.#listing.delete(link);
    }
  }

  /** Lists a link for each set of capabilities of its users. Resolves with true if lists differ from those for all clients. */
  async #list(link: Link): Promise<boolean> {
    let isOwn = false;
    for (const features of distinctFeatures(link.users)) {
      if (await this.#listFor(link, features)) isOwn = true;
    }
    return isOwn;
  }

  /**
   * Resolves in a separate turn of the event loop for each caller: each listing makes a catalog, and many may arrive
   * together.
   */
  #nextTurn(): Promise<void> {
    this.#lastTurn = this.#lastTurn.then(() => nextTurn());
    return this.#lastTurn;
  }

  /** Lists a link for one set of capabilities: a modern connection serves clients of different capabilities. */
  async #listFor(link: Link, { clientCapabilities, capabilityKey }: ClientFeatures): Promise<boolean> {
    const { upstreams, offers } = this.#parts;
    const offer = await upstreams.get(link.upstream)?.list(link, clientCapabilities);
    if (offer === undefined) return false;
    await this.#nextTurn();
    if (link.connection.isClosed || link.isRetired) return false;
    const { upstream, era, audience } = link;
    const common = offers.offerIn(upstream, { era, capabilityKey, audience });
    const isOwn = common === undefined || !isSameOffer(common, offer);
    // The changed state may be outside of the process, and concern other clients too.
    if (isOwn) offers.expire(upstream, era, audience);
    for (const holder of link.users) {
      if (holder.capabilityKey !== capabilityKey) continue;
      if (isOwn) holder.ownOffers.set(link.upstream, offer);
      else holder.ownOffers.delete(link.upstream);
      this.#parts.refreshCatalog(holder);
    }
    return isOwn;
  }

  /** Removes the offers of a closed link from the catalogs of its users. */
  onLinkClosed(link: Link): void {
    for (const holder of link.users) {
      if (holder.ownOffers.delete(link.upstream)) this.#parts.refreshCatalog(holder);
    }
  }
}

/** Returns one holder for each set of capabilities. */
function distinctFeatures(holders: Iterable<ConnectionHolder>): Iterable<ClientFeatures> {
  return new Map([...holders].map((holder) => [holder.capabilityKey, holder])).values();
}
