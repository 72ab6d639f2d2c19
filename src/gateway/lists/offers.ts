import type { SharedParts } from '../records/shared-parts.ts';
import { isDeepStrictEqual } from 'node:util';
import type { ToolListSize } from '../../catalog/callable.ts';
import type { Catalog } from '../../catalog/catalog.ts';
import { type ListProblem, problemsIn } from '../../catalog/problems.ts';
import { commonKey, isCommonKey, isSameOffer, type Offer, type OfferKey, offerKeyText } from '../../catalog/offer.ts';
import { type Caching, UNCACHED } from '../../catalog/caching.ts';
import type { Config } from '../../config/values/config.ts';
import type { Isolation } from '../../config/values/upstream-config.ts';
import { readDefinitions } from '../../lock/definition.ts';
import type { OfferStore } from '../../store/offer-store.ts';
import { type Era, ERAS } from '../../protocol/revisions.ts';
import type { Eras } from '../../upstream/link/eras.ts';
import type { ListRights } from '../../policy/rights.ts';
import type { ConnectionHolder } from '../exchange/connection-holder.ts';
import { BuiltCatalogs } from './built-catalogs.ts';
import { Circles, type CirclesParts } from './circles.ts';
import { type KeptOffer, KeptOffers, statedMs } from './kept-offers.ts';
import { type LockState, PinnedOffers } from './pinned-offers.ts';
import { ProblemReports } from './problem-reports.ts';
import { StoredOffers, targetText } from './stored-offers.ts';
import { isAnonymous, type Principal } from '../../policy/principal.ts';

export interface OffersParts extends CirclesParts, Pick<SharedParts, 'gate' | 'log' | 'metrics'> {
  readonly config: Config;
  /** Returns the audience of an upstream's lists for a principal; see `audienceOf` in `upstream/connection-key.ts`. */
  readonly audienceOf: (upstream: string, principal: string) => string;
  /** Returns the sessions and client groups, whose lists are not removed. Default: there are none. */
  readonly holders?: () => Iterable<ConnectionHolder>;
  readonly store: OfferStore;
}

/**
 * The offers of upstreams by era, client capabilities and audience, and the catalogs made of them. The last good offers are kept
 * on disk, so that a restarted gateway answers with the whole lists at once.
 */
export class Offers {
  readonly stored: StoredOffers;
  readonly #parts: Omit<OffersParts, 'config'>;
  readonly #catalogs: BuiltCatalogs;
  readonly #problems: ProblemReports;
  readonly #pins: PinnedOffers;
  readonly #circles: Circles;
  readonly #offers = new Map<string, KeptOffers>();
  #version = 1;
  #eraChanges = 0;

  constructor({ config, ...parts }: OffersParts) {
    this.#parts = parts;
    const { views, store, log, metrics } = parts;
    this.stored = new StoredOffers(store, log);
    this.#problems = new ProblemReports(log, metrics);
    this.#pins = new PinnedOffers(log, metrics);
    this.#circles = new Circles(parts);
    this.#catalogs = new BuiltCatalogs(config, views, (limit) => metrics.countLimit(limit));
    this.setConfig(config);
  }

  /**
   * Applies a new config. The views must be updated before. Removes the offers of removed upstreams, and of upstreams with another target,
   * which are other servers. Removes those for certain capabilities if connections are shared from now on. Returns the ids of upstreams
   * without offers in memory, whose last good ones {@link restore} reads.
   */
  setConfig(config: Config): ReadonlySet<string> {
    const targets = new Map(config.upstreams.map((upstream) => [upstream.id, targetText(upstream)]));
    for (const id of this.#offers.keys()) if (targets.get(id) !== this.stored.targetOf(id)) this.#forget(id);
    const fresh = new Set<string>();
    for (const [id, target] of targets) {
      if (this.#offers.has(id)) continue;
      fresh.add(id);
      this.#offers.set(id, new KeptOffers());
      this.stored.setTarget(id, target);
    }
    for (const { id, isolation } of config.upstreams) this.#setIsolation(id, isolation);
    this.#version++;
    this.#pins.setConfig(config);
    this.#catalogs.setConfig(config);
    for (const [id, offers] of this.#offers) this.#pins.report(id, offers.inUse());
    return fresh;
  }

  /** Removes offers that an upstream has made for certain capabilities, if its connections do not declare those of clients any more. */
  #setIsolation(upstream: string, isolation: Isolation): void {
    const offers = this.#offers.get(upstream);
    if (offers === undefined) return;
    offers.areByCapabilities = isolation !== 'shared';
    for (const { key } of offers.values()) if (!offers.isUsable(key)) this.#remove(upstream, offers, key);
  }

  /** Removes everything about an upstream from memory. Its last good offers stay on disk: it may come back. */
  #forget(upstream: string): void {
    this.#offers.delete(upstream);
    this.stored.forget(upstream);
    this.#problems.remove(upstream);
    this.#circles.remove(upstream);
  }

  /** Marks the offers as read by an earlier process: the upstream that has taken the place has listed nothing yet. */
  onReplaced(upstream: string): void {
    const offers = this.#offers.get(upstream);
    if (offers === undefined) return;
    offers.onReplaced();
    // Else equal lists of the upstream in its place would be no change, and stay refused in the catalogs.
    for (const { key, offer } of offers.values()) {
      if (this.#circles.refusalOf(upstream, key.audience, offer) !== undefined) offers.remove(key);
    }
    this.#circles.remove(upstream);
    this.#pins.report(upstream, offers.inUse());
  }

  /** A number that increases when any offer changes. */
  get version(): number {
    return this.#version;
  }

  /** A number that increases when offers of an era are excluded, or not excluded any more. */
  get eraChanges(): number {
    return this.#eraChanges;
  }

  viewsWith(upstream: string): ReadonlySet<string> {
    return this.#catalogs.viewsWith(upstream);
  }

  #invalidate(upstream: string): void {
    this.#version++;
    this.#catalogs.removeOf(upstream);
    this.#pins.report(upstream, this.#offers.get(upstream)?.inUse() ?? []);
  }

  /** Applies the offers that single connections to an upstream have for themselves. */
  setOwn(upstream: string, own: ReadonlySet<Offer>): void {
    const offers = this.#offers.get(upstream);
    if (offers === undefined) return;
    offers.own = own;
    this.#pins.report(upstream, offers.inUse());
  }

  /** Reads the last good offers of these upstreams from disk. Ignores one that cannot be read. */
  async restore(upstreams: Iterable<string> = this.#offers.keys()): Promise<void> {
    // An upstream that was removed a moment ago may have lists on their way to the disk.
    await this.stored.flush();
    for (const upstream of upstreams) {
      const offers = this.#offers.get(upstream);
      if (offers === undefined) continue;
      for (const era of ERAS) {
        const key = commonKey(era);
        const offer = await this.stored.read(upstream, key);
        if (offer === undefined) continue;
        await this.prepare(upstream, offer);
        // The config has changed meanwhile, or the upstream was listed.
        if (this.#offers.get(upstream) !== offers || offers.get(key) !== undefined) continue;
        offers.set({ key, offer, listedMs: undefined });
        this.#invalidate(upstream);
      }
    }
  }

  exactOffer(upstream: string, key: OfferKey): Offer | undefined {
    return this.#offers.get(upstream)?.get(key)?.offer;
  }

  /** Returns the offer for clients of this key: the one listed in their era, else in the other one. */
  offerFor(upstream: string, key: OfferKey): Offer | undefined {
    return this.#offers.get(upstream)?.for(key)?.offer;
  }

  /**
   * Returns the offer of this key, else the one for clients of any capabilities. Never one of another audience, whose lists may
   * be private.
   */
  offerIn(upstream: string, key: OfferKey): Offer | undefined {
    return this.#offers.get(upstream)?.in(key)?.offer;
  }

  /** Returns the offer of an era for all clients, else the one for some of them that has the most tools. */
  widestOffer(upstream: string, era: Era): Offer | undefined {
    return this.#offers.get(upstream)?.widest(era);
  }

  /** Excludes offers of an era that the upstream does not support. Returns true if lists of clients may change. */
  setEras(upstream: string, { legacy, modern }: Eras): boolean {
    const missing = legacy.speaks === 'no' ? 'legacy' : modern.speaks === 'no' ? 'modern' : undefined;
    const offers = this.#offers.get(upstream);
    if (offers === undefined || missing === offers.withoutEra) return false;
    offers.withoutEra = missing;
    this.#eraChanges++;
    this.#invalidate(upstream);
    return true;
  }

  /** Returns the ms since this process listed an upstream; undefined if it has not listed it. */
  ageMs(upstream: string, key: OfferKey): number | undefined {
    const listedMs = this.#offers.get(upstream)?.get(key)?.listedMs;
    return listedMs === undefined ? undefined : performance.now() - listedMs;
  }

  /** Returns the time for which the lists of this key may be cached from their last reading on; 0 if the upstream states none. */
  statedMs(upstream: string, key: OfferKey): number {
    const kept = this.#offers.get(upstream)?.get(key);
    return kept === undefined ? 0 : statedMs(kept);
  }

  /** Marks the offers of an era for an audience as outdated: the next list request fetches them again. */
  expire(upstream: string, era: Era, audience: string): void {
    this.#offers.get(upstream)?.expire(era, audience);
  }

  /** Loads the offer of exactly this key from disk, if it is not in memory. Resolves with true if there is one. */
  async load(upstream: string, key: OfferKey): Promise<boolean> {
    const offers = this.#offers.get(upstream);
    if (offers === undefined || offers.get(key) !== undefined) return true;
    if (!offers.isUsable(key) || this.stored.isAbsent(upstream, key)) return false;
    const offer = await this.stored.read(upstream, key);
    if (offer !== undefined) await this.readDefinitions(upstream, offer);
    if (offers.get(key) !== undefined) return true;
    // It may have been removed while it was read.
    if (this.#offers.get(upstream) !== offers || !offers.isUsable(key) || this.stored.isAbsent(upstream, key))
      return false;
    if (offer === undefined) {
      this.stored.setAbsent(upstream, key);
      return false;
    }
    this.#set(upstream, { key, offer, listedMs: undefined });
    return true;
  }

  /**
   * Reads the lists that another process has stored. Resolves with true if they differ from those in memory. Lists that this process reads from the
   * upstream meanwhile are newer.
   *
   * @param replaces whether different lists replace those in memory.
   */
  async readStored(upstream: string, key: OfferKey, replaces: boolean): Promise<boolean> {
    this.stored.onWrittenByOther(upstream, key);
    const offers = this.#offers.get(upstream);
    const known = offers?.get(key);
    const before = known?.offer;
    // Others are loaded when a client needs them.
    if (offers === undefined || (before === undefined && !isCommonKey(key))) return false;
    const listedMs = known?.listedMs;
    const recordOther = this.stored.recorderOfOther(upstream, key);
    const offer = await this.stored.read(upstream, key);
    if (offer === undefined) return false;
    if (replaces) await this.prepare(upstream, offer);
    if (this.#offers.get(upstream) !== offers || offers.get(key)?.listedMs !== listedMs) return false;
    if (before !== undefined && isSameOffer(before, offer)) return false;
    recordOther(offer);
    if (!replaces) return true;
    const kept = { key, offer, listedMs };
    this.#set(upstream, kept);
    // Those for clients of certain capabilities have probably changed too.
    if (key.capabilityKey === '') offers.expire(key.era, key.audience, kept);
    return true;
  }

  *keys(): Iterable<readonly [upstream: string, key: OfferKey]> {
    for (const [upstream, offers] of this.#offers) for (const { key } of offers.values()) yield [upstream, key];
  }

  /** Stores the offers that could not be stored before. */
  saveAgain(): void {
    const isUnsaved = this.stored.takeUnsaved();
    for (const [upstream, key] of this.keys()) {
      const offer = this.exactOffer(upstream, key);
      if (offer !== undefined && isUnsaved(offer)) this.stored.write(upstream, key, offer);
    }
  }

  /**
   * Keeps an offer that was read from the upstream, and stores it. Returns true if it differs from the one before. One that another process has
   * stored already is not stored again: it could replace a newer one.
   *
   * Lists that are refused are not stored.
   *
   * @param isWhole false if a list could not be read. The next list request of a client fetches the lists again.
   */
  update(upstream: string, key: OfferKey, offer: Offer, isWhole = true): boolean {
    const before = this.exactOffer(upstream, key);
    const listedMs = isWhole ? performance.now() : Number.NEGATIVE_INFINITY;
    const isRefused = (one: Offer) => this.#circles.refusalOf(upstream, key.audience, one) !== undefined;
    const wasRefused = before !== undefined && isRefused(before);
    this.#circles.note(upstream, key.audience, offer);
    if (before !== undefined && isSameOffer(before, offer)) {
      const isOther = isRefused(offer) !== wasRefused;
      if (isDeepStrictEqual(before.endpoints, offer.endpoints) && !isOther)
        this.#offers.get(upstream)?.set({ key, offer: before, listedMs, ttlMs: offer.caching?.ttlMs });
      else this.#set(upstream, { key, offer, listedMs });
      return isOther;
    }
    this.#set(upstream, { key, offer, listedMs });
    if (!isRefused(offer) && !this.stored.isByOther(upstream, key, offer)) this.stored.write(upstream, key, offer);
    return true;
  }

  /** Makes the parts of an offer that catalogs share, over several turns of the event loop, before the offer is used. */
  async prepare(upstream: string, offer: Offer): Promise<void> {
    await this.readDefinitions(upstream, offer);
    await this.#catalogs.prepare(upstream, this.#forClients(upstream, '', offer) ?? offer);
  }

  /** Reads what the lock is compared with, over several turns of the event loop. The comparison alone would do it in one. */
  async readDefinitions(upstream: string, offer: Offer): Promise<void> {
    if (this.isPinned(upstream)) await readDefinitions(offer);
  }

  /** Returns an offer as clients get it: without lists that lead back to this gateway, and without what the lock withholds. */
  #forClients(upstream: string, audience: string, offer: Offer | undefined): Offer | undefined {
    if (offer === undefined) return undefined;
    const judged = this.#circles.judged(upstream, audience, offer);
    return judged.refusal === undefined ? this.#pins.pinned(upstream, judged) : judged;
  }

  /** Returns whether the definitions of an upstream are compared with the lock. */
  isPinned(upstream: string): boolean {
    return this.#pins.onChange(upstream) !== undefined;
  }

  /** Returns the state of the pinned definitions of an upstream, in all lists that clients get; undefined if nothing of it is pinned. */
  lockState(upstream: string): LockState | undefined {
    return this.#pins.state(upstream, this.#offers.get(upstream)?.inUse() ?? []);
  }

  /** Returns the differences between the lists of an upstream and those that clients of this era get. */
  problemsOf(upstream: string, era: Era): readonly ListProblem[] {
    const keys = this.#offers.get(upstream)?.differingKeys(era) ?? [];
    const catalogs = keys.map((key) => this.catalog('', key));
    return problemsIn(catalogs, upstream);
  }

  /** Logs and counts new problems in the lists of clients of this era. */
  reportProblems(upstream: string, era: Era): void {
    this.#problems.report(upstream, era, this.problemsOf(upstream, era));
  }

  /** Returns the keys for which the upstream was listed in this era. */
  keysOf(upstream: string, era: Era): readonly OfferKey[] {
    return [...(this.#offers.get(upstream)?.values() ?? [])].map(({ key }) => key).filter((key) => key.era === era);
  }

  /** Removes an offer that may be outdated. */
  remove(upstream: string, key: OfferKey): void {
    const offers = this.#offers.get(upstream);
    if (offers === undefined) return;
    this.#remove(upstream, offers, key);
    this.#invalidate(upstream);
  }

  #set(upstream: string, kept: KeptOffer): void {
    const offers = this.#offers.get(upstream);
    if (offers === undefined) return;
    offers.set(kept);
    for (const key of offers.excess(() => this.#usedKeys(upstream))) {
      this.#parts.metrics.countLimit('offersPerUpstream');
      this.#remove(upstream, offers, key);
    }
    this.#invalidate(upstream);
  }

  /** Returns the texts of the keys of all offers of an upstream that sessions and client groups may have. */
  #usedKeys(upstream: string): ReadonlySet<string> {
    const { audienceOf, holders } = this.#parts;
    const views = this.viewsWith(upstream);
    const used = new Set<string>();
    for (const { view, capabilityKey, principal } of holders?.() ?? []) {
      if (!views.has(view)) continue;
      const audience = audienceOf(upstream, principal);
      for (const era of ERAS) {
        used.add(offerKeyText({ era, capabilityKey, audience }));
        used.add(offerKeyText({ era, capabilityKey: '', audience }));
      }
    }
    return used;
  }

  /** Removes an offer from memory and disk. */
  #remove(upstream: string, offers: KeptOffers, key: OfferKey): void {
    offers.remove(key);
    this.stored.remove(upstream, key);
  }

  /**
   * Returns the catalog of a holder, made of the offers of its own links, else of those for its era, capability key and audience. It has the
   * items that its principal may use.
   *
   * @param principal with other claims, for one request. Default: the one by which is judged what runs without a request.
   */
  catalogFor(holder: ConnectionHolder, principal = holder.caller.principal): Catalog {
    const { view } = holder;
    // The endpoint was removed, and its holders are about to be closed.
    if (!this.#parts.views.has(view)) return holder.catalog;
    const key = this.#keyOf(holder);
    const rights = this.#parts.gate.shownRightsOf(principal, view);
    if (holder.ownOffers.size === 0) return this.catalog(view, key, rights);
    return this.#catalogs.build(
      view,
      (upstream) => {
        const audience = this.#parts.audienceOf(upstream, holder.principal);
        return (
          this.#forClients(upstream, audience, holder.ownOffers.get(upstream)) ?? this.#offerForClients(upstream, key)
        );
      },
      rights,
    );
  }

  /** Returns the catalog of a holder for the claims of a principal object: the one that it has, if the rights are the same. */
  catalogOf(holder: ConnectionHolder, principal: Principal): Catalog {
    const { caller, view, catalog } = holder;
    const isSame =
      this.#parts.gate.shownRightsOf(principal, view) === this.#parts.gate.shownRightsOf(caller.principal, view);
    return isSame ? catalog : this.catalogFor(holder, principal);
  }

  /**
   * Returns how the lists of a holder may be cached now: for the rest of the time that their upstreams state. Lists of unknown age, such as those
   * from disk, are not cached.
   */
  cachingOf(holder: ConnectionHolder): Caching {
    const { catalog, caller, ownOffers, view } = holder;
    if (ownOffers.size > 0 || !this.#parts.views.has(view)) return UNCACHED;
    // The time in the catalog is that of an earlier reading.
    let ttlMs = catalog.caching.ttlMs > 0 ? Infinity : 0;
    const key = this.#keyOf(holder);
    for (const { id } of ttlMs > 0 ? catalog.view.upstreams : []) {
      const kept = this.#offers.get(id)?.for({ ...key, audience: this.#parts.audienceOf(id, key.audience) });
      const untilMs = (kept?.listedMs ?? -Infinity) + (kept === undefined ? 0 : statedMs(kept));
      ttlMs = Math.min(ttlMs, Math.floor(untilMs - performance.now()));
    }
    return { ttlMs: Math.max(0, ttlMs), isPublic: catalog.caching.isPublic && isAnonymous(caller.principal) };
  }

  /** Returns the key of the catalog of a holder. Its audience is everybody if no upstream of the endpoint tells principals apart. */
  #keyOf({ view, era, capabilityKey, principal }: ConnectionHolder): OfferKey {
    for (const { id } of this.#catalogs.view(view).upstreams) {
      const audience = this.#parts.audienceOf(id, principal);
      if (audience !== '') return { era, capabilityKey, audience };
    }
    return { era, capabilityKey, audience: '' };
  }

  /** Returns the offer for the clients of a catalog. Only some of its upstreams may tell principals apart. */
  #offerForClients(upstream: string, key: OfferKey): Offer | undefined {
    const audience = this.#parts.audienceOf(upstream, key.audience);
    return this.#forClients(upstream, audience, this.offerFor(upstream, { ...key, audience }));
  }

  /** Returns the catalog of a new holder, after loading its offers from disk. @throws {GatewayError} `session-unknown` */
  async loadCatalog(holder: ConnectionHolder): Promise<Catalog> {
    const { view, capabilityKey, principal } = holder;
    const ids = (this.#parts.views.get(view)?.upstreams ?? []).map(({ id }) => id);
    const load = (id: string, era: Era) =>
      this.load(id, { era, capabilityKey, audience: this.#parts.audienceOf(id, principal) });
    await Promise.all(ids.flatMap((id) => ERAS.map((era) => load(id, era))));
    const key = this.#keyOf(holder);
    await this.#catalogs.prepareCatalog(view, key, (upstream) => this.#offerForClients(upstream, key));
    // A holder of an endpoint that was removed meanwhile would stay.
    this.#catalogs.view(view);
    return this.catalogFor(holder);
  }

  /** Returns the catalog of an endpoint for clients of this key; the part that these rights allow, if they are given. */
  catalog(view: string, clients: OfferKey, rights?: ListRights): Catalog {
    return this.#catalogs.get(view, clients, (upstream) => this.#offerForClients(upstream, clients), rights);
  }

  /** Returns the size of the list of tools of a view for clients of this era, by the widest offer of each upstream. */
  toolListSize(view: string, client: Era): ToolListSize {
    return this.#catalogs.toolListSize(view, client, (upstream) =>
      this.#forClients(upstream, '', this.#offers.get(upstream)?.widestFor(client)),
    );
  }
}
