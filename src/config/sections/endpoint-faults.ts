import type { AccessConfig, RoleConfig } from '../../policy/access-config.ts';
import type { Document } from '../document/document.ts';
import { type Path, problemLine } from '../document/problem.ts';
import type { GatewaySettings } from '../schema/gateway-schema.ts';
import { rulesOf } from './rules.ts';

/** Returns whether one of these upstreams is at one of these endpoints. Undefined is all of them; endpoints are ids of views. */
export type Meet = (upstreams: readonly string[] | undefined, endpoints: readonly string[] | undefined) => boolean;

/**
 * Finds the upstreams of endpoints as the file has them, disabled ones included. So a rule has no warning while one is out of use.
 *
 * @param upstreams the key of every upstream in the file by its id.
 */
export function meetOf(profiles: GatewaySettings['profiles'], upstreams: ReadonlyMap<string, string>): Meet {
  const atProfiles = new Map(
    Object.entries(profiles).map(([id, profile]) => [id, profile.upstreams && new Set(profile.upstreams)] as const),
  );
  const isAt = (id: string, endpoint: string) => {
    if (endpoint === '' || endpoint === id) return true;
    if (!atProfiles.has(endpoint)) return false;
    const names = atProfiles.get(endpoint);
    return names === undefined || names.has(id) || names.has(upstreams.get(id) ?? id);
  };
  return (some, endpoints) =>
    some === undefined ||
    endpoints === undefined ||
    some.some((id) => endpoints.some((endpoint) => isAt(id, endpoint)));
}

/** Returns a warning for each grant, role and rule whose upstreams are at none of the endpoints that it is for. */
export function endpointFaults(document: Document, { roles, grants }: AccessConfig, meet: Meet): readonly string[] {
  const warnings: string[] = [];
  const warn = (path: Path, message: string) => warnings.push(problemLine(document.problem(path, message, 'key')));
  const byName = new Map(roles.map((role) => [role.name, role]));
  // A weight counts at every endpoint.
  const isAt = (role: RoleConfig, endpoints: readonly string[] | undefined) =>
    role.weight !== undefined || rulesOf(role).some(({ rule }) => meet(rule.upstreams, endpoints));

  for (const [index, { roles: names, endpoints = [''] }] of grants.entries()) {
    const path = ['gateway', 'access', 'grants', index];
    const given = names.map((name) => byName.get(name)).filter((role) => role !== undefined);
    if (!given.some((role) => isAt(role, endpoints))) {
      const message = 'no role of this grant has an upstream at these endpoints; name others here or in the roles';
      warn([...path, 'endpoints'], message);
      continue;
    }
    for (const [i, role] of given.entries())
      if (!isAt(role, endpoints))
        warn([...path, 'roles', i], 'no upstream of this role is at the endpoints of the grant');
    for (const [i, endpoint] of endpoints.entries())
      if (!given.some((role) => isAt(role, [endpoint])))
        warn([...path, 'endpoints', i], 'no role of this grant has an upstream at this endpoint');
  }

  for (const role of roles) {
    const path = ['gateway', 'access', 'roles', role.name];
    const giving = grants.filter((grant) => grant.roles.includes(role.name));
    if (giving.length === 0) warn(path, 'no grant gives this role, so it never matches');
    for (const { rule, path } of giving.some(({ endpoints }) => isAt(role, endpoints)) ? rulesOf(role) : [])
      if (!giving.some(({ endpoints }) => meet(rule.upstreams, endpoints)))
        warn([...path, 'upstreams'], 'no grant gives this role at an endpoint with these upstreams');
  }
  return warnings;
}
