import type { Logger } from 'pino';
import { buildCatalog, type Catalog } from '../../catalog/catalog.ts';
import { type Offer, offerText, parseOffer, sameOffer } from '../../catalog/offer.ts';
import type { View } from '../../catalog/view.ts';
import type { Config, UpstreamConfig } from '../../config/config.ts';
import type { OfferKey, OfferStore } from '../../store/offer-store.ts';
import type { ConnectionHolder } from '../exchange/connection-holder.ts';

/** Sets of client capabilities whose lists are kept apart, per upstream. Clients with others get the lists of everyone. */
const MAX_PROFILES = 16;
/** Catalogs in memory; any can be made again. */
const MAX_CATALOGS = 256;

/**
 * The offers of upstreams, by client capabilities, and the catalogs made of them.
 *
 * The last good offers are stored, so that a restart serves whole lists at once.
 */
export class Offers {
  readonly #views: ReadonlyMap<string, View>;
  readonly #limits: { readonly maxNameChars: number; readonly instructionsMaxChars: number };
  readonly #store: OfferStore;
  readonly #log: Logger;
  /** Command or URL of each upstream. */
  readonly #targets = new Map<string, string>();
  /** Upstream → profile → offer. */
  readonly #offers = new Map<string, Map<string, Offer>>();
  /** When this process listed an upstream itself, by `<upstream> <capabilityKey>`. */
  readonly #heardMs = new Map<string, number>();
  readonly #catalogs = new Map<string, Catalog>();
  #writing: Promise<void> = Promise.resolve();

  constructor(config: Config, views: ReadonlyMap<string, View>, store: OfferStore, log: Logger) {
    this.#views = views;
    this.#limits = { maxNameChars: config.names.maxChars, instructionsMaxChars: config.instructions.maxChars };
    this.#store = store;
    this.#log = log;
    for (const upstream of config.upstreams) {
      this.#offers.set(upstream.id, new Map());
      this.#targets.set(upstream.id, targetText(upstream));
    }
  }

  /** Reads the last good offers for everyone. One that cannot be read counts as none. */
  async restore(): Promise<void> {
    for (const [upstream, offers] of this.#offers) {
      const offer = parseOffer(await this.#read(upstream, ''));
      if (offer !== undefined) offers.set('', offer);
    }
  }

  /** Returns the offer for clients with these capabilities; `''` stands for everyone. */
  get(upstream: string, capabilityKey: string): Offer | undefined {
    return this.#offers.get(upstream)?.get(capabilityKey);
  }

  /** Returns ms since this process listed the upstream itself; undefined when it never did. */
  ageMs(upstream: string, capabilityKey: string): number | undefined {
    const heardMs = this.#heardMs.get(`${upstream} ${capabilityKey}`);
    return heardMs === undefined ? undefined : performance.now() - heardMs;
  }

  /** Returns whether there is an offer for these capabilities, after reading it from the store if need be. */
  async load(upstream: string, capabilityKey: string): Promise<boolean> {
    const offers = this.#offers.get(upstream);
    if (offers === undefined || offers.has(capabilityKey)) return true;
    const offer = parseOffer(await this.#read(upstream, capabilityKey));
    if (offer === undefined) return false;
    this.#set(upstream, capabilityKey, offer);
    return true;
  }

  /** Replaces an offer. Returns whether it differs from the one before. */
  update(upstream: string, capabilityKey: string, offer: Offer): boolean {
    const isFirst = this.ageMs(upstream, capabilityKey) === undefined;
    this.#heardMs.set(`${upstream} ${capabilityKey}`, performance.now());
    const before = this.get(upstream, capabilityKey);
    if (before !== undefined && sameOffer(before, offer)) {
      this.#touch(upstream, capabilityKey, before);
      if (isFirst && capabilityKey === '') this.#warn(upstream);
      return false;
    }
    this.#set(upstream, capabilityKey, offer);
    if (capabilityKey === '') this.#warn(upstream);
    const key = this.#key(upstream, capabilityKey);
    this.#write(() => this.#store.write(key, offerText(offer)), upstream);
    return true;
  }

  /** Logs why items are left out of the lists. */
  #warn(upstream: string): void {
    for (const { upstream: owner, kind, name, why } of this.catalog('', '').quarantined) {
      if (owner === upstream) this.#log.warn({ upstream, kind, name, why }, 'left out of the lists');
    }
  }

  /** Writes one after the other. Offers that cannot be written are served all the same, but do not outlive a restart. */
  #write(change: () => Promise<void>, upstream: string): void {
    this.#writing = this.#writing
      .then(change)
      .catch((thrown: unknown) => this.#log.warn({ err: thrown, upstream }, 'offer not saved'));
  }

  capabilityKeysOf(upstream: string): readonly string[] {
    return [...(this.#offers.get(upstream)?.keys() ?? [])];
  }

  /** Removes the offer for these capabilities, which may be outdated. */
  remove(upstream: string, capabilityKey: string): void {
    const offers = this.#offers.get(upstream);
    if (offers !== undefined) this.#forget(upstream, offers, capabilityKey);
  }

  /** Resolves when all offers are written. */
  flush(): Promise<void> {
    return this.#writing;
  }

  /** Makes an offer the last to be removed. */
  #touch(upstream: string, capabilityKey: string, offer: Offer): void {
    const offers = this.#offers.get(upstream);
    offers?.delete(capabilityKey);
    offers?.set(capabilityKey, offer);
  }

  #set(upstream: string, capabilityKey: string, offer: Offer): void {
    const offers = this.#offers.get(upstream);
    if (offers === undefined) return;
    this.#touch(upstream, capabilityKey, offer);
    for (const oldest of offers.keys()) {
      if (offers.size <= MAX_PROFILES) break;
      if (oldest !== '') this.#forget(upstream, offers, oldest);
    }
    this.#catalogs.clear();
  }

  /** Removes an offer here and from the store: clients choose their capabilities, so that there could be any number. */
  #forget(upstream: string, offers: Map<string, Offer>, capabilityKey: string): void {
    offers.delete(capabilityKey);
    this.#heardMs.delete(`${upstream} ${capabilityKey}`);
    const key = this.#key(upstream, capabilityKey);
    this.#write(() => this.#store.remove(key), upstream);
  }

  /** Returns the catalog of a holder: lists of its own connections, else those for its capabilities, else those for everyone. */
  catalogFor(holder: ConnectionHolder): Catalog {
    const { view } = holder.caller;
    return holder.ownOffers.size === 0
      ? this.catalog(view, holder.capabilityKey)
      : this.#build(view, (upstream) => holder.ownOffers.get(upstream) ?? this.#best(upstream, holder.capabilityKey));
  }

  /** Does the same after reading the store. */
  async loadCatalog(holder: ConnectionHolder): Promise<Catalog> {
    const { upstreams } = this.catalog(holder.caller.view, '').view;
    await Promise.all(upstreams.map((viewed) => this.load(viewed.id, holder.capabilityKey)));
    return this.catalogFor(holder);
  }

  catalog(view: string, capabilityKey: string): Catalog {
    const key = `${view} ${capabilityKey}`;
    const known = this.#catalogs.get(key);
    if (known !== undefined) return known;
    const catalog = this.#build(view, (upstream) => this.#best(upstream, capabilityKey));
    if (this.#catalogs.size >= MAX_CATALOGS) this.#catalogs.clear();
    this.#catalogs.set(key, catalog);
    return catalog;
  }

  #best(upstream: string, capabilityKey: string): Offer | undefined {
    const offers = this.#offers.get(upstream);
    return offers?.get(capabilityKey) ?? offers?.get('');
  }

  #build(viewId: string, offerOf: (upstream: string) => Offer | undefined): Catalog {
    const view = this.#views.get(viewId);
    if (view === undefined) throw new RangeError(`no view "${viewId}"`);
    const offers = new Map<string, Offer>();
    for (const { id } of view.upstreams) {
      const offer = offerOf(id);
      if (offer !== undefined) offers.set(id, offer);
    }
    return buildCatalog(view, offers, this.#limits);
  }

  #key(upstream: string, capabilityKey: string): OfferKey {
    return { upstream, target: this.#targets.get(upstream) ?? '', era: '', capabilityKey };
  }

  async #read(upstream: string, capabilityKey: string): Promise<string> {
    return (await this.#store.read(this.#key(upstream, capabilityKey))) ?? '';
  }
}

/** Another command or URL under the same id is another server, whose lists are not these. */
function targetText({ target }: UpstreamConfig): string {
  return JSON.stringify(target.kind === 'stdio' ? [target.command, ...target.args] : [target.url]);
}
