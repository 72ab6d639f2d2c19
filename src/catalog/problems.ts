import type { LimitName } from '../limits.ts';
import type { Catalog } from './catalog.ts';
import type { ItemKind } from './items/kind.ts';

/** An item of an upstream that clients get otherwise than its upstream lists it, or not at all. */
export interface ListProblem {
  readonly kind: ItemKind;
  readonly name: string;
  readonly repair: 'item left out' | 'member left out' | 'text cleaned';
  /** In words. */
  readonly detail: string;
  readonly limit?: LimitName | undefined;
}

/** Returns the problems of one upstream's lists. */
export function problemsOf({ quarantined, repaired }: Catalog, upstream: string): readonly ListProblem[] {
  const problems: ListProblem[] = [];
  for (const { upstream: id, kind, name, why, limit } of quarantined) {
    if (id === upstream) problems.push({ kind, name, repair: 'item left out', detail: why, limit });
  }
  for (const { upstream: id, kind, name, leftOut, cleanedTexts } of repaired) {
    if (id !== upstream) continue;
    for (const path of leftOut) problems.push({ kind, name, repair: 'member left out', detail: path });
    if (cleanedTexts > 0) {
      const detail = `hidden characters taken out of ${cleanedTexts} of its texts`;
      problems.push({ kind, name, repair: 'text cleaned', detail });
    }
  }
  return problems;
}
