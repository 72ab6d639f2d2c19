import { LIMITS } from '../limits.ts';
import type { Catalog } from './catalog.ts';
import type { Quarantined } from './item.ts';

/** A difference between an item that an upstream lists and the item that clients get. */
export interface ListProblem extends Pick<Quarantined, 'kind' | 'name' | 'limit'> {
  readonly repair: 'lists refused' | 'item left out' | 'item withheld' | 'member left out' | 'text cleaned';
  /** The reason why the item is left out, the path of the member, or the number of cleaned texts. */
  readonly detail: string;
}

/** Returns a text that is equal only for equal problems. */
export function problemKey({ kind, name, repair, detail }: ListProblem): string {
  return JSON.stringify([kind, name, repair, detail]);
}

/** Returns the problems of one upstream's lists in any of these catalogs, each once, up to a bound. */
export function problemsIn(catalogs: readonly Catalog[], upstream: string): readonly ListProblem[] {
  const found = new Map<string, ListProblem>();
  for (const catalog of catalogs) {
    for (const problem of problemsOf(catalog, upstream)) {
      if (found.size === LIMITS.listProblems) return [...found.values()];
      found.set(problemKey(problem), problem);
    }
  }
  return [...found.values()];
}

function* problemsOf({ quarantined, repaired }: Catalog, upstream: string): Iterable<ListProblem> {
  for (const { upstream: id, kind, name, why, limit, isWithheld, isRefusal } of quarantined) {
    if (id !== upstream) continue;
    if (isRefusal === true) yield { kind, name, repair: 'lists refused', detail: why, limit };
    else if (isWithheld === true) yield { kind, name, repair: 'item withheld', detail: why };
    else yield { kind, name, repair: 'item left out', detail: why, limit };
  }
  for (const { upstream: id, kind, name, leftOut, cleanedTexts } of repaired) {
    if (id !== upstream) continue;
    for (const path of leftOut) yield { kind, name, repair: 'member left out', detail: path };
    if (cleanedTexts > 0) {
      const detail = `hidden characters taken out of ${cleanedTexts} of its texts`;
      yield { kind, name, repair: 'text cleaned', detail };
    }
  }
}
