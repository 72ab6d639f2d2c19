import type { RawObject } from '../json/json.ts';
import type { Difference } from '../lock/comparison.ts';
import { idOf, type ListedKind } from '../lock/definition.ts';
import type { OnChange } from '../lock/pins.ts';
import { keyOf } from './item.ts';
import { EMPTY_OFFER, type Offer, type Withheld } from './offer.ts';

/**
 * Returns the offer without the definitions that differ from the lock; the offer itself if none is withheld. Definitions that are
 * only in the lock withhold nothing.
 */
export function pinnedOffer(offer: Offer, differences: readonly Difference[], onChange: OnChange): Offer {
  const differing = new Map(differences.filter(({ status }) => status !== 'removed').map((one) => [idOf(one), one]));
  if (onChange === 'warn' || differing.size === 0) return offer;
  if (onChange === 'refuse') return refusedOffer(offer, differing);
  const withheld: Withheld[] = [];
  const kept = (kind: ListedKind, items: readonly RawObject[]): readonly RawObject[] =>
    items.filter((item) => {
      const key = keyOf(kind, item);
      const difference = differing.get(idOf({ kind, key }));
      if (difference === undefined) return true;
      withheld.push({ kind, key, why: withheldReason(difference) });
      return false;
    });
  return {
    ...offer,
    instructions: differing.has(idOf({ kind: 'instructions', key: '' })) ? undefined : offer.instructions,
    tools: kept('tool', offer.tools),
    prompts: kept('prompt', offer.prompts),
    resources: kept('resource', offer.resources),
    templates: kept('template', offer.templates),
    withheld,
  };
}

/** Returns an offer of nothing, with a record of each item. */
function refusedOffer(offer: Offer, differing: ReadonlyMap<string, Difference>): Offer {
  const record = (kind: ListedKind, items: readonly RawObject[]): readonly Withheld[] =>
    items.map((item) => {
      const key = keyOf(kind, item);
      const difference = differing.get(idOf({ kind, key }));
      const others = `is withheld: ${differing.size} definitions of its upstream differ from the lock, which refuses it as a whole`;
      return { kind, key, why: difference === undefined ? others : withheldReason(difference) };
    });
  return {
    ...EMPTY_OFFER,
    revision: offer.revision,
    serverInfo: offer.serverInfo,
    caching: offer.caching,
    unreadable: offer.unreadable,
    withheld: [
      ...record('tool', offer.tools),
      ...record('prompt', offer.prompts),
      ...record('resource', offer.resources),
      ...record('template', offer.templates),
    ],
    isRefused: true,
  };
}

const MAX_WHY_CHARS = 400;

/** Returns the reason why a definition is withheld: completes "the item …". */
function withheldReason({ status, changes }: Difference): string {
  const what = status === 'added' ? 'it is not in the lock' : 'it differs from the lock';
  const words = changes.map(({ text }) => text).join('; ');
  const why = `is withheld: ${what}${words === '' ? '' : `: ${words}`}`;
  return why.length > MAX_WHY_CHARS ? `${why.slice(0, MAX_WHY_CHARS)}…` : why;
}
