import type { SharedParts } from '../../records/shared-parts.ts';
import { LIST_KINDS, type ListKind, type OfferKey, offerKeyText } from '../../../catalog/offer.ts';
import { isSameRestriction } from '../../../catalog/restriction.ts';
import { upstreamIn } from '../../../catalog/view.ts';
import type { RawObject } from '../../../json/json.ts';
import { EVERYBODY } from '../../../upstream/connection-key.ts';
import { retryUntilDone } from '../../../upstream/lifecycle/retry-until-done.ts';
import { isPrivate } from '../../../upstream/link/link.ts';
import { SingleRuns } from '../../../upstream/single-runs.ts';
import { inSlices } from '../../../work-turn.ts';
import type { ConnectionHolder, Link } from '../../exchange/connection-holder.ts';
import type { Offers } from '../offers.ts';
import type { ListAnnouncer } from './list-announcer.ts';
import { PrivateLists } from './private-lists.ts';
import { type ListingOutcome, RepeatedListings } from './repeated-listings.ts';

/**
 * The time for which changed lists for certain capabilities are read again after a failure. A remote upstream retries only those for all
 * clients.
 */
const RETRIED_MS = 60_000;

export interface ChangedListsParts extends Pick<SharedParts, 'upstreams' | 'siblingsOf' | 'log' | 'onLimit'> {
  readonly holders: Iterable<ConnectionHolder>;
  readonly offers: Offers;
  readonly announcer: ListAnnouncer;
  /** Runs when a holder has got another catalog, which may lead to fewer upstreams and resources. */
  onOtherCatalog(holder: ConnectionHolder): void;
  /** Runs when a session, whose catalog did not lead to all of its stored subscriptions, may have got another one. */
  onCatalogOfUnresolved(holder: ConnectionHolder): void;
}

/** The lists that a connection reported as changed, before and after it answered its first call. */
interface Report {
  readonly atStart: Set<ListKind>;
  readonly afterwards: Set<ListKind>;
}

/** Reads lists again that may have changed, gives holders the catalogs made of them, and announces the changes to clients. */
export class ChangedLists {
  readonly #parts: ChangedListsParts;
  readonly #privateLists: PrivateLists;
  readonly #sharedListings = new RepeatedListings((link, onBegin) => this.#listShared(link, onBegin));
  /** Listings for certain capabilities that are repeated after a failure. */
  readonly #retries = new SingleRuns<void>();
  /** Lists that a link reported as changed and that were not fetched again yet. */
  readonly #reported = new WeakMap<Link, Report>();

  constructor(parts: ChangedListsParts) {
    this.#parts = parts;
    this.#privateLists = new PrivateLists({
      ...parts,
      refreshCatalog: (holder) => this.refreshCatalog(holder),
      onListed: (link, outcome) => {
        // After a failure, they are announced once the lists can be read.
        if (outcome !== 'failed') this.#announceReported(link, this.#privateHolders(link), outcome === 'differs');
      },
    });
  }

  /** Lists an upstream again after it has reported on this link that a list changed. @param link not of a retired upstream. */
  onReported(link: Link, kind: ListKind): void {
    link.hasReportedChange = true;
    const report = this.#reported.get(link) ?? { atStart: new Set(), afterwards: new Set() };
    this.#reported.set(link, report);
    (link.hasAnsweredCall ? report.afterwards : report.atStart).add(kind);
    this.#listAgain(link);
  }

  /** Reads the lists of a link that may have changed unnoticed, as those of a session that was continued. Clients hear only of what differs. */
  onPossibleChanges(link: Link): void {
    const { capabilities } = link.hello;
    if (!link.isRetired && LIST_KINDS.some((kind) => announcesChanges(capabilities, kind))) this.#listAgain(link);
  }

  #listAgain(link: Link): void {
    if (isPrivate(link)) this.#privateLists.onChanged(link);
    else this.#sharedListings.onChanged(link);
  }

  /** Lists an upstream after a change that it has reported on a link for all clients. The upstream repeats a listing for everybody that fails. */
  async #listShared(link: Link, onBegin: () => void): Promise<ListingOutcome> {
    onBegin();
    const { upstreams, offers, log } = this.#parts;
    const upstream = upstreams.get(link.upstream);
    if (link.isRetired || upstream === undefined) return 'equal';
    const offer = () => offers.exactOffer(link.upstream, link);
    const before = offer();
    const outcome = () => (offer() === before ? 'equal' : 'changed');
    try {
      await upstream.runningRefresh(link.era, link, link.audience);
      // A server reports what it registers after its start. Another connection would report it again.
      if (link.connection.isClosed && !link.hasAnsweredCall) return 'equal';
      await upstream.refresh(link.era, link, link.audience);
      // The change may be one of items that only clients with certain capabilities get.
      const mayConcernSome = link.capabilityKey === '' && !upstream.isProcess && outcome() === 'equal';
      if (mayConcernSome) await this.refreshVariants(link.upstream, link);
      this.#announceReported(link, this.#sharedHolders(link), false);
      return outcome();
    } catch (thrown) {
      log.warn({ err: thrown, upstream: link.upstream }, 'changed lists not fetched');
      if (link.audience !== EVERYBODY) return 'failed';
      this.#reported.delete(link);
      return outcome();
    }
  }

  /**
   * Announces the changes that an upstream reported, even if its lists turned out equal. Ignores reports from before
   * the first answer if the lists are equal: many servers report the tools that they register while they start.
   */
  #announceReported(link: Link, holders: Iterable<ConnectionHolder>, isDifferent: boolean): void {
    const report = this.#reported.get(link);
    this.#reported.delete(link);
    if (report === undefined) return;
    const kinds = isDifferent ? report.afterwards.union(report.atStart) : report.afterwards;
    if (kinds.size === 0) return;
    for (const holder of holders) {
      const isViewed = upstreamIn(holder.catalog.view, link.upstream) !== undefined;
      if (!isViewed || !holder.wantsListChanges) continue;
      // Announces differing lists together with the reported ones.
      this.refreshCatalog(holder);
      // The reported change may be one of items that the client may not see.
      if (holder.catalog.restriction !== undefined) continue;
      this.#parts.announcer.add(holder, kinds);
    }
  }

  /** Announces the lists that may have changed while a restored session was in no process. */
  onRestored(holder: ConnectionHolder): void {
    const { capabilities } = holder.catalog;
    this.#parts.announcer.add(
      holder,
      LIST_KINDS.filter((kind) => announcesChanges(capabilities, kind)),
    );
  }

  /**
   * Gives a new user of a connection the lists that it has for itself. Reads those of a new process whose definitions are pinned: it may be
   * of another version than the one that was listed.
   */
  onOpen(link: Link, holder: ConnectionHolder): void {
    const { offers, upstreams } = this.#parts;
    if (!isPrivate(link)) return;
    this.#privateLists.onJoined(link, holder);
    if (!offers.isPinned(link.upstream)) return;
    if (upstreams.get(link.upstream)?.isProcess === true) this.#privateLists.onChanged(link);
  }

  /** Gives the users of a closed link the lists for all clients again. Those of a retired one have links of another upstream. */
  onLinkClosed(link: Link): void {
    if (link.isRetired) this.#privateLists.release(link);
    else this.#privateLists.onLinkClosed(link);
  }

  /** Yields the holders that a shared connection may serve. */
  *#sharedHolders({ upstream: id, audience }: Link): Iterable<ConnectionHolder> {
    const upstream = this.#parts.upstreams.get(id);
    for (const holder of this.#parts.holders) if (upstream?.audienceOf(holder.principal) === audience) yield holder;
  }

  /** Returns the users of a private connection, and the siblings of its client groups. */
  #privateHolders(link: Link): ReadonlySet<ConnectionHolder> {
    const holders = new Set(link.users);
    for (const user of link.users) for (const sibling of this.#parts.siblingsOf(user)) holders.add(sibling);
    return holders;
  }

  /**
   * Lists an upstream again for clients with certain capabilities, after the lists for clients of any capabilities have changed.
   * Removes offers for capabilities that no current holder has. Never rejects.
   */
  async refreshVariants(upstreamId: string, changed: OfferKey): Promise<void> {
    const { offers, upstreams, log } = this.#parts;
    const listings: Promise<void>[] = [];
    for (const key of offers.keysOf(upstreamId, changed.era)) {
      if (key.capabilityKey === '' || key.audience !== changed.audience) continue;
      const relist = () => this.#relistVariant(upstreamId, key);
      listings.push(
        relist().catch((thrown: unknown) => {
          log.warn(
            { err: thrown, upstream: upstreamId },
            'changed lists not fetched for clients with certain capabilities',
          );
          if (upstreams.get(upstreamId)?.isProcess === true && key.audience === EVERYBODY) return;
          const retry = () => retryUntilDone(relist, () => 0, AbortSignal.timeout(RETRIED_MS));
          void this.#retries.run(`${upstreamId} ${offerKeyText(key)}`, retry);
        }),
      );
    }
    await Promise.all(listings);
  }

  /** Reads the lists of an offer for certain capabilities again, for a holder that has them. Removes the offer if there is none. */
  async #relistVariant(upstreamId: string, key: OfferKey): Promise<void> {
    const { offers, holders, upstreams } = this.#parts;
    // A repeated listing finds other upstreams and holders than the first one.
    const upstream = upstreams.get(upstreamId);
    if (upstream === undefined || !upstream.listsByCapabilities) return;
    const able = [...holders].filter(
      (one) => one.capabilityKey === key.capabilityKey && upstream.audienceOf(one.principal) === key.audience,
    );
    // One that was replaced a moment ago has shown no era yet. Then it is asked in the era of the holder first.
    const holder =
      able.find(({ era }) => (upstream.servingEra(era) ?? era) === key.era) ??
      able.find(({ era }) => upstream.servingEra(era) === undefined);
    if (holder === undefined) offers.remove(upstreamId, key);
    else await upstream.relist(holder.era, holder, key.audience);
  }

  /** Rebuilds the catalogs that show one of these upstreams, and announces the changes. */
  async onListsChanged(upstreams: Iterable<string>): Promise<void> {
    const views = new Set([...upstreams].flatMap((id) => [...this.#parts.offers.viewsWith(id)]));
    await inSlices(this.#parts.holders, (holder) => {
      if (views.has(holder.view)) this.refreshCatalog(holder);
    });
  }

  /** Rebuilds the catalogs of all holders, and announces the changes. */
  async onConfigChanged(): Promise<void> {
    await inSlices(this.#parts.holders, (holder) => this.refreshCatalog(holder));
  }

  /** Gives a holder the catalog of the current offers, and announces the lists that differ. */
  refreshCatalog(holder: ConnectionHolder): void {
    const before = holder.catalog;
    const after = this.#parts.offers.catalogFor(holder);
    holder.catalog = after;
    holder.catalogVersion = this.#parts.offers.version;
    if (!isSameRestriction(before.restriction, after.restriction)) holder.onRightsChange();
    if (before !== after) this.#parts.onOtherCatalog(holder);
    if (holder.unresolved !== undefined) this.#parts.onCatalogOfUnresolved(holder);
    if (before === after || !holder.wantsListChanges) return;
    const kinds = LIST_KINDS.filter((kind) => before.digest[kind] !== after.digest[kind]);
    if (kinds.length > 0) this.#parts.announcer.add(holder, kinds);
  }
}

/** Returns whether a server with these capabilities announces changes of a list. */
function announcesChanges(capabilities: RawObject, kind: ListKind): boolean {
  return capabilities.object(kind)?.raw('listChanged') === 'true';
}
