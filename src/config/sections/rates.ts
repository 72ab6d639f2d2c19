import type { PrincipalSelector } from '../../policy/principal-selector.ts';
import type { RateConfig } from '../config.ts';
import type { Document } from '../document/document.ts';
import { type Path, type Problem, problemLine } from '../document/problem.ts';
import { didYouMean, suggest } from '../document/suggest.ts';
import type { GatewaySettings } from '../schema/gateway-schema.ts';
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
  { rates, auth, access }: GatewaySettings,
  { keys, profiles }: Names,
): {
  readonly rates: readonly RateConfig[];
  readonly problems: readonly Problem[];
  readonly warnings: readonly string[];
} {
  const problems: Problem[] = [];
  const warnings: string[] = [];
  const hasOtherGroups =
    auth.keyFile !== undefined || auth.keysInRedis === true || (access?.groupClaims.length ?? 0) > 0;
  const groups = auth.apiKeys.flatMap((key) => key.groups ?? []);
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

  const read = rates.map((rate, index): RateConfig => {
    const path: Path = ['gateway', 'rates', index];
    const { name, to, per, limit, window: windowMs, tools } = rate;
    if (known.has(name)) problems.push(document.problem([...path, 'name'], 'another rate has this name'));
    known.add(name);
    const subjects = { ...to, anyone: to.anyone ?? false };
    const fault = faultOf(subjects);
    if (fault !== undefined) problems.push(document.problem([...path, 'to'], fault, 'key'));
    for (const [position, group] of (to.groups ?? []).entries()) {
      if (hasOtherGroups || groups.includes(group)) continue;
      const message =
        'nobody is in this group: no API key names it, and for tokens gateway.access.groupClaims names no claim';
      warnings.push(problemLine(document.problem([...path, 'to', 'groups', position], message)));
    }
    const viewOf = (endpoint: string) => {
      const view = endpoint.slice('/mcp/'.length);
      return views.has(view) ? view : undefined;
    };
    const paths = [...views].map((view) => endpointPath(view));
    return {
      name,
      to: { anyone: subjects.anyone, claims: to.claims, ...listsOf(to) },
      endpoints: resolve(rate.endpoints, [...path, 'endpoints'], 'endpoint', viewOf, paths),
      upstreams: resolve(rate.upstreams, [...path, 'upstreams'], 'upstream', (id) => ids.get(id), ids.keys()),
      tools,
      per,
      limit,
      windowMs,
    };
  });
  return { rates: read, problems, warnings };
}

type Given = GatewaySettings['rates'][number]['to'];

function listsOf({
  keys,
  groups,
  scopes,
  subjects,
  issuers,
  clients,
}: Given): Omit<PrincipalSelector, 'anyone' | 'claims'> {
  return { keys, groups, scopes, subjects, issuers, clients };
}

/** Returns the fault of the principals of a rate, as a sentence; undefined if there is none. */
function faultOf({
  anyone,
  claims,
  ...lists
}: Omit<Given, 'anyone'> & { readonly anyone: boolean }): string | undefined {
  const isFiltered = Object.keys(claims).length > 0 || Object.values(lists).some((list) => list !== undefined);
  if (anyone === isFiltered) {
    return anyone ? 'is for anyone, so it names no principals' : 'names no principals; for all, write anyone: true';
  }
  return undefined;
}
