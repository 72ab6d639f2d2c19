import { oncePer } from '../../catalog/weak-cache.ts';
import type { Source, Target } from '../../catalog/names/named-items.ts';
import type { Restriction } from '../../catalog/restriction.ts';
import { type Item, NO_HINTS, plainItem } from '../../policy/decide.ts';
import type { ListRights } from '../../policy/rights.ts';
import { hintsOf } from './gate.ts';

/** Returns the restriction of catalogs by these rights: an item is there unless the rights deny it whatever the call. */
export const restrictionOf = oncePer((rights: ListRights): Restriction => {
  const isAllowed = (item: Item, by = rights) => by.lists(item);
  return {
    get content() {
      return rights.content;
    },
    shows: (upstream) => rights.mayShow(upstream),
    serves: (upstream) => rights.own.mayShow(upstream),
    isWhole: (upstream) => rights.isWhole(upstream),
    passesUnlisted: (upstream) => rights.passesUnlisted(upstream),
    allowsCallable: (kind, { upstream, name }: Target, source: Source | undefined) =>
      isAllowed({ kind, upstream, name, hints: kind === 'tool' ? hintsOf(source) : NO_HINTS }),
    allowsUri: (upstream, name) => isAllowed(plainItem('resource', upstream, name)),
    allowsUpdates: (upstream, name) => isAllowed(plainItem('resource', upstream, name), rights.own),
    allowsUpdateNow: (upstream, name) =>
      rights.own.to(plainItem('resource', upstream, name)).decideCall(undefined, new Date()).effect !== 'deny',
    allowsTemplate: (upstream, name) => isAllowed(plainItem('template', upstream, name)),
    allowsCompletion: (upstream, name) => isAllowed(plainItem('template', upstream, name), rights.own),
  };
});
