import type { Principal } from './principal.ts';
import { getOrMake } from '../map-entries.ts';

/** A scope that clients may get when a request needs it. */
export interface ScopeOnDemand {
  /** As the tokens of its issuer spell it. */
  readonly scope: string;
  /** As clients request it. */
  readonly advertised: string;
}

/** Returns scopes with their spelling in requests. @param written as the config file has them: a text for one that is spelled alike. */
export function spelledScopes(written: readonly (string | ScopeOnDemand)[]): readonly ScopeOnDemand[] {
  return written.map((one) => (typeof one === 'string' ? { scope: one, advertised: one } : one));
}

/** The scopes in the entry of an issuer. */
export interface IssuerScopes {
  readonly issuer: string;
  /** The scopes that clients are told to request, if the issuer spells them otherwise than in tokens. */
  readonly advertisedScopes?: readonly string[] | undefined;
  readonly scopesOnDemand?: readonly ScopeOnDemand[] | undefined;
}

/** A principal with scopes that its token lacks and that it may get. */
export interface WidenedPrincipal {
  readonly scopes: readonly string[];
  readonly principal: Principal;
}

/**
 * The scope that is never named: clients request the scopes of a challenge, and whether to use refresh tokens is the
 * client's decision.
 */
const NEVER_REQUESTED = 'offline_access';

/** Returns the scopes that a challenge or the metadata may name. */
export function askable(scopes: readonly string[]): readonly string[] {
  return scopes.filter((scope) => scope !== NEVER_REQUESTED);
}

/** The scopes that principals may get when a request needs them. Immutable. */
export class ScopesOnDemand {
  readonly #issuers: ReadonlyMap<string, IssuerScopes>;
  readonly #widened = new WeakMap<Principal, readonly WidenedPrincipal[]>();

  constructor(issuers: readonly IssuerScopes[]) {
    this.#issuers = new Map(issuers.map((one) => [one.issuer, one]));
  }

  /** Returns the principal with each scope that it lacks, in the order of the config, then with all of them. Computed once for each principal object. */
  widened(principal: Principal): readonly WidenedPrincipal[] {
    return getOrMake(this.#widened, principal, () => {
      const { scopesOnDemand = [] } = this.#issuers.get(principal.issuer ?? '') ?? {};
      const lacking = scopesOnDemand.map(({ scope }) => scope).filter((scope) => !principal.scopes.includes(scope));
      const sets = [...lacking.map((scope) => [scope]), ...(lacking.length > 1 ? [lacking] : [])];
      return sets.map((scopes) => ({
        scopes,
        principal: { ...principal, scopes: [...principal.scopes, ...scopes] },
      }));
    });
  }

  /**
   * Returns the scopes of a token with which a principal gets the ones that it lacks and keeps its own, as clients request them. Where the
   * issuer spells scopes otherwise in tokens, the own ones are those that its entry names.
   */
  requested({ issuer, scopes }: Principal, lacking: readonly string[]): readonly string[] {
    const { scopesOnDemand = [], advertisedScopes } = this.#issuers.get(issuer ?? '') ?? {};
    const spelled = new Map(scopesOnDemand.map(({ scope, advertised }) => [scope, advertised]));
    // Without another spelling, the advertised scopes are only those to begin with.
    const isSpelledAlike = advertisedScopes === undefined || scopesOnDemand.every(isAlike);
    const own = isSpelledAlike
      ? scopes
      : scopes.filter((scope) => spelled.has(scope) || advertisedScopes.includes(scope));
    const named = [...own, ...lacking].map((scope) => spelled.get(scope) ?? scope);
    return askable([...new Set([...(advertisedScopes ?? []), ...named])]);
  }
}

/** Returns whether clients request a scope as tokens spell it. */
function isAlike({ scope, advertised }: ScopeOnDemand): boolean {
  return scope === advertised;
}

/** Returns the scopes of the issuers that have some on demand, without their other settings. */
export function scopesOnDemandOf(auth: {
  readonly jwt: readonly IssuerScopes[];
  readonly introspection?: readonly IssuerScopes[];
}): readonly IssuerScopes[] {
  return [...auth.jwt, ...(auth.introspection ?? [])].flatMap(({ issuer, advertisedScopes, scopesOnDemand = [] }) =>
    scopesOnDemand.length === 0 ? [] : [{ issuer, advertisedScopes, scopesOnDemand }],
  );
}
