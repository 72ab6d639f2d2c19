import type { PrincipalSelector } from './principal-selector.ts';

/** The types of claims that rules may read. A `list` is a list of texts; a text in its place is a list of one. */
export const CLAIM_TYPES = ['string', 'list', 'number', 'boolean'] as const;
export type ClaimType = (typeof CLAIM_TYPES)[number];

/** A claim that rules may read. */
export interface ClaimConfig {
  readonly name: string;
  /** The path of the claim in the token: member names with dots between them, or one name with dots. */
  readonly path: string;
  readonly type: ClaimType;
}

/** Hints of a tool about its behaviour, as `annotations` of MCP declare them. */
export const HINTS = ['readOnly', 'destructive', 'idempotent', 'openWorld'] as const;
export type Hints = Readonly<Record<(typeof HINTS)[number], boolean>>;

/** A place in the config file. Counts from 1. */
export interface RulePlace {
  readonly file: string;
  readonly line: number;
}

/**
 * Items that a role allows or denies. A rule that names none of tools, prompts and resources is about all three; one that names some
 * is about those only.
 */
export interface RuleConfig {
  /** As in `reader`, or `reader deny 2`. Unique. */
  readonly name: string;
  readonly place: RulePlace;
  /** Ids of upstreams; undefined for all. */
  readonly upstreams: readonly string[] | undefined;
  /** Globs over the upstream's own names. */
  readonly tools: readonly string[] | undefined;
  readonly prompts: readonly string[] | undefined;
  /** Globs over the upstream's own URIs. */
  readonly resources: readonly string[] | undefined;
  /** Hints that a tool must have. They concern no prompts and resources. */
  readonly hints: Readonly<Partial<Hints>>;
  /** A condition in CEL; see {@link whenCompiler}. */
  readonly when: string | undefined;
}

/** Rights that grants give. A deny rule takes away what any role of the same principal allows. */
export interface RoleConfig {
  readonly name: string;
  /** Undefined for a role that only denies. */
  readonly allow: RuleConfig | undefined;
  readonly deny: readonly RuleConfig[];
  /** The weight by which its principals share pools; the greatest of a principal's roles holds. Undefined: 1. */
  readonly weight?: number | undefined;
}

/** Gives roles to principals. */
export interface GrantConfig extends PrincipalSelector {
  readonly roles: readonly string[];
  /** Ids of views; undefined for all endpoints. */
  readonly endpoints: readonly string[] | undefined;
}

/** A decision point outside of the gateway, which may deny what the rules allow. */
export interface ExternalConfig {
  readonly url: string;
  readonly headers: Readonly<Record<string, string>>;
  /** The longest time from a request to the decision about it. */
  readonly timeoutMs: number;
  /** Ids of the upstreams whose requests it decides about; undefined for all. */
  readonly upstreams: readonly string[] | undefined;
  /** Sends the arguments of calls too. */
  readonly arguments: boolean;
}

/** The tool or prompt of a test of the policy, by the upstream's own name. The tests themselves run when the config is loaded. */
export interface TestedItem {
  readonly place: RulePlace;
  readonly kind: 'tool' | 'prompt';
  readonly upstream: string;
  readonly name: string;
}

/** The access policy as the config file has it: plain data, checked. */
export interface AccessConfig {
  readonly claims: readonly ClaimConfig[];
  /** Names of the claims whose values are groups. */
  readonly groupClaims: readonly string[];
  readonly roles: readonly RoleConfig[];
  readonly grants: readonly GrantConfig[];
  readonly external?: ExternalConfig | undefined;
  /** The tools and prompts of its tests. A test about one that does not exist cannot fail. */
  readonly tested?: readonly TestedItem[] | undefined;
}

/** Returns a policy without places in its file, which another line above it moves. */
export function withoutPlaces({ roles, tested, ...access }: AccessConfig): object {
  const withoutPlace = (rule: RuleConfig | undefined) => rule && { ...rule, place: '' };
  return {
    ...access,
    roles: roles.map((role) => ({ ...role, allow: withoutPlace(role.allow), deny: role.deny.map(withoutPlace) })),
    tested: tested?.map((item) => ({ ...item, place: '' })),
  };
}
