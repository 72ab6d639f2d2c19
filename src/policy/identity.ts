import type { AccessConfig, ClaimConfig } from './access-config.ts';
import { claimAt } from './claim-path.ts';
import type { Principal } from './principal.ts';
import type { Variables } from './conditions/when.ts';

/** Returns a value if it has the declared type; a text as a list of one. A value of another type counts as absent. */
function typed(value: unknown, type: ClaimConfig['type']): unknown {
  if (type === 'list') {
    if (typeof value === 'string') return [value];
    return Array.isArray(value) && value.every((item) => typeof item === 'string') ? value : undefined;
  }
  return typeof value === type ? value : undefined;
}

/** Returns the declared claims of a principal by name. Absent ones are left out. */
export function claimsOf({ claims }: Principal, declared: readonly ClaimConfig[]): Readonly<Record<string, unknown>> {
  const found = declared.flatMap(({ name, path, type }) => {
    const value = typed(claimAt(claims, path), type);
    return value === undefined ? [] : [[name, value] as const];
  });
  return Object.fromEntries(found);
}

/** A declared claim of a principal. */
export interface ReceivedClaim {
  readonly name: string;
  /** As the token has it; undefined if it lacks it. */
  readonly value: unknown;
  /** False if its value has another type than the declared one, so that conditions do not have it. */
  readonly isUsable: boolean;
}

export function receivedClaims({ claims }: Principal, declared: readonly ClaimConfig[]): readonly ReceivedClaim[] {
  return declared.map(({ name, path, type }) => {
    const value = claimAt(claims, path);
    return { name, value, isUsable: typed(value, type) !== undefined };
  });
}

/** Returns the groups of a principal: those of its API key, and the values of the claims that hold groups. */
export function groupsOf(
  { groups = [] }: Principal,
  claims: Readonly<Record<string, unknown>>,
  groupClaims: readonly string[],
): readonly string[] {
  const values = groupClaims.flatMap((name): readonly unknown[] => {
    const value = claims[name];
    return Array.isArray(value) ? value : [value];
  });
  return [...new Set([...groups, ...values.flatMap((value) => (typeof value === 'string' ? [value] : []))])];
}

/** Returns the groups of a principal under an access policy; without one, those of its API key. */
export function groupsUnder(
  access: Pick<AccessConfig, 'claims' | 'groupClaims'> | undefined,
  principal: Principal,
): readonly string[] {
  if (access === undefined) return principal.groups ?? [];
  return groupsOf(principal, claimsOf(principal, access.claims), access.groupClaims);
}

/** Returns the variables of conditions that say who asks. */
export function identityOf(
  { label, issuer, subject, clientId, keyName, scopes }: Principal,
  claims: Readonly<Record<string, unknown>>,
  groups: readonly string[],
): Pick<Variables, 'principal' | 'claims' | 'client'> {
  const given = Object.entries({ label, issuer, subject, clientId, keyName, scopes, groups });
  const principal = Object.fromEntries(given.filter(([, value]) => value !== undefined));
  return { principal, claims, client: clientId === undefined ? {} : { id: clientId } };
}
