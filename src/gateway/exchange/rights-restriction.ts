import type { Source, Target } from '../../catalog/names/named-items.ts';
import type { Restriction } from '../../catalog/restriction.ts';
import { type Item, NO_HINTS } from '../../policy/decide.ts';
import type { Rights } from '../../policy/rights.ts';
import { hintsOf } from './gate.ts';

const known = new WeakMap<Rights, Restriction>();

/** Returns the restriction of catalogs by these rights: an item is there unless the rights deny it whatever the call. */
export function restrictionOf(rights: Rights): Restriction {
  let restriction = known.get(rights);
  if (restriction === undefined) known.set(rights, (restriction = make(rights)));
  return restriction;
}

function make(rights: Rights): Restriction {
  const isAllowed = (item: Item) => rights.lists(item);
  return {
    shows: (upstream) => rights.mayShow(upstream),
    isWhole: (upstream) => rights.isWhole(upstream),
    allowsCallable: (kind, { upstream, name }: Target, source: Source | undefined) =>
      isAllowed({ kind, upstream, name, hints: kind === 'tool' ? hintsOf(source) : NO_HINTS }),
    allowsUri: (upstream, name) => isAllowed({ kind: 'resource', upstream, name, hints: NO_HINTS }),
    allowsTemplate: (upstream, name) => isAllowed({ kind: 'template', upstream, name, hints: NO_HINTS }),
  };
}
