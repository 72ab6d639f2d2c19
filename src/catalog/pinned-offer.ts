import type { RawObject } from '../json/json.ts';
import type { Difference } from '../lock/comparison.ts';
import { idOf, type ListedKind } from '../lock/definition.ts';
import type { OnChange } from '../lock/pins.ts';
import { keyOf } from './item.ts';
import { EMPTY_OFFER, type Offer, type Withheld } from './offer.ts';

/**
 * Returns the offer without the definitions that differ from the lock; the offer itself if none is withheld. Definitions that are
 * only in the lock withhold nothing. If the lock refuses the upstream as a whole, nothing is left.
 */
export function pinnedOffer(offer: Offer, differences: readonly Difference[], onChange: OnChange): Offer {
  const differing = new Map(differences.filter(({ status }) => status !== 'removed').map((one) => [idOf(one), one]));
  if (onChange === 'warn' || differing.size === 0) return offer;
  const isRefused = onChange === 'refuse';
  const asWhole = `is withheld: ${differing.size} definitions of its upstream differ from the lock, which refuses it as a whole`;
  const withheld: Withheld[] = [];
  const kept = (kind: ListedKind, items: readonly RawObject[]): readonly RawObject[] =>
    items.filter((item) => {
      const key = keyOf(kind, item);
      const difference = differing.get(idOf({ kind, key }));
      if (difference === undefined && !isRefused) return true;
      withheld.push({ kind, key, why: difference === undefined ? asWhole : withheldReason(difference) });
      return false;
    });
  const lists = {
    tools: kept('tool', offer.tools),
    prompts: kept('prompt', offer.prompts),
    resources: kept('resource', offer.resources),
    templates: kept('template', offer.templates),
  };
  if (isRefused) {
    const { revision, serverInfo, caching, unreadable } = offer;
    return { ...EMPTY_OFFER, revision, serverInfo, caching, unreadable, withheld, isRefused };
  }
  const hasOtherInstructions = differing.has(idOf({ kind: 'instructions', key: '' }));
  return { ...offer, ...lists, instructions: hasOtherInstructions ? undefined : offer.instructions, withheld };
}

const MAX_WHY_CHARS = 400;

/** Returns the reason why a definition is withheld: completes "the item …". */
function withheldReason({ status, changes }: Difference): string {
  const what = status === 'added' ? 'it is not in the lock' : 'it differs from the lock';
  const words = changes.map(({ text }) => text).join('; ');
  const why = `is withheld: ${what}${words === '' ? '' : `: ${words}`}`;
  return why.length > MAX_WHY_CHARS ? `${why.slice(0, MAX_WHY_CHARS)}…` : why;
}
