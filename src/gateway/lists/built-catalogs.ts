import { type ToolListSize, toolListSize } from '../../catalog/callable.ts';
import { buildCatalog, type Catalog, type CatalogLimits, prepareOffer } from '../../catalog/catalog.ts';
import { type Offer, type OfferKey, offerKeyText } from '../../catalog/offer.ts';
import { restrictCatalog } from '../../catalog/restricted.ts';
import type { View } from '../../catalog/view.ts';
import type { Config } from '../../config/values/config.ts';
import { GatewayError } from '../../errors.ts';
import type { LimitName } from '../../limits.ts';
import type { ListRights } from '../../policy/rights.ts';
import type { Era } from '../../protocol/revisions.ts';
import { workTurn } from '../../work-turn.ts';
import { restrictionOf } from '../exchange/rights-restriction.ts';
import { getOrMake } from '../../map-entries.ts';

/** Catalogs kept in memory. A removed one is built again when it is needed. */
const MAX_CATALOGS = 256;

/** A catalog with the offers that it is made of. */
interface BuiltCatalog {
  readonly view: string;
  readonly catalog: Catalog;
  readonly offers: ReadonlyMap<string, Offer>;
}

/** Returns the offer of an upstream that a catalog is made of. */
type OfferOf = (upstream: string) => Offer | undefined;

/** Builds the catalogs of views, and keeps those that many clients share until an offer of one of their upstreams changes. */
export class BuiltCatalogs {
  readonly #views: ReadonlyMap<string, View>;
  readonly #onLimit: (limit: LimitName) => void;
  #limits: CatalogLimits;
  readonly #catalogs = new Map<string, BuiltCatalog>();
  /** The parts of catalogs by rights, then by whole catalog. */
  readonly #ofRights = new WeakMap<ListRights, WeakMap<Catalog, WeakRef<Catalog>>>();
  /** The sizes of lists of tools by view and era, for those that were measured. */
  readonly #toolListSizes = new Map<string, { readonly view: string; readonly size: ToolListSize }>();
  readonly #viewsOf = new Map<string, Set<string>>();

  constructor(config: Config, views: ReadonlyMap<string, View>, onLimit: (limit: LimitName) => void) {
    this.#views = views;
    this.#onLimit = onLimit;
    this.#limits = this.#limitsOf(config);
    this.setConfig(config);
  }

  /** Applies another config, after its views were set. Removes all catalogs. */
  setConfig(config: Config): void {
    const { maxNameChars, instructionsMaxChars } = this.#limits;
    // Parts of catalogs are cached by the identity of the limits.
    if (maxNameChars !== config.names.maxChars || instructionsMaxChars !== config.instructions.maxChars) {
      this.#limits = this.#limitsOf(config);
    }
    this.#viewsOf.clear();
    for (const { id } of config.upstreams) this.#viewsOf.set(id, new Set());
    for (const view of this.#views.values()) {
      for (const { id } of view.upstreams) this.#viewsOf.get(id)?.add(view.id);
    }
    this.#catalogs.clear();
    this.#toolListSizes.clear();
  }

  #limitsOf({ names, instructions }: Config): CatalogLimits {
    return {
      maxNameChars: names.maxChars,
      instructionsMaxChars: instructions.maxChars,
      onLimit: this.#onLimit,
    };
  }

  viewsWith(upstream: string): ReadonlySet<string> {
    return this.#viewsOf.get(upstream) ?? new Set();
  }

  /** Removes the catalogs and sizes that were made of the offers of this upstream. */
  removeOf(upstream: string): void {
    const views = this.viewsWith(upstream);
    for (const made of [this.#catalogs, this.#toolListSizes]) {
      for (const [key, { view }] of made) if (views.has(view)) made.delete(key);
    }
  }

  /** Makes the parts of an offer that the catalogs in use share, over several turns of the event loop. */
  async prepare(upstream: string, offer: Offer): Promise<void> {
    await workTurn();
    const used = [...this.#catalogs.values()].map(({ view }) => view);
    for (const view of new Set(['', ...used])) await this.#prepareIn(view, upstream, offer);
  }

  /** Makes the parts of the catalog of a view for clients of this key, over several turns of the event loop. */
  async prepareCatalog(view: string, clients: OfferKey, offerOf: OfferOf): Promise<void> {
    if (this.#catalogs.has(catalogKey(view, clients))) return;
    for (const [upstream, offer] of this.#offersOf(view, offerOf)) await this.#prepareIn(view, upstream, offer);
  }

  async #prepareIn(viewId: string, upstream: string, offer: Offer): Promise<void> {
    // A reload may have removed the view meanwhile.
    const view = this.#views.get(viewId);
    if (view === undefined) return;
    const parts = prepareOffer(view, upstream, offer, this.#limits);
    while (parts.next().done !== true) await workTurn();
  }

  /** Returns the catalog of these offers, which is not kept: the same one for the same offers, as long as a client has it. */
  build(view: string, offerOf: OfferOf, rights?: ListRights): Catalog {
    const offers = this.#offersOf(view, offerOf);
    return this.#restricted(buildCatalog(this.view(view), offers, this.#limits), offers, rights);
  }

  /** Returns the part of a catalog that rights allow: the same one for the same rights, for as long as a client has it. */
  #restricted(whole: Catalog, offers: ReadonlyMap<string, Offer>, rights: ListRights | undefined): Catalog {
    if (rights === undefined) return whole;
    const ofRights = getOrMake(this.#ofRights, rights, () => new WeakMap());
    const known = ofRights.get(whole)?.deref();
    if (known !== undefined) return known;
    const catalog = restrictCatalog(whole, offers, restrictionOf(rights), this.#limits);
    ofRights.set(whole, new WeakRef(catalog));
    return catalog;
  }

  get(view: string, clients: OfferKey, offerOf: OfferOf, rights?: ListRights): Catalog {
    const { catalog, offers } = this.#whole(view, clients, offerOf);
    return this.#restricted(catalog, offers, rights);
  }

  #whole(view: string, clients: OfferKey, offerOf: OfferOf): BuiltCatalog {
    const key = catalogKey(view, clients);
    return getOrMake(this.#catalogs, key, () => {
      const offers = this.#offersOf(view, offerOf);
      const catalog = buildCatalog(this.view(view), offers, this.#limits);
      if (this.#catalogs.size >= MAX_CATALOGS) this.#catalogs.clear();
      return { view, catalog, offers };
    });
  }

  toolListSize(view: string, client: Era, offerOf: OfferOf): ToolListSize {
    const key = `${client} ${view}`;
    const measured = getOrMake(this.#toolListSizes, key, () => {
      return { view, size: toolListSize(this.view(view), this.#offersOf(view, offerOf), this.#limits.maxNameChars) };
    });
    return measured.size;
  }

  /** Returns a view. @throws {GatewayError} `session-unknown` if a reload has removed it while a client opened its session there. */
  view(id: string): View {
    const view = this.#views.get(id);
    if (view === undefined) throw new GatewayError('session-unknown', { message: 'the endpoint was removed' });
    return view;
  }

  #offersOf(view: string, offerOf: OfferOf): Map<string, Offer> {
    const offers = new Map<string, Offer>();
    for (const { id } of this.view(view).upstreams) {
      const offer = offerOf(id);
      if (offer !== undefined) offers.set(id, offer);
    }
    return offers;
  }
}

/** The audience comes last, since any text may be a principal. */
function catalogKey(view: string, key: OfferKey): string {
  return `${view} ${offerKeyText(key)}`;
}
