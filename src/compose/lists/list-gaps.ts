import type { Catalog } from '../../catalog/catalog.ts';
import type { Offer } from '../../catalog/offer.ts';
import { type ListProblem, problemsIn } from '../../catalog/problems.ts';
import { isProfile, type View } from '../../catalog/view.ts';
import type { Offers } from '../../gateway/lists/offers.ts';
import type { ListGaps } from '../../operator/admin/answers.ts';
import { ERAS } from '../../protocol/revisions.ts';
import { lastLists } from './last-lists.ts';
import { unmatchedFiltersAt } from './unmatched-filters.ts';
import { endpointPath } from '../../endpoint-path.ts';

const MAX_PROBLEMS = 50;

/**
 * Returns what clients do not get of the lists of an upstream, each once. It covers the merged endpoint, its own and those of profiles, in
 * both eras. It also has names in filters and `renames` that no tool has.
 */
export function listGapsOf(upstream: string, offers: Offers, views: ReadonlyMap<string, View>): ListGaps {
  const lines = new Set(ERAS.flatMap((era) => offers.problemsOf(upstream, era).map(problemLine)));
  const lists = lastLists(offers, views);
  const emptyAt: string[] = [];
  for (const view of views.values()) {
    const ids = view.upstreams.map(({ id }) => id);
    if (!ids.includes(upstream)) continue;
    const key = lists.keyOf(view);
    const catalog = offers.catalog(view.id, key);
    const endpoint = endpointPath(view.id);
    // A profile may leave out one upstream on purpose, but not everything.
    const counted = isProfile(view) ? ids : [upstream];
    const isListing = counted.some((id) => hasItems(offers.offerFor(id, key)));
    if (isListing && !counted.some((id) => publishes(catalog, id))) emptyAt.push(endpoint);
    // Those of a profile stand at its first upstream.
    if (ids[0] === upstream) for (const line of unmatchedFiltersAt(view, lists)) lines.add(line);
    if (!isProfile(view)) continue;
    for (const problem of problemsIn([catalog], upstream)) {
      const line = problemLine(problem);
      if (!lines.has(line)) lines.add(`${line} (at ${endpoint})`);
    }
  }
  return { listProblems: firstLines([...lines]), emptyAt };
}

/** Returns the first lines, and a line that counts the rest. */
export function firstLines(lines: string[]): string[] {
  const more = lines.length - MAX_PROBLEMS;
  return more > 0 ? [...lines.slice(0, MAX_PROBLEMS), `and ${more} more`] : lines;
}

export function problemLine({ kind, name, repair, detail }: ListProblem): string {
  if (repair === 'lists refused') return `its lists are refused: ${detail}`;
  // The reason says that it is withheld.
  if (repair === 'item withheld') return `${kind} "${name}" ${detail}`;
  return `${kind} "${name}": ${repair}: ${detail}`;
}

function hasItems(offer: Offer | undefined): boolean {
  if (offer === undefined) return false;
  const { tools, prompts, resources, templates, unreadable = [] } = offer;
  return [tools, prompts, resources, templates, unreadable].some((items) => items.length > 0);
}

function publishes({ tools, prompts, resources }: Catalog, upstream: string): boolean {
  const isIts = (item: { readonly upstream: string }) => item.upstream === upstream;
  const { origins, templateOrigins } = resources;
  return [tools.values(), prompts.values(), origins.values(), templateOrigins.values()].some((items) =>
    items.some(isIts),
  );
}
