import type { ProfileConfig } from '../values/config.ts';
import type { UpstreamConfig } from '../values/upstream-config.ts';
import type { Document } from '../document/document.ts';
import type { GatewaySettings } from '../schema/gateway-schema.ts';
import { type Problem, problemLine } from '../document/problem.ts';
import { didYouMean, suggest } from '../document/suggest.ts';

interface ProfilesRead {
  readonly profiles: readonly ProfileConfig[];
  readonly problems: readonly Problem[];
  readonly warnings: readonly string[];
}

/**
 * Reads the profiles and checks them against the upstreams.
 *
 * @param keys the key of every upstream in the file by its id, disabled ones included.
 */
export function readProfiles(
  document: Document,
  settings: GatewaySettings,
  upstreams: readonly UpstreamConfig[],
  keys: ReadonlyMap<string, string>,
): ProfilesRead {
  const problems: Problem[] = [];
  const warnings: string[] = [];
  const ids = new Map([...keys].flatMap(([id, key]) => [[id, id] as const, [key, id] as const]));
  const served = new Set(upstreams.map(({ id }) => id));

  const profiles = Object.entries(settings.profiles).map(([id, profile]): ProfileConfig => {
    const path = ['gateway', 'profiles', id];
    if (keys.has(id)) {
      problems.push(
        document.problem(path, `/mcp/${id} is the endpoint of the upstream of that name; rename one`, 'key'),
      );
    }

    const chosen: string[] = [];
    for (const [index, name] of (profile.upstreams ?? [...served]).entries()) {
      const at = [...path, 'upstreams', index];
      const upstream = ids.get(name);
      if (upstream === undefined) {
        problems.push(document.problem(at, `no such upstream${didYouMean(suggest(name, ids.keys()))}`));
      } else if (chosen.includes(upstream)) {
        problems.push(document.problem(at, 'is in the list already'));
      } else if (served.has(upstream)) {
        chosen.push(upstream);
      } else {
        warnings.push(problemLine(document.problem(at, 'is left out, so the profile goes without it')));
      }
    }

    const names = new Set<string>();
    for (const [from, to] of Object.entries(profile.renames)) {
      if (names.has(to)) problems.push(document.problem([...path, 'renames', from], 'another tool gets this name too'));
      names.add(to);
    }
    const { includeTools, excludeTools, renames } = profile;
    return { id, upstreams: chosen, includeTools, excludeTools, renames };
  });
  return { profiles, problems, warnings };
}
