import type { RawObject } from '../json/json.ts';
import type { Era } from '../protocol/revisions.ts';
import { compareLists, type Difference } from './comparison.ts';
import type { Listed } from './definition.ts';
import { listsFor, mergeEras, pinLists, type PinnedLists } from './lock-file.ts';

/** The lists that an upstream has sent in one era. */
export interface EraLists {
  readonly era: Era;
  readonly offer: Listed & { readonly serverInfo: RawObject };
}

/** A difference, and the eras in which the lists have it. */
export interface EraDifference extends Difference {
  readonly eras: readonly Era[];
}

export function pinUpstream(lists: readonly EraLists[]): readonly PinnedLists[] {
  return mergeEras(lists.map(({ era, offer }) => pinLists(offer, [era])));
}

/** Returns the differences of an upstream's lists from the lock, each once. @param pinned undefined if it is not in the lock. */
export function upstreamDifferences(
  pinned: readonly PinnedLists[] | undefined,
  lists: readonly EraLists[],
): readonly EraDifference[] {
  const found = new Map<string, EraDifference>();
  for (const { era, offer } of lists) {
    for (const difference of compareLists(listsFor(pinned, era), offer)) {
      const key = JSON.stringify(difference);
      found.set(key, { ...difference, eras: [...(found.get(key)?.eras ?? []), era] });
    }
  }
  return [...found.values()];
}
