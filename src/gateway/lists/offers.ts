import type { Logger } from 'pino';
import { type ToolListSize, toolListSize } from '../../catalog/callable.ts';
import { buildCatalog, type Catalog, type CatalogLimits, prepareOffer } from '../../catalog/catalog.ts';
import { type ListProblem, problemsOf } from '../../catalog/problems.ts';
import { commonKey, isSameOffer, type Offer, type OfferKey, offerText, parseOffer } from '../../catalog/offer.ts';
import type { View } from '../../catalog/view.ts';
import { CLIENT_FEATURES, type Config, type UpstreamConfig } from '../../config/config.ts';
import type { Metrics } from '../../telemetry/metrics.ts';
import type { OfferStore, StoredOfferKey, UpstreamKey } from '../../store/offer-store.ts';
import { type Era, ERAS, eraOf, otherEra } from '../../protocol/revisions.ts';
import type { Eras } from '../../upstream/link/eras.ts';
import type { ConnectionHolder } from '../exchange/connection-holder.ts';

/** Offers kept for one upstream, one for each {@link OfferKey}. Further clients get the offer for clients of any capabilities. */
const MAX_OFFERS = 16;
/** Problems of one upstream's lists that are logged individually, each time they change. */
const MAX_LOGGED = 50;
/** Problems of one upstream's lists that are kept, so as not to log them twice. */
const MAX_REPORTED = 1_000;
/** Keys that are known not to be on disk. Clients choose their capabilities, so there are more keys than upstreams. */
const MAX_ABSENT = 16_384;
/** Catalogs kept in memory. A removed one is built again when it is needed. */
const MAX_CATALOGS = 256;

interface KeptOffer {
  readonly key: OfferKey;
  readonly offer: Offer;
}

/** A catalog with the offers that it is made of. */
interface BuiltCatalog {
  readonly view: string;
  readonly catalog: Catalog;
  readonly offers: ReadonlyMap<string, Offer>;
}

export interface OffersParts {
  readonly config: Config;
  readonly views: ReadonlyMap<string, View>;
  /** Returns the audience of an upstream's lists for a principal; see `audienceOf` in `upstream/connection-key.ts`. */
  readonly audienceOf: (upstream: string, principal: string) => string;
  readonly store: OfferStore;
  readonly log: Logger;
  readonly metrics: Metrics;
}

/**
 * The offers of upstreams by era, client capabilities and audience, and the catalogs made of them. The last good offers are kept
 * on disk, so that a restarted gateway answers with the whole lists at once.
 */
export class Offers {
  readonly #views: ReadonlyMap<string, View>;
  readonly #audienceOf: OffersParts['audienceOf'];
  #limits: CatalogLimits;
  readonly #store: OfferStore;
  readonly #log: Logger;
  readonly #metrics: Metrics;
  /** The problems that were logged, by upstream and era. */
  readonly #reported = new Map<string, ReadonlySet<string>>();
  /** The text of {@link targetText} by upstream. */
  readonly #targets = new Map<string, string>();
  /** Offers by upstream, then by {@link offerKeyText}. */
  readonly #offers = new Map<string, Map<string, KeptOffer>>();
  /** The time when this process listed an upstream; monotonic ms. By upstream and {@link offerKeyText}. */
  readonly #listedMs = new Map<string, number>();
  /** The era that an upstream is known not to support. Its offers of that era are outdated. */
  readonly #withoutEra = new Map<string, Era>();
  readonly #catalogs = new Map<string, BuiltCatalog>();
  /** The sizes of lists of tools by view and era, for those that were measured. */
  readonly #toolListSizes = new Map<string, { readonly view: string; readonly size: ToolListSize }>();
  /** The ids of the views of each upstream. */
  readonly #viewsOf = new Map<string, Set<string>>();
  /** Keys of offers that are not on disk, so that the disk is not read for each client. */
  readonly #absent = new Set<string>();
  /** Increases with every change of an offer. */
  #version = 1;
  #writing: Promise<void> = Promise.resolve();

  constructor({ config, views, audienceOf, store, log, metrics }: OffersParts) {
    this.#views = views;
    this.#audienceOf = audienceOf;
    this.#store = store;
    this.#log = log;
    this.#metrics = metrics;
    this.#limits = this.#limitsOf(config);
    this.setConfig(config);
  }

  /**
   * Applies another config; the views must be those of it already. Offers of removed upstreams are removed, and so are those of
   * upstreams with another target, which are other servers. Returns the ids of upstreams without offers in memory, whose last good
   * ones {@link restore} reads.
   */
  setConfig(config: Config): ReadonlySet<string> {
    const { maxNameChars, instructionsMaxChars } = this.#limits;
    // Catalogs are cached by the identity of the limits.
    if (maxNameChars !== config.names.maxChars || instructionsMaxChars !== config.instructions.maxChars) {
      this.#limits = this.#limitsOf(config);
    }
    const targets = new Map(config.upstreams.map((upstream) => [upstream.id, targetText(upstream)]));
    for (const [id, target] of this.#targets) if (targets.get(id) !== target) this.#forget(id);
    const fresh = new Set<string>();
    for (const [id, target] of targets) {
      if (this.#offers.has(id)) continue;
      fresh.add(id);
      this.#offers.set(id, new Map());
      this.#targets.set(id, target);
    }
    this.#viewsOf.clear();
    for (const id of targets.keys()) this.#viewsOf.set(id, new Set());
    for (const view of this.#views.values()) {
      for (const { id } of view.upstreams) this.#viewsOf.get(id)?.add(view.id);
    }
    this.#version++;
    this.#catalogs.clear();
    this.#toolListSizes.clear();
    return fresh;
  }

  #limitsOf({ names, instructions }: Config): CatalogLimits {
    return {
      maxNameChars: names.maxChars,
      instructionsMaxChars: instructions.maxChars,
      onLimit: (limit) => this.#metrics.limitReached(limit),
    };
  }

  /** Removes everything about an upstream from memory. Its last good offers stay on disk: it may come back. */
  #forget(upstream: string): void {
    this.#offers.delete(upstream);
    this.#targets.delete(upstream);
    this.onReplaced(upstream);
    for (const era of ERAS) this.#reported.delete(`${upstream} ${era}`);
    for (const key of this.#absent) if (key.startsWith(`${upstream} `)) this.#absent.delete(key);
  }

  /** Marks the offers as read by an earlier process: the upstream that has taken the place has listed nothing yet. */
  onReplaced(upstream: string): void {
    this.#withoutEra.delete(upstream);
    for (const key of this.#listedMs.keys()) if (key.startsWith(`${upstream} `)) this.#listedMs.delete(key);
  }

  /** A number that increases when any offer changes. */
  get version(): number {
    return this.#version;
  }

  /** Returns the keys of the upstreams in the store. */
  upstreamKeys(): readonly UpstreamKey[] {
    return [...this.#targets].map(([upstream, target]) => ({ upstream, target }));
  }

  /** Returns the ids of the views of this upstream. */
  viewsWith(upstream: string): ReadonlySet<string> {
    return this.#viewsOf.get(upstream) ?? new Set();
  }

  /** Removes the catalogs and sizes that were made of the offers of this upstream. */
  #invalidate(upstream: string): void {
    this.#version++;
    const views = this.viewsWith(upstream);
    for (const made of [this.#catalogs, this.#toolListSizes]) {
      for (const [key, { view }] of made) if (views.has(view)) made.delete(key);
    }
  }

  /** Reads the last good offers of these upstreams from disk. Ignores one that cannot be read. */
  async restore(upstreams: Iterable<string> = this.#offers.keys()): Promise<void> {
    // An upstream that was removed a moment ago may have lists on their way to the disk.
    await this.#writing;
    for (const upstream of upstreams) {
      const offers = this.#offers.get(upstream);
      if (offers === undefined) continue;
      for (const era of ERAS) {
        const key = commonKey(era);
        const offer = parseOffer(await this.#read(upstream, key));
        if (offer === undefined || eraOf(offer.revision) !== era) continue;
        // The config has changed meanwhile, or the upstream was listed.
        if (this.#offers.get(upstream) !== offers || offers.has(offerKeyText(key))) continue;
        offers.set(offerKeyText(key), { key, offer });
        prepareOffer(this.#view(''), upstream, offer, this.#limits);
        this.#invalidate(upstream);
      }
    }
  }

  /** Returns the offer of exactly this key. */
  exactOffer(upstream: string, key: OfferKey): Offer | undefined {
    return this.#offers.get(upstream)?.get(offerKeyText(key))?.offer;
  }

  /** Returns the offer for clients of this key: the one listed in their era, else in the other one. */
  offerFor(upstream: string, key: OfferKey): Offer | undefined {
    const own = this.#withoutEra.get(upstream) === key.era ? undefined : this.offerIn(upstream, key);
    return own ?? this.offerIn(upstream, { ...key, era: otherEra(key.era) });
  }

  /**
   * Returns the offer of this key, else the one for clients of any capabilities. Never one of another audience, whose lists may
   * be private.
   */
  offerIn(upstream: string, key: OfferKey): Offer | undefined {
    return this.exactOffer(upstream, key) ?? this.exactOffer(upstream, { ...key, capabilityKey: '' });
  }

  /** Excludes offers of an era that the upstream does not support. Returns true if lists of clients may change. */
  setEras(upstream: string, { legacy, modern }: Eras): boolean {
    const missing = legacy.speaks === 'no' ? 'legacy' : modern.speaks === 'no' ? 'modern' : undefined;
    if (missing === this.#withoutEra.get(upstream)) return false;
    if (missing === undefined) this.#withoutEra.delete(upstream);
    else this.#withoutEra.set(upstream, missing);
    this.#invalidate(upstream);
    return true;
  }

  /** Returns the ms since this process listed an upstream; undefined if it has not listed it. */
  ageMs(upstream: string, key: OfferKey): number | undefined {
    const listedMs = this.#listedMs.get(`${upstream} ${offerKeyText(key)}`);
    return listedMs === undefined ? undefined : performance.now() - listedMs;
  }

  /** Marks the offers of an era for an audience as outdated: the next list request fetches them again. */
  expire(upstream: string, era: Era, audience: string): void {
    for (const offerKey of this.keysOf(upstream, era)) {
      if (offerKey.audience !== audience) continue;
      const key = `${upstream} ${offerKeyText(offerKey)}`;
      if (this.#listedMs.has(key)) this.#listedMs.set(key, Number.NEGATIVE_INFINITY);
    }
  }

  /** Loads the offer of exactly this key from disk, if it is not in memory. Resolves with true if there is one. */
  async load(upstream: string, key: OfferKey): Promise<boolean> {
    const text = offerKeyText(key);
    const offers = this.#offers.get(upstream);
    if (offers === undefined || offers.has(text)) return true;
    const keyOfOffer = `${upstream} ${text}`;
    if (this.#absent.has(keyOfOffer)) return false;
    const offer = parseOffer(await this.#read(upstream, key));
    if (offers.has(text)) return true;
    if (this.#offers.get(upstream) !== offers) return false;
    if (offer === undefined || eraOf(offer.revision) !== key.era) {
      if (this.#absent.size >= MAX_ABSENT) this.#absent.clear();
      this.#absent.add(keyOfOffer);
      return false;
    }
    this.#set(upstream, key, offer);
    return true;
  }

  /** Stores an offer. Returns true if it differs from the one before. */
  update(upstream: string, key: OfferKey, offer: Offer): boolean {
    this.#listedMs.set(`${upstream} ${offerKeyText(key)}`, performance.now());
    const before = this.exactOffer(upstream, key);
    if (before !== undefined && isSameOffer(before, offer)) {
      this.#touch(upstream, key, before);
      return false;
    }
    this.#set(upstream, key, offer);
    prepareOffer(this.#view(''), upstream, offer, this.#limits);
    const stored = this.#storeKey(upstream, key);
    this.#write(() => this.#store.write(stored, offerText(offer)), upstream);
    return true;
  }

  /** Returns the differences between the lists of an upstream and those that clients of this era get. */
  problemsOf(upstream: string, era: Era): readonly ListProblem[] {
    return problemsOf(this.catalog('', commonKey(era)), upstream);
  }

  /** Logs and counts new problems in the lists for all clients of this era. */
  reportProblems(upstream: string, era: Era): void {
    const key = `${upstream} ${era}`;
    const before = this.#reported.get(key);
    const problems = this.problemsOf(upstream, era);
    const keyOf = ({ kind, name, repair, detail }: ListProblem) => JSON.stringify([kind, name, repair, detail]);
    const fresh = problems.filter((problem) => before?.has(keyOf(problem)) !== true);
    this.#reported.set(key, new Set(problems.slice(0, MAX_REPORTED).map(keyOf)));
    for (const { kind, name, repair, detail } of fresh.slice(0, MAX_LOGGED)) {
      const isLeftOut = repair === 'item left out';
      const fields = isLeftOut ? { why: detail } : { repair, detail };
      const text = isLeftOut ? 'left out of the lists' : 'list item repaired';
      this.#log.warn({ upstream, era, kind, name, ...fields }, text);
    }
    for (const { repair, limit } of fresh) {
      this.#metrics.listRepaired(repair);
      if (limit !== undefined) this.#metrics.limitReached(limit);
    }
    if (fresh.length > MAX_LOGGED)
      this.#log.warn({ upstream, era, more: fresh.length - MAX_LOGGED }, 'further list items repaired or left out');
  }

  /** Runs writes one after another. Offers that cannot be written are still served; only a restart loses them. */
  #write(change: () => Promise<void>, upstream: string): void {
    this.#writing = this.#writing
      .then(change)
      .catch((thrown: unknown) => this.#log.warn({ err: thrown, upstream }, 'offer not saved'));
  }

  /** Returns the keys for which the upstream was listed in this era. */
  keysOf(upstream: string, era: Era): readonly OfferKey[] {
    const keys = [...(this.#offers.get(upstream)?.values() ?? [])].map(({ key }) => key);
    return keys.filter((key) => key.era === era);
  }

  /** Removes an offer that may be outdated. */
  remove(upstream: string, key: OfferKey): void {
    const offers = this.#offers.get(upstream);
    if (offers !== undefined) this.#remove(upstream, offers, key);
  }

  /** Resolves when all offers are on disk. */
  flush(): Promise<void> {
    return this.#writing;
  }

  /** Moves the offer to the end, so that it is the last to be removed. */
  #touch(upstream: string, key: OfferKey, offer: Offer): void {
    const offers = this.#offers.get(upstream);
    offers?.delete(offerKeyText(key));
    offers?.set(offerKeyText(key), { key, offer });
  }

  #set(upstream: string, key: OfferKey, offer: Offer): void {
    const offers = this.#offers.get(upstream);
    if (offers === undefined) return;
    this.#touch(upstream, key, offer);
    for (const { key: oldest } of offers.values()) {
      if (offers.size <= MAX_OFFERS) break;
      if (!isCommon(oldest)) this.#remove(upstream, offers, oldest);
    }
    this.#invalidate(upstream);
  }

  /**
   * Removes an offer from memory and disk. The number of kept offers is bounded, since clients choose their
   * capabilities.
   */
  #remove(upstream: string, offers: Map<string, KeptOffer>, key: OfferKey): void {
    offers.delete(offerKeyText(key));
    this.#listedMs.delete(`${upstream} ${offerKeyText(key)}`);
    const stored = this.#storeKey(upstream, key);
    this.#write(() => this.#store.remove(stored), upstream);
  }

  /**
   * Returns the catalog of a holder, made of the offers of its own links, else of those for its era, capability key and audience.
   */
  catalogFor(holder: ConnectionHolder): Catalog {
    const { view } = holder;
    // The endpoint was removed, and its holders are about to be closed.
    if (!this.#views.has(view)) return holder.catalog;
    const key = this.#keyOf(holder);
    if (holder.ownOffers.size === 0) return this.catalog(view, key);
    const offers = this.#offersOf(
      view,
      (upstream) => holder.ownOffers.get(upstream) ?? this.#offerForClients(upstream, key),
    );
    return buildCatalog(this.#view(view), offers, this.#limits);
  }

  /** Returns the key of the catalog of a holder. Its audience is everybody if no upstream of the endpoint tells principals apart. */
  #keyOf({ view, era, capabilityKey, principal }: ConnectionHolder): OfferKey {
    for (const { id } of this.#view(view).upstreams) {
      const audience = this.#audienceOf(id, principal);
      if (audience !== '') return { era, capabilityKey, audience };
    }
    return { era, capabilityKey, audience: '' };
  }

  /** Returns the offer for the clients of a catalog. Only some of its upstreams may tell principals apart. */
  #offerForClients(upstream: string, key: OfferKey): Offer | undefined {
    return this.offerFor(upstream, { ...key, audience: this.#audienceOf(upstream, key.audience) });
  }

  /** Returns the catalog of a holder, after loading its offers from disk. */
  async loadCatalog(holder: ConnectionHolder): Promise<Catalog> {
    const { view, capabilityKey, principal } = holder;
    const ids = (this.#views.get(view)?.upstreams ?? []).map(({ id }) => id);
    const load = (id: string, era: Era) =>
      this.load(id, { era, capabilityKey, audience: this.#audienceOf(id, principal) });
    await Promise.all(ids.flatMap((id) => ERAS.map((era) => load(id, era))));
    return this.catalogFor(holder);
  }

  /** Returns the catalog of an endpoint for clients of this key. */
  catalog(view: string, clients: OfferKey): Catalog {
    const key = catalogKey(view, clients);
    const known = this.#catalogs.get(key);
    if (known !== undefined) return known.catalog;
    const offers = this.#offersOf(view, (upstream) => this.#offerForClients(upstream, clients));
    // If no upstream supports both eras, clients of both eras share one catalog.
    const other = this.#catalogs.get(catalogKey(view, { ...clients, era: otherEra(clients.era) }));
    const catalog =
      other !== undefined && haveSameOffers(other.offers, offers)
        ? other.catalog
        : buildCatalog(this.#view(view), offers, this.#limits);
    if (this.#catalogs.size >= MAX_CATALOGS) this.#catalogs.clear();
    this.#catalogs.set(key, { view, catalog, offers });
    return catalog;
  }

  /** Returns the size of the list of tools of an endpoint for clients of this era. */
  toolListSize(view: string, client: Era): ToolListSize {
    const key = `${client} ${view}`;
    const known = this.#toolListSizes.get(key)?.size;
    if (known !== undefined) return known;
    const offers = this.#offersOf(view, (upstream) => this.offerFor(upstream, commonKey(client)));
    const size = toolListSize(this.#view(view), offers, this.#limits.maxNameChars);
    this.#toolListSizes.set(key, { view, size });
    return size;
  }

  #view(id: string): View {
    const view = this.#views.get(id);
    if (view === undefined) throw new RangeError(`no view "${id}"`);
    return view;
  }

  #offersOf(view: string, offerOf: (upstream: string) => Offer | undefined): Map<string, Offer> {
    const offers = new Map<string, Offer>();
    for (const { id } of this.#view(view).upstreams) {
      const offer = offerOf(id);
      if (offer !== undefined) offers.set(id, offer);
    }
    return offers;
  }

  #storeKey(upstream: string, key: OfferKey): StoredOfferKey {
    return { upstream, target: this.#targets.get(upstream) ?? '', ...key };
  }

  async #read(upstream: string, key: OfferKey): Promise<string> {
    return (await this.#store.read(this.#storeKey(upstream, key))) ?? '';
  }
}

/** Returns a text that is equal only for equal keys. */
export function offerKeyText({ era, capabilityKey, audience }: OfferKey): string {
  return `${era} ${capabilityKey} ${audience}`;
}

/** Returns whether this is the key of the offer for all clients. */
function isCommon({ capabilityKey, audience }: OfferKey): boolean {
  return capabilityKey === '' && audience === '';
}

/** The audience comes last, since any text may be a principal. */
function catalogKey(view: string, key: OfferKey): string {
  return `${view} ${offerKeyText(key)}`;
}

function haveSameOffers(a: ReadonlyMap<string, Offer>, b: ReadonlyMap<string, Offer>): boolean {
  return a.size === b.size && [...a].every(([id, offer]) => b.get(id) === offer);
}

/**
 * Returns a text that identifies the server behind an upstream's id. A different command or URL is a different server,
 * whose lists are not valid.
 */
function targetText({ target, clientFeatures }: UpstreamConfig): string {
  const parts = target.kind === 'stdio' ? [target.command, ...target.args] : [target.url];
  // A server may list less for clients with fewer features.
  const isLimited = CLIENT_FEATURES.some((feature) => !clientFeatures.includes(feature));
  return JSON.stringify(isLimited ? [...parts, { clientFeatures }] : parts);
}
