import { claimAt } from './claim-path.ts';
import type { Principal } from './principal.ts';

/** Selects the principals of a grant or a rate. A principal must match each of the lists that are set, by one of its values. */
export interface PrincipalSelector {
  /** True for every principal. Then no list is set. */
  readonly anyone: boolean;
  readonly keys: readonly string[] | undefined;
  readonly groups: readonly string[] | undefined;
  readonly scopes: readonly string[] | undefined;
  readonly subjects: readonly string[] | undefined;
  readonly issuers: readonly string[] | undefined;
  readonly clients: readonly string[] | undefined;
  /** Values by claim: of a grant by its name in the access policy, of a rate by its path in the token. */
  readonly claims: Readonly<Record<string, readonly string[]>>;
}

/** The values of a principal that depend on the access policy. */
interface PrincipalValues {
  readonly groups: readonly string[];
  /** Returns the value of a claim; undefined if the principal has none. */
  readonly claim: (name: string) => unknown;
}

export function isSelected(to: PrincipalSelector, principal: Principal, { groups, claim }: PrincipalValues): boolean {
  return (
    hasAny(to.keys, [principal.keyName]) &&
    hasAny(to.groups, groups) &&
    hasAny(to.scopes, principal.scopes) &&
    hasAny(to.subjects, [principal.subject]) &&
    hasAny(to.issuers, [principal.issuer]) &&
    hasAny(to.clients, [principal.clientId]) &&
    Object.entries(to.claims).every(([name, wanted]) => hasAny(wanted, textsOf(claim(name))))
  );
}

/** Returns whether a rate holds for a principal in these groups. The claims of its selector are named by their paths. */
export function isSelectedByRate(to: PrincipalSelector, principal: Principal, groups: readonly string[]): boolean {
  return isSelected(to, principal, { groups, claim: (path) => claimAt(principal.claims, path) });
}

function hasAny(wanted: readonly string[] | undefined, values: readonly (string | undefined)[]): boolean {
  return wanted === undefined || wanted.some((value) => values.includes(value));
}

/** Returns the values of a claim as texts, as the config names them. */
function textsOf(value: unknown): readonly string[] {
  const values: readonly unknown[] = Array.isArray(value) ? value : [value];
  return values.flatMap((one) => {
    if (typeof one === 'string') return [one];
    return typeof one === 'number' || typeof one === 'boolean' ? [String(one)] : [];
  });
}
