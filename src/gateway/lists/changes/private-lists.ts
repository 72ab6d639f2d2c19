import type { SharedParts } from '../../records/shared-parts.ts';
import { setImmediate as nextTurn } from 'node:timers/promises';
import { isDeepStrictEqual } from 'node:util';
import { isSameOffer, type Offer } from '../../../catalog/offer.ts';
import { type ClientFeatures, NO_FEATURES } from '../../../upstream/link/link.ts';
import { resultWithin } from '../../../deadline.ts';
import type { ConnectionHolder, Link } from '../../exchange/connection-holder.ts';
import { ListingQueue } from './listing-queue.ts';
import type { Offers } from '../offers.ts';
import { PrivateOfferBudget } from './private-offer-budget.ts';
import { type ListingOutcome, RepeatedListings } from './repeated-listings.ts';

/** The longest wait for the lists of all clients, before those of a connection count as its own. */
const SHARED_MS = 5_000;

/** The outcome of listing a link. */
interface Outcome {
  /** True if lists differ from those for all clients. */
  readonly isOwn: boolean;
  /** True if lists differ from those that its clients have had. */
  readonly isChanged: boolean;
  /** True if a list could not be read that could be before. */
  readonly isPartial: boolean;
}

/** The last listing of a link. */
interface Listed {
  /** By capability key: the lists that its clients got, or undefined for those of all clients. */
  readonly own: Map<string, Offer | undefined>;
  isEnded: boolean;
}

const AS_BEFORE: Outcome = { isOwn: false, isChanged: false, isPartial: false };

export interface PrivateListsParts extends Pick<SharedParts, 'upstreams' | 'log' | 'onLimit'> {
  readonly offers: Offers;
  /** Gives a holder the catalog of the current offers. */
  refreshCatalog(holder: ConnectionHolder): void;
  /** Runs when the lists of the link were compared with those for all clients, or could not be fetched. */
  readonly onListed: (link: Link, outcome: 'equal' | 'differs' | 'failed') => void;
}

/** Fetches the lists of private connections again after they changed. Only the users of the connection get them. */
export class PrivateLists {
  readonly #parts: PrivateListsParts;
  readonly #queue: ListingQueue;
  readonly #budget = new PrivateOfferBudget();
  readonly #listings = new RepeatedListings((link, onBegin) => this.#listOnce(link, onBegin));
  readonly #listed = new WeakMap<Link, Listed>();
  #lastTurn: Promise<void> = Promise.resolve();

  constructor(parts: PrivateListsParts) {
    this.#parts = parts;
    this.#queue = new ListingQueue(parts.onLimit);
  }

  /** Fetches the lists after an upstream reported a change on this link. Reports during a listing lead to one more. */
  onChanged(link: Link): void {
    this.#listings.onChanged(link);
  }

  /** Gives a holder that has joined a link the lists that it has for itself. Lists it for capabilities that had no user at its last change. */
  onJoined(link: Link, holder: ConnectionHolder): void {
    const { upstream } = link;
    const { capabilityKey } = holder;
    const listed = this.#listed.get(link);
    if (listed === undefined || holder.ownOffers.has(upstream)) return;
    if (listed.isEnded && !listed.own.has(capabilityKey)) this.onChanged(link);
    const own = listed.own.get(capabilityKey) ?? this.#budget.offerOf(link, capabilityKey);
    if (own === undefined) return;
    holder.ownOffers.set(upstream, own);
    this.#parts.refreshCatalog(holder);
  }

  /** Lists a link when the queue allows it. Resolves as `ListOnce` does. */
  async #listOnce(link: Link, onBegin: () => void): Promise<ListingOutcome> {
    const { log, onListed } = this.#parts;
    let outcome: Outcome = AS_BEFORE;
    try {
      await this.#queue.run(link.upstream, async () => {
        if (link.connection.isClosed) return;
        onBegin();
        outcome = await this.#list(link);
      });
      if (!outcome.isPartial) {
        onListed(link, outcome.isOwn ? 'differs' : 'equal');
        return outcome.isChanged ? 'changed' : 'equal';
      }
    } catch (thrown) {
      // A connection that was lost has a line of its own in the log.
      if (!link.connection.isClosed) log.warn({ err: thrown, upstream: link.upstream }, 'changed lists not fetched');
    }
    onListed(link, 'failed');
    return 'failed';
  }

  /** Lists a link for each set of capabilities of its users, also of those that join meanwhile. */
  async #list(link: Link): Promise<Outcome> {
    const listed: Listed = { own: new Map(), isEnded: false };
    this.#listed.set(link, listed);
    let all = AS_BEFORE;
    const unlisted = () => [...link.users].find(({ capabilityKey }) => !listed.own.has(capabilityKey));
    let user = unlisted();
    try {
      for (; user !== undefined; user = unlisted()) {
        listed.own.set(user.capabilityKey, undefined);
        const one = await this.#listFor(link, user, listed);
        all = {
          isOwn: all.isOwn || one.isOwn,
          isChanged: all.isChanged || one.isChanged,
          isPartial: all.isPartial || one.isPartial,
        };
      }
    } catch (thrown) {
      // The next client that joins causes another listing.
      if (user !== undefined) listed.own.delete(user.capabilityKey);
      throw thrown;
    } finally {
      listed.isEnded = true;
    }
    return all;
  }

  /** Gives each caller a turn of the event loop: each listing makes a catalog, and many may arrive together. */
  #nextTurn(): Promise<void> {
    this.#lastTurn = this.#lastTurn.then(() => nextTurn());
    return this.#lastTurn;
  }

  /** Lists a link for one set of capabilities: a modern connection serves clients of different capabilities. */
  async #listFor(link: Link, features: ClientFeatures, listed: Listed): Promise<Outcome> {
    const { clientCapabilities, capabilityKey } = features;
    const { upstreams, offers, log } = this.#parts;
    const { upstream, era, audience } = link;
    const commonOffer = () => offers.offerIn(upstream, { era, capabilityKey, audience });
    const known = () => this.#budget.offerOf(link, capabilityKey) ?? commonOffer();
    const before = known();
    const listing = await upstreams.get(upstream)?.list(link, clientCapabilities, known);
    if (listing === undefined) return AS_BEFORE;
    const { offer, failure } = listing;
    if (failure !== undefined) log.warn({ err: failure, upstream }, 'changed lists not fetched');
    await this.#nextTurn();
    await offers.readDefinitions(upstream, offer);
    if (link.connection.isClosed || link.isRetired) return AS_BEFORE;
    const isPartial = failure !== undefined && !isDeepStrictEqual(before?.unreadable, offer.unreadable);
    // They are read once more. Until then, the record of the failure is no reason for lists of its own.
    if (isPartial && before !== undefined && isSameOffer(before, { ...offer, unreadable: before.unreadable }))
      return { ...AS_BEFORE, isPartial };
    const isChanged = before === undefined || !isSameOffer(before, offer);
    const differs = () => {
      const common = commonOffer();
      return common === undefined || !isSameOffer(common, offer);
    };
    // Lists of a connection do not reach the other processes, which answer the same client.
    if (offers.stored.areShared && differs()) await this.#relistShared(link, { clientCapabilities, capabilityKey });
    if (link.connection.isClosed || link.isRetired) return AS_BEFORE;
    const isOwn = differs();
    // The changed state may be outside of the process, and concern other clients too.
    if (isOwn) offers.expire(upstream, era, audience);
    const own = isOwn ? this.#keep(link, capabilityKey, offer) : undefined;
    if (!isOwn) this.#budget.remove(link, capabilityKey);
    listed.own.set(capabilityKey, own);
    offers.setOwn(upstream, this.#budget.offersOf(upstream));
    for (const holder of link.users) {
      if (holder.capabilityKey !== capabilityKey) continue;
      if (own !== undefined) holder.ownOffers.set(link.upstream, own);
      else holder.ownOffers.delete(link.upstream);
      this.#parts.refreshCatalog(holder);
    }
    return { isOwn, isChanged, isPartial };
  }

  /** Returns the lists that clients of the connection get; undefined for those of all clients, if there is no room for more. */
  #keep(link: Link, capabilityKey: string, offer: Offer): Offer | undefined {
    const { upstream } = link;
    const limit = this.#budget.keep(link, capabilityKey, offer);
    if (limit === undefined) return offer;
    this.#parts.onLimit(limit);
    this.#parts.log.warn({ upstream, limit }, 'lists of a single connection are not kept: they take too much memory');
    // The definitions of this connection may differ from the lock, so its clients get none instead of others.
    if (!this.#parts.offers.isPinned(upstream)) return undefined;
    return { ...offer, tools: [], prompts: [], resources: [], templates: [] };
  }

  /**
   * Lists the upstream for all clients, and for those with these features if they have had other lists, in bounded time. Never rejects: then the
   * lists of the connection are its own.
   */
  async #relistShared({ upstream: id, era, audience }: Link, features: ClientFeatures): Promise<void> {
    const { upstreams, offers } = this.#parts;
    const upstream = upstreams.get(id);
    if (upstream === undefined) return;
    const { capabilityKey } = features;
    const hasVariant = capabilityKey !== '' && offers.exactOffer(id, { era, capabilityKey, audience }) !== undefined;
    const listings = [NO_FEATURES, ...(hasVariant ? [features] : [])].map((each) =>
      upstream.relist(era, each, audience).catch(() => undefined),
    );
    await resultWithin(Promise.all(listings), SHARED_MS);
  }

  /** Gives up the offers of a closed link. */
  release(link: Link): void {
    const { upstream } = link;
    if (this.#budget.removeAll(link)) this.#parts.offers.setOwn(upstream, this.#budget.offersOf(upstream));
  }

  /** Removes the offers of a closed link also from the catalogs of its users. */
  onLinkClosed(link: Link): void {
    const { upstream } = link;
    this.release(link);
    for (const holder of link.users) {
      if (holder.ownOffers.delete(upstream)) this.#parts.refreshCatalog(holder);
    }
  }
}
