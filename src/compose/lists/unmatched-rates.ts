import { matchesGlob } from '../../catalog/names/glob.ts';
import type { Config, RateConfig } from '../../config/values/config.ts';
import { shownText } from '../../peer-text.ts';
import type { LastLists } from './last-lists.ts';

/**
 * Returns a warning for each glob in `tools` of a rate or of `repeats` that matches no published tool in the last lists. None while an
 * upstream that it is for was never listed.
 */
export function unmatchedRateGlobs({ rates, repeats }: Pick<Config, 'rates' | 'repeats'>, lists: LastLists): string[] {
  const everywhere = { endpoints: undefined, upstreams: undefined };
  return [
    ...rates.flatMap((rate) => warningsOf(`rate "${rate.name}": tools`, rate.tools, rate, lists)),
    ...warningsOf('repeats: tools', repeats?.tools, everywhere, lists),
    ...warningsOf('repeats: exceptTools', repeats?.exceptTools, everywhere, lists),
  ];
}

function warningsOf(
  setting: string,
  globs: readonly string[] = [],
  scope: Pick<RateConfig, 'endpoints' | 'upstreams'>,
  lists: LastLists,
): string[] {
  const judged = globs.filter((glob) => glob !== '*');
  const names = judged.length === 0 ? undefined : publishedNames(scope, lists);
  if (names === undefined) return [];
  const [example] = names;
  const published = example === undefined ? 'there is none' : `a published name is ${shownText(example)}`;
  return judged
    .filter((glob) => !names.some((name) => matchesGlob(glob, name)))
    .map((glob) => `${setting} "${glob}" matches no tool in the last lists; ${published}`);
}

/** Returns the names of the tools that clients see there; undefined while they are not all known. */
function publishedNames(
  { endpoints, upstreams }: Pick<RateConfig, 'endpoints' | 'upstreams'>,
  lists: LastLists,
): readonly string[] | undefined {
  const isFor = (upstream: string) => upstreams?.includes(upstream) ?? true;
  const views = [...lists.views.values()].filter(({ id }) => endpoints?.includes(id) ?? true);
  const concerned = views.flatMap((view) => view.upstreams.map(({ id }) => id)).filter(isFor);
  if (!concerned.every((id) => lists.isListed(id))) return undefined;
  return views.flatMap((view) => {
    const targets = [...lists.catalog(view).callables.tools.targets];
    return targets.filter(([, { upstream }]) => isFor(upstream)).map(([name]) => name);
  });
}
