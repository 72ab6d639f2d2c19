import type { Logger } from 'pino';
import { buildCatalog, type Catalog, type CatalogLimits, countTools, prepareOffer } from '../../catalog/catalog.ts';
import { type ListProblem, problemsOf } from '../../catalog/problems.ts';
import { type Offer, offerText, parseOffer, isSameOffer } from '../../catalog/offer.ts';
import type { View } from '../../catalog/view.ts';
import { CLIENT_FEATURES, type Config, type UpstreamConfig } from '../../config/config.ts';
import type { Metrics } from '../../telemetry/metrics.ts';
import type { OfferKey as StoredKey, OfferStore, UpstreamKey } from '../../store/offer-store.ts';
import { type Era, ERAS, eraOf, otherEra } from '../../protocol/revisions.ts';
import type { Eras } from '../../upstream/eras.ts';
import type { ConnectionHolder } from '../exchange/connection-holder.ts';

/** Offers kept of one upstream, one for each era and set of client capabilities. Clients beyond that see the lists of all. */
const MAX_OFFERS = 16;
/** Problems of one upstream's lists that are logged one by one, each time they change. */
const MAX_LOGGED = 50;
/** Problems of one upstream's lists that are remembered, so as not to log them twice. */
const MAX_REPORTED = 1_000;
/** Offers that are known not to be on disk. Clients choose their capabilities, so there are more than upstreams. */
const MAX_ABSENT = 16_384;
/** Catalogs kept in memory; any can be built again. */
const MAX_CATALOGS = 256;

/** The era that an offer was listed in, and the capabilities of the clients it is for. */
interface OfferKey {
  readonly era: Era;
  readonly capabilityKey: string;
}

/** A catalog with the offers that it is made of. */
interface BuiltCatalog {
  readonly view: string;
  readonly catalog: Catalog;
  readonly offers: ReadonlyMap<string, Offer>;
}

/**
 * The offers of upstreams, for clients of each era and set of capabilities, and the catalogs made of them. The last good
 * offers are kept on disk, so that a restart serves the whole list at once.
 */
export class Offers {
  readonly #views: ReadonlyMap<string, View>;
  readonly #limits: CatalogLimits;
  readonly #store: OfferStore;
  readonly #log: Logger;
  readonly #metrics: Metrics;
  /** By upstream and era, the problems of its lists that the log has. */
  readonly #reported = new Map<string, ReadonlySet<string>>();
  /** Command or URL of each upstream, with the client features it may use where those are not all. */
  readonly #targets = new Map<string, string>();
  /** Upstream → era and capability key → offer. */
  readonly #offers = new Map<string, Map<string, Offer>>();
  /** When this process listed an upstream itself; monotonic ms. By upstream, era and capability key. */
  readonly #listedMs = new Map<string, number>();
  /** Upstreams that are known not to speak one era: its offers are of an earlier version. */
  readonly #withoutEra = new Map<string, Era>();
  readonly #catalogs = new Map<string, BuiltCatalog>();
  /** Published tools of each view and era, as far as they were counted. */
  readonly #toolCounts = new Map<string, { readonly view: string; readonly count: number }>();
  /** The views that show each upstream. */
  readonly #viewsOf = new Map<string, Set<string>>();
  /** Offers that are not on disk, so that it is not read again for each client. */
  readonly #absent = new Set<string>();
  /** Changes with every offer. */
  #version = 1;
  #writing: Promise<void> = Promise.resolve();

  constructor(config: Config, views: ReadonlyMap<string, View>, store: OfferStore, log: Logger, metrics: Metrics) {
    this.#views = views;
    this.#limits = {
      maxNameChars: config.names.maxChars,
      instructionsMaxChars: config.instructions.maxChars,
      onLimit: (limit) => metrics.limitReached(limit),
    };
    this.#store = store;
    this.#log = log;
    this.#metrics = metrics;
    for (const upstream of config.upstreams) {
      this.#offers.set(upstream.id, new Map());
      this.#targets.set(upstream.id, targetText(upstream));
      this.#viewsOf.set(upstream.id, new Set());
    }
    for (const view of views.values()) {
      for (const { id } of view.upstreams) this.#viewsOf.get(id)?.add(view.id);
    }
  }

  /** Differs from an earlier value when any offer has changed since. */
  get version(): number {
    return this.#version;
  }

  /** What the store knows each upstream by. */
  upstreamKeys(): readonly UpstreamKey[] {
    return [...this.#targets].map(([upstream, target]) => ({ upstream, target }));
  }

  /** The views that show this upstream. */
  viewsWith(upstream: string): ReadonlySet<string> {
    return this.#viewsOf.get(upstream) ?? new Set();
  }

  /** Forgets what was made of the offers of this upstream. */
  #invalidate(upstream: string): void {
    this.#version++;
    const views = this.viewsWith(upstream);
    for (const made of [this.#catalogs, this.#toolCounts]) {
      for (const [key, { view }] of made) if (views.has(view)) made.delete(key);
    }
  }

  /** Reads the last good offers. One that cannot be read counts as none. */
  async restore(): Promise<void> {
    for (const [upstream, offers] of this.#offers) {
      for (const era of ERAS) {
        const offer = parseOffer(await this.#read(upstream, { era, capabilityKey: '' }));
        if (offer === undefined || eraOf(offer.revision) !== era) continue;
        offers.set(keyText({ era, capabilityKey: '' }), offer);
        prepareOffer(this.#view(''), upstream, offer, this.#limits);
      }
    }
  }

  /** The offer for clients with these capabilities, or for all (`''`), as listed in this era. */
  get(upstream: string, era: Era, capabilityKey: string): Offer | undefined {
    return this.#offers.get(upstream)?.get(keyText({ era, capabilityKey }));
  }

  /** The offer that a client of this era sees: listed in its own era, else in the other one, else none. */
  best(upstream: string, client: Era, capabilityKey: string): Offer | undefined {
    const own = this.#withoutEra.get(upstream) === client ? undefined : this.bestIn(upstream, client, capabilityKey);
    return own ?? this.bestIn(upstream, otherEra(client), capabilityKey);
  }

  /** The offer listed in this era that clients with these capabilities see. */
  bestIn(upstream: string, era: Era, capabilityKey: string): Offer | undefined {
    return this.get(upstream, era, capabilityKey) ?? this.get(upstream, era, '');
  }

  /** Stops showing offers of an era that the upstream does not speak. True when clients may see others than before. */
  setEras(upstream: string, { legacy, modern }: Eras): boolean {
    const missing = legacy.speaks === 'no' ? 'legacy' : modern.speaks === 'no' ? 'modern' : undefined;
    if (missing === this.#withoutEra.get(upstream)) return false;
    if (missing === undefined) this.#withoutEra.delete(upstream);
    else this.#withoutEra.set(upstream, missing);
    this.#invalidate(upstream);
    return true;
  }

  /** Ms since this process listed an upstream itself; undefined when it never did. */
  ageMs(upstream: string, era: Era, capabilityKey: string): number | undefined {
    const listedMs = this.#listedMs.get(`${upstream} ${keyText({ era, capabilityKey })}`);
    return listedMs === undefined ? undefined : performance.now() - listedMs;
  }

  /** Marks the offers of an era as out of date: the next client's lists have them fetched again. */
  expire(upstream: string, era: Era): void {
    for (const capabilityKey of this.capabilityKeysOf(upstream, era)) {
      const key = `${upstream} ${keyText({ era, capabilityKey })}`;
      if (this.#listedMs.has(key)) this.#listedMs.set(key, Number.NEGATIVE_INFINITY);
    }
  }

  /** Whether this very offer is at hand, be it from disk. */
  async load(upstream: string, era: Era, capabilityKey: string): Promise<boolean> {
    const key = { era, capabilityKey };
    const offers = this.#offers.get(upstream);
    if (offers === undefined || offers.has(keyText(key))) return true;
    const place = `${upstream} ${keyText(key)}`;
    if (this.#absent.has(place)) return false;
    const offer = parseOffer(await this.#read(upstream, key));
    if (offers.has(keyText(key))) return true;
    if (offer === undefined || eraOf(offer.revision) !== era) {
      if (this.#absent.size >= MAX_ABSENT) this.#absent.clear();
      this.#absent.add(place);
      return false;
    }
    this.#set(upstream, key, offer);
    return true;
  }

  /** Takes an offer; true when it differs from the one before. */
  update(upstream: string, era: Era, capabilityKey: string, offer: Offer): boolean {
    const key = { era, capabilityKey };
    this.#listedMs.set(`${upstream} ${keyText(key)}`, performance.now());
    const before = this.get(upstream, era, capabilityKey);
    if (before !== undefined && isSameOffer(before, offer)) {
      this.#touch(upstream, key, before);
      return false;
    }
    this.#set(upstream, key, offer);
    prepareOffer(this.#view(''), upstream, offer, this.#limits);
    const stored = this.#stored(upstream, key);
    this.#write(() => this.#store.write(stored, offerText(offer)), upstream);
    return true;
  }

  /** The items and members of an upstream's lists that clients of this era do not get as it lists them. */
  problemsOf(upstream: string, era: Era): readonly ListProblem[] {
    return problemsOf(this.catalog('', era, ''), upstream);
  }

  /** Logs and counts the problems that the lists for all clients of this era did not have before. */
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
      this.#log.warn({ upstream, era, more: fresh.length - MAX_LOGGED }, 'more list items changed');
  }

  /** One after the other. The lists of a full disk are still served; they only do not outlive a restart. */
  #write(change: () => Promise<void>, upstream: string): void {
    this.#writing = this.#writing
      .then(change)
      .catch((thrown: unknown) => this.#log.warn({ err: thrown, upstream }, 'offer not saved'));
  }

  /** The sets of capabilities for which the upstream was listed in this era. */
  capabilityKeysOf(upstream: string, era: Era): readonly string[] {
    const keys = [...(this.#offers.get(upstream)?.keys() ?? [])].map(parseKey);
    return keys.filter((key) => key.era === era).map(({ capabilityKey }) => capabilityKey);
  }

  /** Removes an offer that may be out of date. */
  remove(upstream: string, era: Era, capabilityKey: string): void {
    const offers = this.#offers.get(upstream);
    if (offers !== undefined) this.#remove(upstream, offers, { era, capabilityKey });
  }

  /** Resolves when what was taken is on disk. */
  flush(): Promise<void> {
    return this.#writing;
  }

  /** Makes it the last to be removed. */
  #touch(upstream: string, key: OfferKey, offer: Offer): void {
    const offers = this.#offers.get(upstream);
    offers?.delete(keyText(key));
    offers?.set(keyText(key), offer);
  }

  #set(upstream: string, key: OfferKey, offer: Offer): void {
    const offers = this.#offers.get(upstream);
    if (offers === undefined) return;
    this.#touch(upstream, key, offer);
    for (const text of offers.keys()) {
      if (offers.size <= MAX_OFFERS) break;
      const oldest = parseKey(text);
      if (oldest.capabilityKey !== '') this.#remove(upstream, offers, oldest);
    }
    this.#invalidate(upstream);
  }

  /** Clients choose their capabilities, so what is kept for each choice is bounded, on disk too. */
  #remove(upstream: string, offers: Map<string, Offer>, key: OfferKey): void {
    offers.delete(keyText(key));
    this.#listedMs.delete(`${upstream} ${keyText(key)}`);
    const stored = this.#stored(upstream, key);
    this.#write(() => this.#store.remove(stored), upstream);
  }

  /** The catalog of a holder: made of the lists of its own connections, else of those for its era and capabilities. */
  catalogFor(holder: ConnectionHolder): Catalog {
    const { view, era, capabilityKey } = holder;
    if (holder.ownOffers.size === 0) return this.catalog(view, era, capabilityKey);
    const offers = this.#offersOf(
      view,
      (upstream) => holder.ownOffers.get(upstream) ?? this.best(upstream, era, capabilityKey),
    );
    return buildCatalog(this.#view(view), offers, this.#limits);
  }

  /** The same, with offers that are on disk alone. */
  async loadCatalog(holder: ConnectionHolder): Promise<Catalog> {
    const { view, capabilityKey } = holder;
    const ids = this.#view(view).upstreams.map(({ id }) => id);
    await Promise.all(ids.flatMap((id) => ERAS.map((era) => this.load(id, era, capabilityKey))));
    return this.catalogFor(holder);
  }

  /** The catalog of an endpoint for clients of this era with these capabilities. */
  catalog(view: string, client: Era, capabilityKey: string): Catalog {
    const key = `${client} ${capabilityKey} ${view}`;
    const known = this.#catalogs.get(key);
    if (known !== undefined) return known.catalog;
    const offers = this.#offersOf(view, (upstream) => this.best(upstream, client, capabilityKey));
    // Where no upstream has both eras, clients of both share one catalog.
    const other = this.#catalogs.get(`${otherEra(client)} ${capabilityKey} ${view}`);
    const catalog =
      other !== undefined && areSame(other.offers, offers)
        ? other.catalog
        : buildCatalog(this.#view(view), offers, this.#limits);
    if (this.#catalogs.size >= MAX_CATALOGS) this.#catalogs.clear();
    this.#catalogs.set(key, { view, catalog, offers });
    return catalog;
  }

  /** Returns how many tools an endpoint has for clients of this era. */
  toolCount(view: string, client: Era): number {
    const key = `${client} ${view}`;
    const known = this.#toolCounts.get(key)?.count;
    if (known !== undefined) return known;
    const count =
      this.#catalogs.get(`${client}  ${view}`)?.catalog.tools.size ??
      countTools(
        this.#view(view),
        this.#offersOf(view, (upstream) => this.best(upstream, client, '')),
        this.#limits,
      );
    this.#toolCounts.set(key, { view, count });
    return count;
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

  #stored(upstream: string, { era, capabilityKey }: OfferKey): StoredKey {
    return { upstream, target: this.#targets.get(upstream) ?? '', era, capabilityKey };
  }

  async #read(upstream: string, key: OfferKey): Promise<string> {
    return (await this.#store.read(this.#stored(upstream, key))) ?? '';
  }
}

function keyText({ era, capabilityKey }: OfferKey): string {
  return `${era} ${capabilityKey}`;
}

function parseKey(text: string): OfferKey {
  const [era = '', capabilityKey = ''] = text.split(' ');
  return { era: era === 'modern' ? 'modern' : 'legacy', capabilityKey };
}

function areSame(a: ReadonlyMap<string, Offer>, b: ReadonlyMap<string, Offer>): boolean {
  return a.size === b.size && [...a].every(([id, offer]) => b.get(id) === offer);
}

/** Another command or URL under the same id is another server, whose lists are not these. */
function targetText({ target, clientFeatures }: UpstreamConfig): string {
  const parts = target.kind === 'stdio' ? [target.command, ...target.args] : [target.url];
  // A server may list less to clients that can do less.
  const isLimited = CLIENT_FEATURES.some((feature) => !clientFeatures.includes(feature));
  return JSON.stringify(isLimited ? [...parts, { clientFeatures }] : parts);
}
