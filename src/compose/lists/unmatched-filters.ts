import { matchesGlob, type ToolFilter } from '../../catalog/names/glob.ts';
import { isProfile, type View } from '../../catalog/view.ts';
import { shownText } from '../../peer-text.ts';
import type { LastLists } from './last-lists.ts';

/**
 * Returns a sentence for each name that no tool in the last lists has. The names are those in `includeTools`, `excludeTools` and `renames`
 * of an endpoint's upstream or profile. Those of a profile begin with its name. Returns none while an upstream of the endpoint was never
 * listed.
 */
export function unmatchedFiltersAt(view: View, lists: LastLists): readonly string[] {
  if (view.id === '' || !view.upstreams.every(({ id }) => lists.isListed(id))) return [];
  const items = lists.catalog(view).callables.tools.parts.flatMap((part) => part.items);
  if (!isProfile(view)) {
    const names = items.map(({ reading }) => reading.key);
    return view.upstreams.flatMap((upstream) => unmatchedGlobsOf(upstream, names));
  }
  const names = items.map(({ prefixedName }) => prefixedName);
  const renames = Object.keys(view.renames).filter((name) => !names.includes(name));
  const unmatched = [...unmatchedGlobsOf(view, names), ...renames.map((name) => sentence('renames', name, names))];
  return unmatched.map((what) => `profile "${view.id}": ${what}`);
}

/** Returns a sentence for each glob of a filter that matches none of the names. */
function unmatchedGlobsOf({ includeTools = [], excludeTools }: ToolFilter, names: readonly string[]): string[] {
  const isUnmatched = (glob: string) => glob !== '*' && !names.some((name) => matchesGlob(glob, name));
  return [
    ...includeTools.filter(isUnmatched).map((glob) => sentence('includeTools', glob, names)),
    ...excludeTools.filter(isUnmatched).map((glob) => sentence('excludeTools', glob, names)),
  ];
}

const SHOWN_NAMES = 5;

function sentence(setting: string, glob: string, names: readonly string[]): string {
  const some = names.slice(0, SHOWN_NAMES).map((name) => shownText(name));
  const more = names.length > SHOWN_NAMES ? ', …' : '';
  const has = names.length === 0 ? 'it lists none' : `it lists ${some.join(', ')}${more}`;
  return `${setting} "${glob}" matches no tool; ${has}`;
}
