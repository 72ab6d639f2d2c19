import type { Catalog } from '../../catalog/catalog.ts';
import { commonKey, type OfferKey } from '../../catalog/offer.ts';
import type { View } from '../../catalog/view.ts';
import type { Offers } from '../../gateway/lists/offers.ts';
import type { ListRights } from '../../policy/rights.ts';
import { type Era, ERAS } from '../../protocol/revisions.ts';

export interface LastLists {
  readonly views: ReadonlyMap<string, View>;
  isListed(upstream: string): boolean;
  /** Returns the key of the clients of a view with lists of the most upstreams, as {@link widestKey}. */
  keyOf(view: View): OfferKey;
  /** Returns the catalog of a view: the part that these rights allow, or everything. */
  catalog(view: View, rights?: ListRights): Catalog;
}

export function lastLists(offers: Offers, views: ReadonlyMap<string, View>): LastLists {
  const keyOf = (view: View) => widestKey(offers, view.upstreams, 'legacy');
  return {
    views,
    keyOf,
    isListed: (upstream) => ERAS.some((era) => offers.keysOf(upstream, era).length > 0),
    catalog: (view, rights) => offers.catalog(view.id, keyOf(view), rights),
  };
}

/**
 * Returns the key of clients of an era with lists of the most upstreams. Upstreams that were listed only for clients with certain
 * capabilities have no lists for all clients, and an operator wants to see theirs.
 */
export function widestKey(offers: Offers, upstreams: readonly { readonly id: string }[], era: Era): OfferKey {
  const listed = upstreams.flatMap(({ id }) => ERAS.flatMap((each) => offers.keysOf(id, each)));
  let [widest, most] = [commonKey(era), -1];
  for (const capabilityKey of new Set(['', ...listed.map((key) => key.capabilityKey)])) {
    const key = { ...commonKey(era), capabilityKey };
    const count = upstreams.filter(({ id }) => offers.offerFor(id, key) !== undefined).length;
    if (count > most) [widest, most] = [key, count];
  }
  return widest;
}
