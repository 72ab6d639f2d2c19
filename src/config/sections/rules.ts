import type { RoleConfig, RuleConfig } from '../../policy/access-config.ts';
import type { Path } from '../document/problem.ts';

/** A rule with its path in the config file. */
interface PlacedRule {
  readonly rule: RuleConfig;
  readonly path: Path;
}

/** Returns the rules of a role: what it allows, and what it denies. */
export function rulesOf({ name, allow, deny }: RoleConfig): readonly PlacedRule[] {
  const path = ['gateway', 'access', 'roles', name];
  const denied = deny.map((rule, index) => ({ rule, path: [...path, 'deny', index] }));
  return allow === undefined ? denied : [{ rule: allow, path }, ...denied];
}
