import { createHash } from 'node:crypto';
import { readFile, rm } from 'node:fs/promises';
import { join } from 'node:path';
import type { Logger } from 'pino';
import { buildCatalog, type Catalog } from '../../catalog/catalog.ts';
import { type Offer, offerText, parseOffer, sameOffer } from '../../catalog/offer.ts';
import type { View } from '../../catalog/view.ts';
import type { Config, UpstreamConfig } from '../../config/config.ts';
import { makeStateDir, replaceFile } from '../../store/state-file.ts';
import { type Era, ERAS, eraOf, otherEra } from '../../protocol/revisions.ts';
import type { Eras } from '../../upstream/eras.ts';
import type { ConnectionHolder } from '../exchange/connection-holder.ts';

/** Offers kept of one upstream, one for each era and set of client capabilities. Clients beyond that see the lists of all. */
const MAX_OFFERS = 16;
/** Catalogs kept in memory; any can be built again. */
const MAX_CATALOGS = 256;

/** The era that an offer was listed in, and the capabilities of the clients it is for. */
interface OfferKey {
  readonly era: Era;
  readonly capabilityKey: string;
}

/** A catalog with the offers that it is made of. */
interface BuiltCatalog {
  readonly catalog: Catalog;
  readonly offers: ReadonlyMap<string, Offer>;
}

/**
 * The offers of upstreams, for clients of each era and set of capabilities, and the catalogs made of them. The last good
 * offers are kept on disk, so that a restart serves the whole list at once.
 */
export class Offers {
  readonly #views: ReadonlyMap<string, View>;
  readonly #limits: { readonly maxNameChars: number; readonly instructionsMaxChars: number };
  readonly #dir: string;
  readonly #log: Logger;
  readonly #files = new Map<string, string>();
  /** Upstream → era and capability key → offer. */
  readonly #offers = new Map<string, Map<string, Offer>>();
  /** When this process listed an upstream itself; monotonic ms. By upstream, era and capability key. */
  readonly #listedMs = new Map<string, number>();
  /** Upstreams that are known not to speak one era: its offers are of an earlier version. */
  readonly #withoutEra = new Map<string, Era>();
  readonly #catalogs = new Map<string, BuiltCatalog>();
  #writing: Promise<void> = Promise.resolve();

  constructor(config: Config, views: ReadonlyMap<string, View>, log: Logger) {
    this.#views = views;
    this.#limits = { maxNameChars: config.names.maxChars, instructionsMaxChars: config.instructions.maxChars };
    this.#dir = join(config.stateDir, 'offers');
    this.#log = log;
    for (const upstream of config.upstreams) {
      this.#offers.set(upstream.id, new Map());
      this.#files.set(upstream.id, fileStem(upstream));
    }
  }

  /** Reads the last good offers. One that cannot be read counts as none. */
  async restore(): Promise<void> {
    await makeStateDir(this.#dir);
    for (const [upstream, offers] of this.#offers) {
      for (const era of ERAS) {
        const offer = parseOffer(await this.#read(upstream, { era, capabilityKey: '' }));
        // Files did not name the era once, and held offers of either.
        if (offer !== undefined) offers.set(keyText({ era: eraOf(offer.revision), capabilityKey: '' }), offer);
      }
    }
  }

  /** The offer for clients with these capabilities, or for all (`''`), as listed in this era. */
  get(upstream: string, era: Era, capabilityKey: string): Offer | undefined {
    return this.#offers.get(upstream)?.get(keyText({ era, capabilityKey }));
  }

  /** The offer that a client of this era sees: listed in its own era, else in the other one, else none. */
  best(upstream: string, client: Era, capabilityKey: string): Offer | undefined {
    const own = this.#withoutEra.get(upstream) === client ? undefined : this.#bestIn(upstream, client, capabilityKey);
    return own ?? this.#bestIn(upstream, otherEra(client), capabilityKey);
  }

  #bestIn(upstream: string, era: Era, capabilityKey: string): Offer | undefined {
    return this.get(upstream, era, capabilityKey) ?? this.get(upstream, era, '');
  }

  /** Stops showing offers of an era that the upstream does not speak. True when clients may see others than before. */
  setEras(upstream: string, { legacy, modern }: Eras): boolean {
    const missing = legacy.speaks === 'no' ? 'legacy' : modern.speaks === 'no' ? 'modern' : undefined;
    if (missing === this.#withoutEra.get(upstream)) return false;
    if (missing === undefined) this.#withoutEra.delete(upstream);
    else this.#withoutEra.set(upstream, missing);
    this.#catalogs.clear();
    return true;
  }

  /** Ms since this process listed an upstream itself; undefined when it never did. */
  ageMs(upstream: string, era: Era, capabilityKey: string): number | undefined {
    const listedMs = this.#listedMs.get(`${upstream} ${keyText({ era, capabilityKey })}`);
    return listedMs === undefined ? undefined : performance.now() - listedMs;
  }

  /** Whether this very offer is at hand, be it from disk. */
  async load(upstream: string, era: Era, capabilityKey: string): Promise<boolean> {
    const key = { era, capabilityKey };
    const offers = this.#offers.get(upstream);
    if (offers === undefined || offers.has(keyText(key))) return true;
    const offer = parseOffer(await this.#read(upstream, key));
    if (offer === undefined || eraOf(offer.revision) !== era) return false;
    this.#set(upstream, key, offer);
    return true;
  }

  /** Takes an offer; true when it differs from the one before. */
  update(upstream: string, era: Era, capabilityKey: string, offer: Offer): boolean {
    const key = { era, capabilityKey };
    const isFirst = this.ageMs(upstream, era, capabilityKey) === undefined;
    this.#listedMs.set(`${upstream} ${keyText(key)}`, performance.now());
    const before = this.get(upstream, era, capabilityKey);
    if (before !== undefined && sameOffer(before, offer)) {
      this.#touch(upstream, key, before);
      if (isFirst && capabilityKey === '') this.#warn(upstream, era);
      return false;
    }
    this.#set(upstream, key, offer);
    if (capabilityKey === '') this.#warn(upstream, era);
    const file = this.#file(upstream, key);
    this.#write(() => replaceFile(file, offerText(offer)), upstream);
    return true;
  }

  /** Logs the reasons why items are left out of the lists. */
  #warn(upstream: string, era: Era): void {
    for (const { upstream: owner, kind, name, why } of this.catalog('', era, '').quarantined) {
      if (owner === upstream) this.#log.warn({ upstream, era, kind, name, why }, 'left out of the lists');
    }
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
    this.#catalogs.clear();
  }

  /** Clients choose their capabilities, so what is kept for each choice is bounded, on disk too. */
  #remove(upstream: string, offers: Map<string, Offer>, key: OfferKey): void {
    offers.delete(keyText(key));
    this.#listedMs.delete(`${upstream} ${keyText(key)}`);
    const file = this.#file(upstream, key);
    this.#write(() => rm(file, { force: true }), upstream);
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
    this.#catalogs.set(key, { catalog, offers });
    return catalog;
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

  #file(upstream: string, { era, capabilityKey }: OfferKey): string {
    const parts = [this.#files.get(upstream), era === 'modern' ? era : '', capabilityKey].filter((part) => part !== '');
    return join(this.#dir, `${parts.join('.')}.json`);
  }

  async #read(upstream: string, key: OfferKey): Promise<string> {
    try {
      return await readFile(this.#file(upstream, key), 'utf8');
    } catch {
      return '';
    }
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
function fileStem(upstream: UpstreamConfig): string {
  const { target } = upstream;
  const identity = target.kind === 'stdio' ? [target.command, ...target.args] : [target.url];
  const digest = createHash('sha256').update(JSON.stringify(identity)).digest('hex').slice(0, 12);
  return `${upstream.id}-${digest}`;
}
