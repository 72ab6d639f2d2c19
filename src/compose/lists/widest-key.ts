import { commonKey, type OfferKey } from '../../catalog/offer.ts';
import type { Offers } from '../../gateway/lists/offers.ts';
import { type Era, ERAS } from '../../protocol/revisions.ts';

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
