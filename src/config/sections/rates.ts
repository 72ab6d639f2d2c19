import type { RateConfig } from '../values/config.ts';
import type { Document } from '../document/document.ts';
import { type Path, type Problem, problemLine } from '../document/problem.ts';
import { didYouMean, suggest } from '../document/suggest.ts';
import type { GatewaySettings } from '../schema/gateway-schema.ts';
import { meetOf } from './endpoint-faults.ts';
import { EMPTY, type Faults, type SelectorJudge } from './selector-faults.ts';
import { endpointPath } from '../../endpoint-path.ts';

/** Names that a rate may use. */
interface Names {
  /** The key of every upstream in the file by its id, disabled ones included. */
  readonly keys: ReadonlyMap<string, string>;
  readonly profiles: readonly { readonly id: string }[];
}

/** Reads the rates, and checks that each can hold for something. */
export function readRates(
  document: Document,
  settings: GatewaySettings,
  { keys, profiles }: Names,
  judge: SelectorJudge,
): Faults & { readonly rates: readonly RateConfig[] } {
  const problems: Problem[] = [];
  const warnings: string[] = [];
  const meet = meetOf(settings.profiles, keys);
  const ids = new Map([...keys].flatMap(([id, key]) => [[id, id] as const, [key, id] as const]));
  const views = new Set(['', ...keys.keys(), ...profiles.map(({ id }) => id)]);
  const known = new Set<string>();

  /** Returns the values of names; reports the names that have none. */
  const resolve = (
    names: readonly string[] | undefined,
    at: Path,
    what: string,
    find: (name: string) => string | undefined,
    all: Iterable<string>,
  ) =>
    names?.flatMap((name, index) => {
      const found = find(name);
      if (found === undefined)
        problems.push(document.problem([...at, index], `no such ${what}${didYouMean(suggest(name, all))}`));
      return found === undefined ? [] : [found];
    });

  const read = settings.rates.map((rate, index): RateConfig => {
    const path: Path = ['gateway', 'rates', index];
    const { name, to, per, limit, window: windowMs, tools } = rate;
    if (known.has(name)) problems.push(document.problem([...path, 'name'], 'another rate has this name'));
    known.add(name);
    const { anyone = false, keys: keyNames, groups, scopes, subjects, issuers, clients, claims } = to;
    const selector = { anyone, claims, keys: keyNames, groups, scopes, subjects, issuers, clients };
    const faults = judge.judge([...path, 'to'], selector);
    problems.push(...faults.problems);
    warnings.push(...faults.unknown.map((problem) => problemLine(problem)), ...faults.warnings);
    const before = problems.length;
    for (const list of ['endpoints', 'upstreams', 'tools'] as const)
      if (rate[list]?.length === 0) problems.push(document.problem([...path, list], EMPTY));
    const viewOf = (endpoint: string) => {
      const view = endpoint.slice('/mcp/'.length);
      return views.has(view) ? view : undefined;
    };
    const paths = [...views].map((view) => endpointPath(view));
    const endpoints = resolve(rate.endpoints, [...path, 'endpoints'], 'endpoint', viewOf, paths);
    const upstreams = resolve(rate.upstreams, [...path, 'upstreams'], 'upstream', (id) => ids.get(id), ids.keys());
    const message = 'none of these upstreams is at the endpoints of this rate; name others here or there';
    if (problems.length === before && !meet(upstreams, endpoints))
      warnings.push(problemLine(document.problem([...path, 'upstreams'], message, 'key')));
    return { name, to: selector, endpoints, upstreams, tools, per, limit, windowMs };
  });
  if (settings.repeats?.tools.length === 0) problems.push(document.problem(['gateway', 'repeats', 'tools'], EMPTY));
  return { rates: read, problems, warnings };
}
