import type { Catalog } from '../../catalog/catalog.ts';
import type { OfferKey } from '../../catalog/offer.ts';
import type { View } from '../../catalog/view.ts';
import type { Offers } from '../../gateway/lists/offers.ts';
import { ERAS } from '../../protocol/revisions.ts';
import { widestKey } from './widest-key.ts';

/** The last lists of all upstreams. */
export interface LastLists {
  readonly views: ReadonlyMap<string, View>;
  /** True if lists of this upstream are known. */
  isListed(upstream: string): boolean;
  /** Returns the key of the clients of a view with lists of the most upstreams, as {@link widestKey}. */
  keyOf(view: View): OfferKey;
  /** Returns the catalog of a view, with everything. */
  catalog(view: View): Catalog;
}

/** Returns the lists that offers have. */
export function lastLists(offers: Offers, views: ReadonlyMap<string, View>): LastLists {
  const keyOf = (view: View) => widestKey(offers, view.upstreams, 'legacy');
  return {
    views,
    keyOf,
    isListed: (upstream) => ERAS.some((era) => offers.keysOf(upstream, era).length > 0),
    catalog: (view) => offers.catalog(view.id, keyOf(view)),
  };
}
