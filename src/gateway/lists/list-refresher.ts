import type { SharedParts } from '../records/shared-parts.ts';
import type { Catalog } from '../../catalog/catalog.ts';
import { withUnlisted } from '../../catalog/merge.ts';
import { upstreamIn } from '../../catalog/view.ts';
import type { Settings } from '../../config/values/config.ts';
import type { RawObject } from '../../json/json.ts';
import { EVERYBODY } from '../../upstream/connection-key.ts';
import { isFailed, isUp } from '../../upstream/lifecycle/lifecycle.ts';
import { NO_FEATURES } from '../../upstream/link/link.ts';
import { resultWithin, settlesWithin } from '../../deadline.ts';
import type { Offers } from './offers.ts';
import type { ConnectionHolder, Upstream } from '../exchange/connection-holder.ts';
import { ListAges } from './list-ages.ts';
import { type FailedFetch, fetchIdOf, ListFetches, type ListingClient, offerKeyFor } from './list-fetches.ts';
import { ListeningRetries } from './listening-retries.ts';
import { GATEWAY } from './start-queue.ts';
import type { StartRecords } from './start-records.ts';

/** The longest wait for lists of clients with certain capabilities, while those for all clients are known. */
const FEATURES_WAIT_MS = 1_000;
/** The age of a holder's lists is checked at most once in this time. Lists with a stated time to live may be due earlier. */
const CHECKED_MS = 30_000;

/** The longest that a list request waits for lists that another process has changed. */
const READ_WAIT_MS = 250;

/** The largest number of late listings that are remembered. */
const MAX_SLOW = 1_024;

interface ListCheck {
  /** The end of the time without another check; monotonic. */
  untilMs: number;
  /** Those of the offers at its begin: the lists of an era that an upstream has changed to may be missing. */
  readonly eraChanges: number;
  /** Undefined when the check has ended. */
  running: Promise<void> | undefined;
}

/** An upstream that a list request waits for. */
interface AwaitedFetch {
  readonly upstream: Upstream;
  /** True if the upstream was listed for other clients before. */
  readonly wasListed: boolean;
  /** Resolves with true if the lists were fetched. */
  readonly fetched: Promise<boolean>;
  /** The fetch of the lists for all clients, if it runs at the same time. */
  readonly common?: Promise<boolean> | undefined;
  /** As {@link fetchIdOf} makes it. */
  readonly fetchId: string;
}

/** The client that lists are fetched for before any client has connected. Nearly all clients are of this era. */
const FIRST_CLIENT: ListingClient = { era: 'legacy', principal: GATEWAY, ...NO_FEATURES };

export interface ListRefresherParts extends Pick<SharedParts, 'views' | 'upstreams' | 'onLimit'> {
  readonly offers: Offers;
  readonly records: StartRecords;
  /** With the longest time that a list request waits for an upstream that was never listed. */
  readonly settings: Settings<'lists'>;
  /** Resolves when lists are read that another process has changed; undefined if there are none. */
  reading(): Promise<unknown> | undefined;
  /** Gives a holder the catalog of the current offers. */
  refreshCatalog(holder: ConnectionHolder): void;
}

/** Fetches the lists that list requests and `initialize` need, in the era of each client, in bounded time. */
export class ListRefresher {
  readonly #parts: ListRefresherParts;
  readonly #fetches: ListFetches;
  readonly #ages: ListAges;
  readonly #retries: ListeningRetries;
  /** The last check of each holder. Requests during a check wait for it. */
  #recent = new WeakMap<ConnectionHolder, ListCheck>();
  /** Upstreams that were not listed in time for clients with certain capabilities, by the id of the fetch. */
  readonly #slow = new Set<string>();

  constructor(parts: ListRefresherParts) {
    this.#parts = parts;
    this.#fetches = new ListFetches(parts.records, (fetchId) => this.#slow.delete(fetchId), parts.onLimit);
    this.#ages = new ListAges(parts.offers, parts.records);
    const fetch = (upstream: Upstream, client: ListingClient) => this.#fetchIfStale(upstream, client);
    this.#retries = new ListeningRetries(this.#fetches, fetch);
  }

  /**
   * Begins to fetch the lists of an endpoint, for its instructions and capabilities. Waits only if the endpoint shows
   * one upstream that was never listed, since there is nothing to answer with.
   *
   * @param client its features are those that a process is started with, so that it can serve this client afterwards.
   * @throws {GatewayError} `overloaded` if too many listings wait.
   */
  async beginFirstLists(view: string, client: ListingClient): Promise<void> {
    const { offers, records, settings } = this.#parts;
    const { waitMs } = settings().lists;
    const upstreams = this.#usableUpstreams(view);
    const [only, ...others] = upstreams;
    const wanted = upstreams.map((upstream) => {
      const own = upstream.listsByCapabilities && upstream.isProcess ? client : { ...client, ...NO_FEATURES };
      return { upstream, own, key: offerKeyFor(upstream, own) };
    });
    const keyed = wanted.filter(({ key }) => key.capabilityKey !== '');
    await Promise.all(keyed.map(({ upstream, key }) => offers.load(upstream.id, key)));
    for (const { upstream, own, key } of wanted) {
      const fetched = this.#fetchIfStale(upstream, own);
      if (upstream !== only || others.length > 0 || fetched === undefined) continue;
      // Instructions cannot be corrected later, so lists of the other era are not enough.
      const isKnown = offers.offerIn(upstream.id, key) !== undefined;
      if (isKnown || records.hasFailed(upstream.id)) continue;
      const first = [{ upstream, wasListed: false, fetched, fetchId: fetchIdOf(upstream, key) }];
      await this.#await(first, waitMs, this.#recordLate);
    }
  }

  /**
   * Fetches missing and outdated lists before a request is answered; undefined if it need not wait.
   *
   * @param of the ids of the upstreams that the request waits for. Default: all of its endpoint.
   * @throws {GatewayError} `overloaded` if there are no lists of one of them, and too many listings wait.
   */
  refreshFor(holder: ConnectionHolder, of?: readonly string[]): Promise<void> | undefined {
    const reading = this.#parts.reading();
    return reading === undefined ? this.#check(holder, of) : this.#checkAfterReading(reading, holder, of);
  }

  async #checkAfterReading(
    reading: Promise<unknown>,
    holder: ConnectionHolder,
    of: readonly string[] | undefined,
  ): Promise<void> {
    await resultWithin(reading, READ_WAIT_MS);
    await this.#check(holder, of);
  }

  /** Checks the lists of a holder, unless that was done a short time ago. Requests during a check wait for it, or for a part of it. */
  #check(holder: ConnectionHolder, of: readonly string[] | undefined): Promise<void> | undefined {
    const now = performance.now();
    const before = this.#recent.get(holder);
    const { eraChanges } = this.#parts.offers;
    if (before?.eraChanges === eraChanges && now <= before.untilMs) {
      if (before.running !== undefined) return this.#waitFor(holder, this.#partOf(before.running, holder, of));
      this.bringUpToDate(holder);
      return undefined;
    }
    const check: ListCheck = { untilMs: now + CHECKED_MS, eraChanges, running: undefined };
    const running = this.#fetchListsFor(holder, this.#usableUpstreams(holder.view)).finally(() => {
      check.running = undefined;
      check.untilMs = Math.min(check.untilMs, this.#dueMs(holder));
    });
    // One that was refused is made again by the next request.
    running.catch(() => (check.untilMs = Number.NEGATIVE_INFINITY));
    check.running = running;
    this.#recent.set(holder, check);
    return this.#waitFor(holder, this.#partOf(running, holder, of));
  }

  /** Returns the part of a running check that is about these upstreams. Its fetches are those of the check. */
  #partOf(running: Promise<void>, holder: ConnectionHolder, of: readonly string[] | undefined): Promise<void> {
    if (of === undefined) return running;
    const upstreams = this.#usableUpstreams(holder.view).filter(({ id }) => of.includes(id));
    const part = this.#fetchListsFor(holder, upstreams);
    return Promise.race([running.catch(() => part), part]);
  }

  /** Fetches the lists of every upstream. Resolves when each has been listed or has failed. */
  async refreshAll(): Promise<void> {
    const usable = [...this.#parts.upstreams.values()].filter(({ config }) => config.problem === undefined);
    await Promise.all(usable.map((upstream) => this.#fetches.fetch(upstream, FIRST_CLIENT)));
  }

  /** Fetches the lists of one upstream before any client has connected, in the era of nearly all clients. */
  refreshAtStart(upstream: Upstream): Promise<boolean> {
    return this.#fetches.fetch(upstream, FIRST_CLIENT);
  }

  refreshUnlessKnown(upstream: Upstream): Promise<boolean> | undefined {
    return this.#fetchIfStale(upstream, FIRST_CLIENT);
  }

  /** Lets the next list request of every holder check the lists, since upstreams have come or gone. */
  dropChecks(): void {
    this.#recent = new WeakMap();
  }

  async #waitFor(holder: ConnectionHolder, running: Promise<void>): Promise<void> {
    holder.awaitedLists++;
    try {
      await running;
    } finally {
      holder.awaitedLists--;
    }
    this.bringUpToDate(holder);
  }

  /** Gives the holder the catalog of the current offers at once, and not a few seconds later. */
  bringUpToDate(holder: ConnectionHolder): void {
    if (holder.catalogVersion !== this.#parts.offers.version) this.#parts.refreshCatalog(holder);
  }

  /**
   * Returns the capabilities that are declared to a holder.
   *
   * @param catalog of the holder, with the rights of its request.
   */
  capabilitiesFor({ view, era, capabilityKey, principal, ownOffers }: ConnectionHolder, catalog: Catalog): RawObject {
    const { offers } = this.#parts;
    const hasUnlisted = this.#usableUpstreams(view).some((upstream) => {
      const { id, lifecycle } = upstream;
      // The phase of a failed one is "starting" at each further attempt.
      const hasFailed = isFailed(lifecycle) || lifecycle.attempts > 0;
      const isKnown = () =>
        offers.offerFor(id, { era, capabilityKey, audience: upstream.audienceOf(principal) }) !== undefined;
      const isShown = upstreamIn(catalog.view, id) !== undefined;
      return isShown && !hasFailed && !ownOffers.has(id) && !isKnown();
    });
    return hasUnlisted ? withUnlisted(catalog.capabilities) : catalog.capabilities;
  }

  /**
   * Waits in bounded time for the first lists that this process reads of an upstream. Its names are unknown before, or known from disk alone; then
   * the upstream is started for them. Resolves with true if they are still being read.
   *
   * @param waitedMs the time that the request has waited for lists already.
   */
  async awaitFirstLists(holder: ConnectionHolder, upstreamId: string, waitedMs: number): Promise<boolean> {
    const askedMs = performance.now() - waitedMs;
    const renewal = this.#renewFromDisk(holder, upstreamId) ?? this.#ownListing(holder, upstreamId, askedMs);
    const listing = renewal ?? this.#firstListing(holder, upstreamId);
    if (listing === undefined) return false;
    const leftMs = this.#parts.settings().lists.waitMs - waitedMs;
    const hasEnded = leftMs > 0 && (await settlesWithin(listing, leftMs));
    this.bringUpToDate(holder);
    return renewal === undefined ? this.#firstListing(holder, upstreamId) !== undefined : !hasEnded;
  }

  /** Fetches lists that are fresh on disk, and were not read by this process. Returns undefined if there are none. */
  #renewFromDisk(holder: ConnectionHolder, upstreamId: string): Promise<boolean> | undefined {
    const upstream = this.#parts.upstreams.get(upstreamId);
    if (upstream === undefined || upstream.config.problem !== undefined) return undefined;
    const client = listingClient(upstream, holder);
    const key = offerKeyFor(upstream, client);
    const isRead = this.#parts.offers.ageMs(upstreamId, key) !== undefined;
    return isRead || !this.#ages.areFresh(upstream, key) ? undefined : this.#fetches.fetch(upstream, client);
  }

  /**
   * Returns the failure of the last listing for the principal of a holder. Undefined if there is none, if the upstream does not get its credentials,
   * or if the holder has lists of it.
   */
  failedListing(holder: ConnectionHolder, upstreamId: string): FailedFetch | undefined {
    const upstream = this.#parts.upstreams.get(upstreamId);
    if (upstream === undefined || this.#hasLists(holder, upstream)) return undefined;
    return this.#fetches.failed(upstream, fetchIdOf(upstream, offerKeyFor(upstream, listingClient(upstream, holder))));
  }

  /**
   * Returns the fetch of the lists of a principal for a holder without lists, if it runs. Begins another one after a refusal before this request, since
   * the principal may have got another token.
   */
  #ownListing(holder: ConnectionHolder, upstreamId: string, askedMs: number): Promise<boolean> | undefined {
    const upstream = this.#parts.upstreams.get(upstreamId);
    if (upstream === undefined || this.#hasLists(holder, upstream)) return undefined;
    const client = listingClient(upstream, holder);
    const key = offerKeyFor(upstream, client);
    if (key.audience === EVERYBODY) return undefined;
    const fetchId = fetchIdOf(upstream, key);
    const failed = this.#fetches.failed(upstream, fetchId);
    const isDue = failed?.isRefused === true && failed.atMs < askedMs;
    return isDue ? this.#fetches.fetch(upstream, client) : this.#fetches.running(upstream, fetchId);
  }

  #hasLists({ era, capabilityKey, principal, ownOffers }: ConnectionHolder, upstream: Upstream): boolean {
    const key = { era, capabilityKey, audience: upstream.audienceOf(principal) };
    return ownOffers.has(upstream.id) || this.#parts.offers.offerFor(upstream.id, key) !== undefined;
  }

  /** Returns a promise of the end of a running listing. Undefined if none runs, the upstream is not up, or the holder has lists of it. */
  #firstListing(holder: ConnectionHolder, upstreamId: string): Promise<void> | undefined {
    const upstream = this.#parts.upstreams.get(upstreamId);
    if (upstream === undefined || !isUp(upstream.lifecycle) || this.#hasLists(holder, upstream)) return undefined;
    const { era, principal } = holder;
    const audience = upstream.audienceOf(principal);
    const listings = [listingClient(upstream, holder), NO_FEATURES].flatMap(
      (features) => upstream.runningRefresh(era, features, audience) ?? [],
    );
    return listings.length === 0 ? undefined : Promise.race(listings);
  }

  /** Begins to fetch missing and outdated lists, and waits in bounded time for those that were never fetched. */
  async #fetchListsFor(holder: ConnectionHolder, upstreams: readonly Upstream[]): Promise<void> {
    const { offers, records, settings } = this.#parts;
    const { waitMs } = settings().lists;
    const unlisted: AwaitedFetch[] = [];
    for (const upstream of upstreams) {
      const { id } = upstream;
      const client = listingClient(upstream, holder);
      const key = offerKeyFor(upstream, client);
      const isKnown = await offers.load(id, key);
      const fetched = this.#fetchIfStale(upstream, client);
      this.#beginCommonLists(upstream, client);
      if (fetched !== undefined) void this.#retries.onFetch(holder, upstream, client, fetched);
      if (isKnown || fetched === undefined || records.hasFailed(id)) continue;
      const wasListed = offers.offerFor(id, { ...key, era: holder.era, capabilityKey: '' }) !== undefined;
      const fetchId = fetchIdOf(upstream, key);
      if (wasListed && this.#slow.has(fetchId)) continue;
      const common = wasListed
        ? undefined
        : this.#fetches.running(upstream, fetchIdOf(upstream, { ...key, capabilityKey: '' }));
      unlisted.push({ upstream, wasListed, fetched, common, fetchId });
    }
    const variants = unlisted.filter(({ wasListed }) => wasListed);
    const firsts = unlisted.filter(({ wasListed }) => !wasListed);
    await Promise.all([
      this.#await(firsts, waitMs, this.#recordLate),
      this.#await(variants, Math.min(FEATURES_WAIT_MS, waitMs), (one) => {
        // Clients choose the capabilities in the key. Without an entry, a request waits once more.
        if (this.#slow.size >= MAX_SLOW) this.#slow.clear();
        this.#slow.add(one.fetchId);
      }),
    ]);
  }

  /**
   * Begins to list a remote upstream for all clients too, if those lists are missing or outdated. Its connection stays open and reports changes. One
   * that reads lists for certain capabilities is closed.
   */
  #beginCommonLists(upstream: Upstream, client: ListingClient): void {
    if (upstream.isProcess || client.capabilityKey === '') return;
    const common = { era: client.era, principal: client.principal, ...NO_FEATURES };
    if (this.#ages.areFresh(upstream, offerKeyFor(upstream, common))) return;
    if (!this.#fetches.isFullFor(upstream, common)) void this.#fetches.fetch(upstream, common);
  }

  /**
   * Records that an upstream is not listed in time, so that later clients do not wait for it. A listing that has failed is no reason:
   * the upstream may have refused the credentials of one principal, or was replaced.
   */
  readonly #recordLate = ({ upstream, fetchId }: AwaitedFetch) => {
    if (this.#fetches.running(upstream, fetchId) !== undefined) this.#parts.records.record(upstream.id, true);
  };

  /** Waits in bounded time, and calls `onLate` for each upstream that is not listed by then. Waits less once lists for all clients are known. */
  async #await(awaited: readonly AwaitedFetch[], limitMs: number, onLate: (one: AwaitedFetch) => void): Promise<void> {
    if (awaited.length === 0) return;
    const late = new Set(awaited);
    const all = awaited.map(async (one) => {
      const own = one.fetched.then((isFetched) => isFetched && late.delete(one));
      const common = one.common?.then(async (isFetched) => {
        if (isFetched) late.delete(one);
        await resultWithin(own, isFetched ? FEATURES_WAIT_MS : limitMs);
      });
      await Promise.race(common === undefined ? [own] : [own, common]);
    });
    await resultWithin(Promise.all(all), limitMs);
    for (const one of late) onLate(one);
  }

  /** Returns the usable upstreams of a view. Those whose last listing failed come last. */
  #usableUpstreams(view: string): readonly Upstream[] {
    const { views, upstreams, records } = this.#parts;
    const usable = (views.get(view)?.upstreams ?? []).flatMap(({ id }) => {
      const upstream = upstreams.get(id);
      return upstream === undefined || upstream.config.problem !== undefined ? [] : [upstream];
    });
    const isBehind = ({ id }: Upstream) => Number(records.hasFailed(id));
    return usable.toSorted((a, b) => isBehind(a) - isBehind(b));
  }

  /** Returns when the first of a holder's lists with a stated time to live is due to be fetched again; monotonic ms. */
  #dueMs(holder: ConnectionHolder): number {
    let leftMs = Number.POSITIVE_INFINITY;
    for (const upstream of this.#usableUpstreams(holder.view)) {
      const key = offerKeyFor(upstream, listingClient(upstream, holder));
      leftMs = Math.min(leftMs, this.#ages.leftMs(upstream, key));
    }
    return performance.now() + leftMs;
  }

  #fetchIfStale(upstream: Upstream, client: ListingClient): Promise<boolean> | undefined {
    const key = offerKeyFor(upstream, client);
    if (this.#ages.areFresh(upstream, key)) return undefined;
    const { offers, records } = this.#parts;
    // Lists that may be outdated are better than none, and nobody waits for an upstream that has failed.
    const isDispensable = offers.offerFor(upstream.id, key) !== undefined || records.hasFailed(upstream.id);
    const isLeftOut = isDispensable && this.#fetches.isFullFor(upstream, client);
    return isLeftOut ? undefined : this.#fetches.fetch(upstream, client);
  }

  /**
   * Lists a process upstream that is about to start for this holder, unless this gateway process has already listed it. Lists on disk may be
   * outdated. The process that lists then serves the holder.
   */
  beginListing(holder: ConnectionHolder, upstreamId: string): void {
    const upstream = this.#parts.upstreams.get(upstreamId);
    if (upstream === undefined || !upstream.isProcess || upstream.config.problem !== undefined) return;
    const client = listingClient(upstream, holder);
    if (this.#parts.offers.ageMs(upstreamId, offerKeyFor(upstream, client)) !== undefined) return;
    // The listing must request the process before the holder does.
    if (!this.#fetches.isFullFor(upstream, client)) void this.#fetches.fetch(upstream, client, 'now');
  }
}

/** Returns the client that an upstream is listed for when a holder needs its lists. */
function listingClient({ listsByCapabilities }: Upstream, holder: ConnectionHolder): ListingClient {
  if (listsByCapabilities) return holder;
  const { era, principal } = holder;
  return { era, principal, ...NO_FEATURES };
}
