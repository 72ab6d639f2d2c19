import type { Logger } from 'pino';
import { matchesGlob } from '../../catalog/names/glob.ts';
import { isProfile } from '../../catalog/view.ts';
import type { Resources } from '../../catalog/resources/resources.ts';
import type { Config } from '../../config/values/config.ts';
import { didYouMean, suggest } from '../../config/document/suggest.ts';
import type { AccessConfig, RuleConfig } from '../../policy/access-config.ts';
import { comparedNames } from '../../policy/conditions/comparisons.ts';
import { isAbout, type Item, plainItem } from '../../policy/decide.ts';
import { canonicalGlob } from '../../catalog/resources/uri-form.ts';
import type { LastLists } from './last-lists.ts';
import { unmatchedFiltersAt } from './unmatched-filters.ts';
import { unmatchedRateGlobs } from './unmatched-rates.ts';

type Judged = Pick<Config, 'access' | 'upstreams' | 'rates' | 'repeats' | 'profiles' | 'names'>;

/**
 * Returns a warning for each glob or name that matches nothing in the last lists of its upstreams. They are those of filters, rates and the
 * access policy. A glob is not judged while an upstream of its rule was never listed.
 */
export function unmatchedGlobs(config: Judged, lists: LastLists): readonly string[] {
  const ofFilters = [...lists.views.values()].flatMap((view) => {
    const unmatched = unmatchedFiltersAt(view, lists);
    return isProfile(view) ? unmatched : unmatched.map((what) => `upstream "${view.id}": ${what}`);
  });
  return [...ofFilters, ...unmatchedRuleGlobs(config, lists)];
}

/** Like {@link unmatchedGlobs}, for the access policy and rates alone. */
export function unmatchedRuleGlobs(config: Judged, lists: LastLists): readonly string[] {
  return [...ofAccess(config, lists), ...unmatchedRateGlobs(config, lists)];
}

function ofAccess(config: Judged, lists: LastLists): readonly string[] {
  if (config.access === undefined) return [];
  const rules = config.access.roles.flatMap(({ allow, deny }) => [...(allow === undefined ? [] : [allow]), ...deny]);
  const all = config.upstreams.map(({ id }) => id);
  const ofRules = rules.flatMap((rule) => {
    const upstreams = rule.upstreams ?? all;
    return upstreams.every((id) => lists.isListed(id)) ? warningsOf(rule, new Set(upstreams), lists) : [];
  });
  return [...ofRules, ...ofTests(config.access, lists)];
}

/** Returns a warning for each test about a tool or prompt that does not exist, which says nothing about the one that is meant. */
function ofTests({ tested = [] }: AccessConfig, lists: LastLists): readonly string[] {
  return tested.flatMap(({ place: { file, line }, kind, upstream, name }) => {
    const known = lists.isListed(upstream) ? namesOf(lists, kind, new Set([upstream])) : undefined;
    // An upstream whose lists depend on the caller has none here.
    if (known === undefined || known.length === 0 || known.includes(name)) return [];
    return [
      `${file}:${line}: this test of the access policy is about the ${kind} "${name}", which the last lists of upstream "${upstream}" lack${didYouMean(suggest(name, known))}`,
    ];
  });
}

/** Returns the names of tools or prompts, also of those that the lock withholds; undefined without an endpoint of all upstreams. */
function namesOf(
  lists: LastLists,
  kind: 'tool' | 'prompt',
  upstreams: ReadonlySet<string>,
): readonly string[] | undefined {
  const view = lists.views.get('');
  if (view === undefined) return undefined;
  const { callables, quarantined } = lists.catalog(view);
  const served = (kind === 'tool' ? callables.tools : callables.prompts).parts
    .filter(({ upstream }) => upstreams.has(upstream.id))
    .flatMap(({ items }) => items.map(({ reading }) => reading.key));
  const withheld = quarantined.filter(
    (one) => one.isWithheld === true && one.kind === kind && upstreams.has(one.upstream),
  );
  return [...served, ...withheld.map(({ name }) => name)];
}

const MAX_LOGGED = 20;

/** Logs the globs that match nothing, as {@link unmatchedGlobs} has them. */
export function logUnmatchedGlobs(config: Config, lists: LastLists, log: Logger): void {
  const warnings = unmatchedGlobs(config, lists);
  const { file } = config;
  for (const warning of warnings.slice(0, MAX_LOGGED)) log.warn({ file }, warning);
  const more = warnings.length - MAX_LOGGED;
  if (more > 0)
    log.warn({ file, more }, 'more filters, rates and access rules match nothing; "linkspan validate" shows them');
}

function warningsOf(rule: RuleConfig, upstreams: ReadonlySet<string>, lists: LastLists): readonly string[] {
  const view = lists.views.get('');
  if (view === undefined) return [];
  const { resources } = lists.catalog(view);
  const offered = {
    tools: namesOf(lists, 'tool', upstreams) ?? [],
    prompts: namesOf(lists, 'prompt', upstreams) ?? [],
  };
  const { file, line } = rule.place;
  const warning = (what: string, more = '') =>
    `${file}:${line}: rule "${rule.name}": ${what} matches nothing in the last lists of its upstreams${more}`;
  const ofNames = (['tools', 'prompts'] as const).flatMap((kind) =>
    (rule[kind] ?? [])
      .filter((glob) => glob !== '*' && !offered[kind].some((name) => matchesGlob(glob, name)))
      .map((glob) => warning(`${kind} "${glob}"`)),
  );
  const ofCondition = (rule.when === undefined ? [] : comparedNames(rule.when))
    .filter(({ text }) => !offered.tools.includes(text) && !offered.prompts.includes(text))
    // The text may be the value of a variable of the environment.
    .map(({ character }) =>
      warning('the text that its condition compares tool.name with', ` (at character ${character})`),
    );
  const listed = resourcesOf(resources, upstreams);
  const ofResources = (rule.resources ?? [])
    .filter((glob) => glob !== '*' && !listed.some((item) => isAboutResource(glob, item)))
    // An upstream may serve resources that it does not list.
    .map((glob) =>
      warning(`resources "${glob}"`, ', neither a resource nor a template; resources that are not listed may match it'),
    );
  return [...ofNames, ...ofCondition, ...ofResources];
}

/** Returns the resources and templates of these upstreams, by their own URIs. */
function resourcesOf({ origins, templateOrigins }: Resources, upstreams: ReadonlySet<string>): readonly Item[] {
  const items = (kind: 'resource' | 'template', all: Resources['origins']) =>
    all.filter(({ upstream }) => upstreams.has(upstream)).map(({ upstream, uri }) => plainItem(kind, upstream, uri));
  return [...items('resource', origins), ...items('template', templateOrigins)];
}

/**
 * Returns whether a glob may be about a resource or a URI of a template, in any of its spellings. It does not matter which effect the rule
 * has.
 */
function isAboutResource(glob: string, item: Item): boolean {
  const config = { resources: [glob], tools: undefined, prompts: undefined, hints: {}, when: undefined };
  const canonicalResources = [canonicalGlob(glob)];
  const place = { file: '', line: 0 };
  return (['allow', 'deny'] as const).some((effect) =>
    isAbout(
      { config: { ...config, name: '', place, upstreams: undefined }, effect, when: undefined, canonicalResources },
      item,
    ),
  );
}
