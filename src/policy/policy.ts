import { hash } from 'node:crypto';
import { getOrMake, setLatest } from '../map-entries.ts';
import { LIMITS } from '../limits.ts';
import type { AccessConfig, RuleConfig } from './access-config.ts';
import { claimsOf, groupsOf, identityOf } from './identity.ts';
import type { Decision, Rule } from './decide.ts';
import type { Principal } from './principal.ts';
import { type FailureObserver, identityRead, type ListRights, Rights, WiderRights } from './rights.ts';
import { isSelected } from './principal-selector.ts';
import type { ScopesOnDemand } from './scopes-on-demand.ts';
import { canonicalGlob } from '../catalog/resources/uri-form.ts';
import { whenCompiler } from './conditions/when.ts';

interface Role {
  readonly name: string;
  readonly rules: readonly Rule[];
}

/** The compiled access policy: which rules apply to a principal at an endpoint. Immutable. */
export class Policy {
  readonly #config: AccessConfig;
  readonly #onFailed: FailureObserver | undefined;
  readonly #roles: readonly Role[];
  /** True if a role has a weight. */
  readonly hasWeights: boolean;
  readonly #weights = new WeakMap<Principal, number>();
  /** By principal, then by endpoint. */
  readonly #known = new WeakMap<Principal, Map<string, Rights>>();
  /** Rights by key: principals with the same rules share one. */
  readonly #shared = new Map<string, Rights>();
  readonly #onDemand: ScopesOnDemand | undefined;
  /** By principal, then by its own rights. */
  readonly #shown = new WeakMap<Principal, Map<Rights, ListRights>>();
  /** By the keys of all rights in them. */
  readonly #wider = new Map<string, WiderRights>();

  /**
   * @param onFailed gets the rules that fail in lists, once for all principals with the same rights.
   * @param onDemand undefined if no principal may get further scopes.
   * @throws {TypeError} if a condition cannot be compiled, which the config has checked.
   */
  constructor(config: AccessConfig, onFailed?: FailureObserver, onDemand?: ScopesOnDemand) {
    this.#onDemand = onDemand;
    this.#onFailed = onFailed;
    this.#config = config;
    this.hasWeights = config.roles.some(({ weight = 1 }) => weight !== 1);
    const compile = whenCompiler(config.claims);
    const toRule = (rule: RuleConfig, effect: Rule['effect']): Rule => {
      const when = rule.when === undefined ? undefined : compile(rule.when);
      if (typeof when === 'string') throw new TypeError(`rule "${rule.name}": when ${when}`);
      return {
        config: rule,
        effect,
        when,
        canonicalResources: rule.resources?.map((glob) => canonicalGlob(glob)),
      };
    };
    this.#roles = config.roles.map(({ name, allow, deny }) => {
      const allowed = allow === undefined ? [] : [toRule(allow, 'allow')];
      return { name, rules: [...deny.map((rule) => toRule(rule, 'deny')), ...allowed] };
    });
  }

  /** Returns the rights of a principal at an endpoint. Computed once for each principal object. */
  rightsOf(principal: Principal, endpoint: string): Rights {
    const ofPrincipal = getOrMake(this.#known, principal, () => new Map());
    return getOrMake(ofPrincipal, endpoint, () => this.#rightsOf(principal, endpoint));
  }

  /**
   * Returns the scopes, of those that a principal lacks and may get, that change a denial: the first one that suffices, else all. Returns undefined if
   * they do not.
   */
  lackingScopes(
    principal: Principal,
    endpoint: string,
    decide: (rights: Rights) => Decision,
  ): readonly string[] | undefined {
    if (this.#onDemand === undefined) return undefined;
    // Many scopes change nothing about an endpoint, and a decision may read long arguments.
    const decided = new Set([this.rightsOf(principal, endpoint)]);
    const allows = (widened: Principal) => {
      const rights = this.rightsOf(widened, endpoint);
      if (decided.has(rights)) return false;
      decided.add(rights);
      return decide(rights).effect !== 'deny';
    };
    return this.#onDemand.widened(principal).find((one) => allows(one.principal))?.scopes;
  }

  /** Returns the rights by which lists for a principal are made. @param own its rights at the endpoint. */
  shownRights(own: Rights, principal: Principal): ListRights {
    if (this.#onDemand === undefined) return own;
    const ofPrincipal = getOrMake(this.#shown, principal, () => new Map());
    return getOrMake(ofPrincipal, own, () => this.#shownRights(own, principal));
  }

  #shownRights(own: Rights, principal: Principal): ListRights {
    const widened = this.#onDemand?.widened(principal) ?? [];
    const rights = widened.map((one) => this.rightsOf(one.principal, own.endpoint));
    // Rights that were made again are other objects with the same key.
    const wider = new Map(rights.map((one) => [one.key, one]));
    wider.delete(own.key);
    if (wider.size === 0) return own;
    // Up to 18 keys, each with the claims of its principal.
    const key = hash('sha256', JSON.stringify([own.key, ...wider.keys()]), 'base64url');
    const sharedKey = `${own.endpoint} ${key}`;
    const shown = this.#wider.get(sharedKey) ?? new WiderRights(key, own, [...wider.values()]);
    setLatest(this.#wider, sharedKey, shown, LIMITS.sharedRights);
    return shown;
  }

  /** Returns the greatest weight of the roles of a principal, at any endpoint. Computed once for each principal object. */
  weightOf(principal: Principal): number {
    return getOrMake(this.#weights, principal, () => {
      const { names } = this.#rolesOf(principal);
      const given = this.#config.roles.filter(({ name }) => names.has(name)).map((role) => role.weight ?? 1);
      return Math.max(1, ...given);
    });
  }

  /** Returns the names of the roles of a principal, with its claims and groups. @param endpoint undefined for the roles at any endpoint. */
  #rolesOf(principal: Principal, endpoint?: string) {
    const { claims, groupClaims, grants } = this.#config;
    const values = claimsOf(principal, claims);
    const groups = groupsOf(principal, values, groupClaims);
    const given = grants.filter(
      (grant) =>
        (endpoint === undefined || (grant.endpoints?.includes(endpoint) ?? true)) &&
        isSelected(grant, principal, { groups, claim: (name) => values[name] }),
    );
    return { values, groups, names: new Set(given.flatMap(({ roles }) => roles)) };
  }

  #rightsOf(principal: Principal, endpoint: string): Rights {
    const { values, groups, names } = this.#rolesOf(principal, endpoint);
    const granted = this.#roles.filter(({ name }) => names.has(name));
    const rules = granted.flatMap((role) => role.rules).toSorted((a, b) => b.effect.localeCompare(a.effect));
    const identity = identityOf(principal, values, groups);
    const key = JSON.stringify([granted.map(({ name }) => name), identityRead(rules, identity)]);
    const sharedKey = `${endpoint} ${key}`;
    const rights =
      this.#shared.get(sharedKey) ?? new Rights(key, endpoint, identity, rules, this.#onFailed, this.#config.external);
    setLatest(this.#shared, sharedKey, rights, LIMITS.sharedRights);
    return rights;
  }
}
