import type { ProfileConfig } from '../values/config.ts';
import type { UpstreamConfig } from '../values/upstream-config.ts';
import type { Faults } from '../document/faults.ts';
import type { GatewaySettings } from '../schema/gateway-schema.ts';
import type { Names } from './names.ts';

/** Reads the profiles and checks them against the upstreams that are served. */
export function readProfiles(
  settings: GatewaySettings,
  upstreams: readonly UpstreamConfig[],
  names: Names,
  faults: Faults,
): readonly ProfileConfig[] {
  const served = new Set(upstreams.map(({ id }) => id));
  return Object.entries(settings.profiles).map(([id, profile]) => {
    const path = ['gateway', 'profiles', id];
    if (names.upstreams.get(id) === id)
      faults.refuse(path, `/mcp/${id} is the endpoint of the upstream of that name; rename one`, 'key');

    const chosen: string[] = [];
    for (const [index, name] of (profile.upstreams ?? [...served]).entries()) {
      const at = [...path, 'upstreams', index];
      const upstream = faults.resolve(at, 'upstream', name, names.upstreams);
      if (upstream === undefined) continue;
      if (chosen.includes(upstream)) faults.refuse(at, 'is in the list already');
      else if (served.has(upstream)) chosen.push(upstream);
      else faults.warn(at, 'is left out, so the profile goes without it');
    }

    const renamed = new Set<string>();
    for (const [from, to] of Object.entries(profile.renames)) {
      if (renamed.has(to)) faults.refuse([...path, 'renames', from], 'another tool gets this name too');
      renamed.add(to);
    }
    const { includeTools, excludeTools, renames } = profile;
    return { id, upstreams: chosen, includeTools, excludeTools, renames };
  });
}
