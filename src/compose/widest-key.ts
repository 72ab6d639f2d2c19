import type { Offers } from '../gateway/lists/offers.ts';
import { type Era, ERAS } from '../protocol/revisions.ts';

/**
 * Returns the capability key with lists of the most upstreams. Upstreams that were listed only for clients with certain
 * capabilities have no lists for all clients, and an operator wants to see theirs.
 */
export function widestKey(offers: Offers, upstreams: readonly string[], era: Era): string {
  const keys = new Set(['', ...upstreams.flatMap((id) => ERAS.flatMap((each) => offers.capabilityKeysOf(id, each)))]);
  let [widest, most] = ['', -1];
  for (const key of keys) {
    const count = upstreams.filter((id) => offers.offerFor(id, era, key) !== undefined).length;
    if (count > most) [widest, most] = [key, count];
  }
  return widest;
}
