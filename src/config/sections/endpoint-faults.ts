import type { AccessConfig, RoleConfig } from '../../policy/access-config.ts';
import type { Faults } from '../document/faults.ts';
import type { Names } from './names.ts';
import { rulesOf } from './rules.ts';

/** Adds a warning for each grant, role and rule whose upstreams are at none of the endpoints that it is for. */
export function judgeEndpoints({ roles, grants }: AccessConfig, names: Names, faults: Faults): void {
  const byName = new Map(roles.map((role) => [role.name, role]));
  // A weight counts at every endpoint.
  const isAt = (role: RoleConfig, endpoints: readonly string[] | undefined) =>
    role.weight !== undefined || rulesOf(role).some(({ rule }) => names.meet(rule.upstreams, endpoints));

  for (const [index, { roles: named, endpoints = [''] }] of grants.entries()) {
    const path = ['gateway', 'access', 'grants', index];
    const given = named.map((name) => byName.get(name)).filter((role) => role !== undefined);
    if (!given.some((role) => isAt(role, endpoints))) {
      const message = 'no role of this grant has an upstream at these endpoints; name others here or in the roles';
      faults.warn([...path, 'endpoints'], message, 'key');
      continue;
    }
    for (const [i, role] of given.entries())
      if (!isAt(role, endpoints))
        faults.warn([...path, 'roles', i], 'no upstream of this role is at the endpoints of the grant', 'key');
    for (const [i, endpoint] of endpoints.entries())
      if (!given.some((role) => isAt(role, [endpoint])))
        faults.warn([...path, 'endpoints', i], 'no role of this grant has an upstream at this endpoint', 'key');
  }

  for (const role of roles) {
    const path = ['gateway', 'access', 'roles', role.name];
    const giving = grants.filter((grant) => grant.roles.includes(role.name));
    if (giving.length === 0) faults.warn(path, 'no grant gives this role, so it never matches', 'key');
    for (const { rule, path } of giving.some(({ endpoints }) => isAt(role, endpoints)) ? rulesOf(role) : [])
      if (!giving.some(({ endpoints }) => names.meet(rule.upstreams, endpoints)))
        faults.warn([...path, 'upstreams'], 'no grant gives this role at an endpoint with these upstreams', 'key');
  }
}
