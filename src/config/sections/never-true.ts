import type { AccessConfig, RuleConfig } from '../../policy/access-config.ts';
import { ITEM_KINDS } from '../../policy/comparisons.ts';
import { FALSE, type Outcomes, TRUE } from '../../policy/outcomes.ts';
import { type Place, placeReader } from '../../policy/when.ts';
import type { Document } from '../document/document.ts';
import { type Problem, problemLine } from '../document/problem.ts';
import type { Meet } from './endpoint-faults.ts';
import { rulesOf } from './rules.ts';
import type { Faults } from './selector-faults.ts';

/** Ids of all upstreams and views of a config. */
export interface PlaceNames {
  readonly upstreams: readonly string[];
  readonly views: readonly string[];
}

const NEVER = 'is true for no upstream, endpoint and kind of item of this rule; change the condition or the rule';
/** The most places at which a condition is tried. */
const MAX_PLACES = 10_000;

/** Finds conditions that are true at no place of their rule: at none of its upstreams and endpoints, for no kind of its items. */
export function neverTrue(document: Document, { roles, grants }: AccessConfig, names: PlaceNames, meet: Meet): Faults {
  const [problems, warnings]: [Problem[], string[]] = [[], []];
  const read = placeReader();
  for (const role of roles) {
    const giving = grants.filter((grant) => grant.roles.includes(role.name));
    const endpoints = names.views.filter((id) => giving.some((grant) => grant.endpoints?.includes(id) ?? true));
    for (const { rule, path } of rulesOf(role)) {
      if (rule.when === undefined) continue;
      const { reads, outcomes, anywhere } = read(rule.when);
      // A deny rule also applies if its condition fails.
      const applies = (one: Outcomes) => (rule === role.allow ? (one & TRUE) !== 0 : one !== FALSE);
      const places = placesOf(rule, reads, { ...names, views: endpoints }, meet);
      const first = places.next().value;
      if (first === undefined || applies(outcomes(first)) || places.some((place) => applies(outcomes(place)))) continue;
      const at = [...path, 'when'];
      // A constant may switch a rule off.
      if (applies(anywhere)) problems.push(document.problem(at, NEVER));
      else warnings.push(problemLine(document.problem(at, 'is never true, so this rule never matches')));
    }
  }
  return { problems, warnings };
}

/** Yields the places of a rule that differ in what its condition reads; none if they are too many. */
function* placesOf(
  { upstreams: own, tools, prompts, resources }: RuleConfig,
  reads: Readonly<Record<'upstream' | 'endpoint' | 'tool', boolean>>,
  names: PlaceNames,
  meet: Meet,
): Generator<Place, undefined> {
  const isGeneral = tools === undefined && prompts === undefined && resources === undefined;
  const lists = new Map(Object.entries({ tool: tools, prompt: prompts, resource: resources, template: resources }));
  const kinds = ITEM_KINDS.filter((kind) => isGeneral || lists.get(kind) !== undefined);
  const all = own ?? names.upstreams;
  const upstreams = reads.upstream ? all.map((id) => [id]) : [all];
  const endpoints = reads.endpoint ? names.views.map((id) => [id]) : [names.views];
  if (upstreams.length * endpoints.length * kinds.length > MAX_PLACES) return;
  for (const some of upstreams)
    for (const ends of endpoints)
      if (meet(some, ends)) for (const kind of kinds) yield { upstream: some[0] ?? '', endpoint: ends[0] ?? '', kind };
}
