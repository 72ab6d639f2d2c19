import { matchesGlob } from '../../catalog/names/glob.ts';
import { namesOfTool } from '../../catalog/names/name.ts';
import type { Config, RateConfig } from '../../config/values/config.ts';
import { shownText } from '../../peer-text.ts';
import type { LastLists } from './last-lists.ts';

type Judged = Pick<Config, 'rates' | 'repeats' | 'upstreams' | 'profiles' | 'names'>;

/** The endpoints and upstreams of a rate. */
type Scope = Pick<RateConfig, 'endpoints' | 'upstreams'>;

/**
 * Returns a warning for each glob in `tools` of a rate or of `repeats` that matches no published tool in the last lists. None while an
 * upstream that it is for was never listed.
 */
export function unmatchedRateGlobs(config: Judged, lists: LastLists): string[] {
  const { rates, repeats } = config;
  const everywhere = { endpoints: undefined, upstreams: undefined };
  const warningsOf = (setting: string, globs: readonly string[] = [], scope: Scope) =>
    unmatched(setting, globs, () => publishedNames(config, scope, lists));
  return [
    ...rates.flatMap((rate) => warningsOf(`rate "${rate.name}": tools`, rate.tools, rate)),
    ...warningsOf('repeats: tools', repeats?.tools, everywhere),
    ...warningsOf('repeats: exceptTools', repeats?.exceptTools, everywhere),
  ];
}

function unmatched(setting: string, globs: readonly string[], namesOf: () => readonly string[] | undefined): string[] {
  const judged = globs.filter((glob) => glob !== '*');
  const names = judged.length === 0 ? undefined : namesOf();
  if (names === undefined) return [];
  const [example] = names;
  const published = example === undefined ? 'there is none' : `a published name is ${shownText(example)}`;
  return judged
    .filter((glob) => !names.some((name) => matchesGlob(glob, name)))
    .map((glob) => `${setting} "${glob}" matches no tool in the last lists; ${published}`);
}

/** Returns the names of the tools that clients see there, at all endpoints; undefined while the tools are not all known. */
function publishedNames(
  config: Judged,
  { endpoints, upstreams }: Scope,
  lists: LastLists,
): readonly string[] | undefined {
  const isFor = (upstream: string) => upstreams?.includes(upstream) ?? true;
  const views = [...lists.views.values()].filter(({ id }) => endpoints?.includes(id) ?? true);
  const concerned = views.flatMap((view) => view.upstreams.map(({ id }) => id)).filter(isFor);
  if (!concerned.every((id) => lists.isListed(id))) return undefined;
  const served = views
    .flatMap((view) => [...lists.catalog(view).tools.values()])
    .filter(({ upstream }) => isFor(upstream));
  // Most tools are at several endpoints.
  const tools = new Map(served.map((tool) => [`${tool.upstream} ${tool.name}`, tool]));
  return [...tools.values()].flatMap(({ upstream, name }) => namesOfTool(config, upstream, name));
}
