import { hash } from 'node:crypto';
import type { ProtectedHeaderParameters } from 'jose';
import type { Logger } from 'pino';
import { isAuthRequired } from '../config/auth-required.ts';
import type { AuthConfig, IntrospectionConfig, JwtIssuerConfig } from '../config/values/config.ts';
import { Egress } from '../egress/egress.ts';
import type { LimitName } from '../limits.ts';
import { LOCAL, type Principal } from '../policy/principal.ts';
import { API_KEY_PREFIX, ApiKeys } from './api-key.ts';
import { credentialsOf } from './bearer.ts';
import { advertisedScopes, challengeText } from './challenge.ts';
import { type Introspection, introspectionsOf } from './introspection.ts';
import { type Issuer, issuersOf, jwtHeader, unverifiedIssuer, verifyJwt } from './jwt.ts';
import { metadataUrl } from './metadata.ts';
import { acceptAlike } from './revoked.ts';
import { type TokenVerdict, withScopedKey } from './token-claims.ts';
import { HeaderKeys, VerifiedTokens } from './verified-tokens.ts';

interface AuthRefusal {
  readonly kind: 'refused';
  /** 503: the credentials cannot be checked now. With 401, a client would discard a valid token. */
  readonly status: 400 | 401 | 403 | 503;
  /** The value of `WWW-Authenticate`. */
  readonly challenge: string | undefined;
  /** For logs and metrics: one of a few constant texts, without content of the request. */
  readonly why: string;
}

export type AuthVerdict = { readonly kind: 'principal'; readonly principal: Principal } | AuthRefusal;

/** Authenticates requests. Every request has a principal or is refused. */
export interface Authenticator {
  /**
   * Authenticates a request.
   *
   * @param headers every `Authorization` header of the request, from its raw headers.
   * @param endpoint canonical URI of the requested endpoint, which is the audience that a token must have.
   * @param address of the client, for bounds on expensive checks.
   * @param alsoFor other URIs of the endpoint, which a token may name instead.
   */
  authenticate(
    headers: Authorization,
    endpoint: string,
    address?: string,
    alsoFor?: readonly string[],
  ): Promise<AuthVerdict>;
  /**
   * Returns the principal of a request if it is known without waiting, as for most requests; else undefined.
   *
   * @param connection of the client. Its next request with the same header costs less.
   */
  known(headers: Authorization, endpoint: string, connection?: object): Principal | undefined;
}

export interface ConfigAuthenticator extends Authenticator {
  /**
   * Returns whether the credentials of an authenticated principal are not accepted any more. They have expired, their API key or
   * issuer was removed, or the issuer has other rules than those that accepted the token. Its streams and new sessions must end then. False for an API
   * key that was never known here: another replica has authenticated the principal.
   */
  isOver(principal: Principal): boolean;
  /**
   * Returns an authenticated principal with the rights that its credentials have now. The same object if they have not changed, as always for a
   * token: another token has other rights.
   */
  currentOf(principal: Principal): Principal;
  /**
   * Returns the value of `WWW-Authenticate` for a principal whose credentials are not accepted any more.
   *
   * @param endpoint canonical URI of the requested endpoint.
   */
  challengeOf(principal: Principal, endpoint: string): string;
  /**
   * Lets another authenticator decide from now on, also about requests that are being authenticated. It gets the verified tokens that it accepts.
   *
   * @param present returns the authenticator that decides, also after further changes. So this one keeps none of those between them in memory.
   */
  replaceBy(next: ConfigAuthenticator, present: () => ConfigAuthenticator): void;
  /** The issuers that are not of use now, each with its failure in words. */
  readonly failures: readonly string[];
  /** The parts with which the authenticator of another config goes on; undefined if there are none. */
  readonly parts: AuthenticatorParts | undefined;
}

/** The parts of an authenticator that remember something. */
interface AuthenticatorParts {
  readonly issuers: ReadonlyMap<string, Issuer>;
  readonly introspections: readonly Introspection[];
  readonly verified: VerifiedTokens;
}

interface Authorization {
  readonly authorization: readonly string[];
}

interface AuthenticatorDeps {
  readonly log: Logger;
  /** Sends the requests to issuers. Default: direct connections. */
  readonly egress?: Egress | undefined;
  /** Returns the API keys at this moment. Default: those of the config. */
  readonly keys?: () => ApiKeys;
  /** Runs when an API key is used, about once a minute for each key in use. @param nowMs ms since the epoch. */
  readonly onKeyUsed?: (principal: Principal, nowMs: number) => void;
  /** Runs when credentials were verified, at least once a minute while they are in use. @param token undefined for an API key. */
  readonly onVerified?: (principal: Principal, token: string | undefined) => void;
  /** Returns whether upstreams get tokens in exchange for those of callers, so that tokens with different scopes are different principals. */
  readonly exchangesTokens?: (() => boolean) | undefined;
  /** Wall clock in ms since the epoch. */
  readonly now?: () => number;
  /** Monotonic, ms. */
  readonly clock?: () => number;
  /** Called when a bound on the tokens that are remembered removes one. */
  readonly onLimit?: (limit: LimitName) => void;
}

/** A token that was checked, at this time (ms since the epoch). */
interface CheckedToken {
  readonly token: string;
  readonly cacheKey: string;
  readonly nowMs: number;
  readonly endpoint: string;
}

/** The rules of the issuers that have accepted the tokens of principals, in any authenticator of this process. */
const acceptedBy = new WeakMap<Principal, IssuerRule>();

type IssuerRule = JwtIssuerConfig | IntrospectionConfig;

/** Shortest time between lines about tokens that cannot be verified. Anybody can send such a token if the issuer has a key that cannot be used. */
const ERROR_MS = 30_000;

const INVALID = 'the token is not valid here; get a new one';

/**
 * Creates the authenticator. Without configured credentials every client is {@link LOCAL}; the config then allows
 * loopback addresses only.
 *
 * @param before the authenticator that it may replace. Issuers with equal rules stay, so that a reload costs no keys and no questions about tokens.
 */
export function createAuthenticator(
  config: AuthConfig,
  deps: AuthenticatorDeps,
  before?: ConfigAuthenticator,
): ConfigAuthenticator {
  return isAuthRequired(config) ? new CredentialAuthenticator(config, deps, before) : openAuthenticator();
}

/** The authenticator of a gateway that needs credentials: API keys, and tokens of issuers. */
class CredentialAuthenticator implements ConfigAuthenticator {
  readonly parts: AuthenticatorParts;
  readonly #deps: AuthenticatorDeps;
  readonly #now: () => number;
  readonly #clock: () => number;
  readonly #keys: () => ApiKeys;
  readonly #rules: readonly IssuerRule[];
  readonly #sharedScopes: readonly string[];
  readonly #headerKeys = new HeaderKeys();
  #nextErrorMs = -Infinity;
  #successor: (() => ConfigAuthenticator) | undefined;

  constructor(config: AuthConfig, deps: AuthenticatorDeps, before: ConfigAuthenticator | undefined) {
    const { log, egress = new Egress(), now = Date.now, clock = () => performance.now(), onLimit } = deps;
    const configured = new ApiKeys(config.apiKeys);
    // The one before is not kept: with it, all earlier ones would live as long as this one.
    this.parts = {
      issuers: issuersOf(config.jwt, { log, egress, clock }, before?.parts?.issuers),
      introspections: introspectionsOf(
        config.introspection,
        { log, egress, clock, onLimit },
        before?.parts?.introspections,
      ),
      verified: new VerifiedTokens(onLimit),
    };
    this.#deps = deps;
    this.#now = now;
    this.#clock = clock;
    this.#keys = deps.keys ?? (() => configured);
    this.#rules = [...this.parts.issuers.values(), ...this.parts.introspections].map((issuer) => issuer.config);
    this.#sharedScopes = sharedScopes(this.#rules);
  }

  known({ authorization }: Authorization, endpoint: string, connection?: object): Principal | undefined {
    const [only] = authorization;
    if (only === undefined || authorization.length > 1 || this.#successor !== undefined) return undefined;
    return this.#cached(this.#headerKeys.of(only, endpoint, connection), this.#now());
  }

  async authenticate(
    headers: Authorization,
    endpoint: string,
    address = '',
    alsoFor: readonly string[] = [],
  ): Promise<AuthVerdict> {
    const verdict = await this.#decide(headers, endpoint, address, alsoFor);
    // A config that arrives while a token is verified decides about it.
    return (await this.#successor?.().authenticate(headers, endpoint, address, alsoFor)) ?? verdict;
  }

  currentOf(principal: Principal): Principal {
    return principal.keyId === undefined ? principal : this.#keys().currentOf(principal);
  }

  isOver(principal: Principal): boolean {
    const { key, keyId, issuer, expiresAtMs } = principal;
    if (key === LOCAL.key) return true;
    // The entry of a key decides, because a rotation changes its expiry.
    if (keyId !== undefined && this.#keys().isOver(principal, this.#now())) return true;
    if (this.#now() >= (expiresAtMs ?? Infinity)) return true;
    if (issuer === undefined) return false;
    const [rule, accepting] = [this.#ruleOf(issuer), acceptedBy.get(principal)];
    // The issuer of a principal that another replica has authenticated has to be configured here.
    return rule === undefined || (accepting !== undefined && accepting !== rule && !acceptAlike(accepting, rule));
  }

  challengeOf({ issuer }: Principal, endpoint: string): string {
    const rule = this.#ruleOf(issuer);
    return this.#challengeTo(401, endpoint, rule && advertisedScopes(rule));
  }

  replaceBy(next: ConfigAuthenticator, present: () => ConfigAuthenticator): void {
    this.#successor = present;
    // Not shared: a request that is still being verified here adds a token by rules that hold no more.
    next.parts?.verified.addFrom(this.parts.verified, (principal) => !next.isOver(principal));
  }

  get failures(): readonly string[] {
    const ofKeys = [...this.parts.issuers.values()].map(({ jwks }) => jwks.failure);
    const all = [...ofKeys, ...this.parts.introspections.map((one) => one.failure)];
    return all.filter((failure) => failure !== undefined);
  }

  #ruleOf(issuer: string | undefined): IssuerRule | undefined {
    return this.#rules.find((rule) => rule.issuer === issuer);
  }

  #metadata(endpoint: string): string | undefined {
    return this.#rules.length === 0 ? undefined : metadataUrl(endpoint);
  }

  #challengeTo(status: 400 | 401, endpoint: string, scopes = this.#sharedScopes): string {
    return challengeText({
      metadata: this.#metadata(endpoint),
      error: status === 400 ? 'invalid_request' : 'invalid_token',
      description: status === 400 ? 'send one Authorization header: Bearer and the token' : INVALID,
      scopes,
    });
  }

  #refuse(status: 400 | 401, why: string, endpoint: string, scopes?: readonly string[]): AuthRefusal {
    return { kind: 'refused', status, challenge: this.#challengeTo(status, endpoint, scopes), why };
  }

  async #decide(
    { authorization }: Authorization,
    endpoint: string,
    address: string,
    alsoFor: readonly string[],
  ): Promise<AuthVerdict> {
    const nowMs = this.#now();
    const [only = ''] = authorization;
    const cacheKey = this.#headerKeys.of(only, endpoint);
    const known = authorization.length === 1 ? this.#cached(cacheKey, nowMs) : undefined;
    if (known !== undefined) return { kind: 'principal', principal: known };

    const credentials = credentialsOf(authorization);
    if (credentials.kind === 'malformed') return this.#refuse(400, credentials.why, endpoint);
    if (credentials.kind === 'none') {
      const challenge = challengeText({ metadata: this.#metadata(endpoint), scopes: this.#sharedScopes });
      return { kind: 'refused', status: 401, challenge, why: credentials.why };
    }
    const { token } = credentials;
    const header = jwtHeader(token);
    const principal = header === undefined ? this.#keys().find(hash('sha256', token), nowMs) : undefined;
    if (principal !== undefined) {
      this.#deps.onKeyUsed?.(principal, nowMs);
      this.#deps.onVerified?.(principal, undefined);
      this.parts.verified.add(cacheKey, principal, nowMs, principal.expiresAtMs ?? Infinity);
      return { kind: 'principal', principal };
    }
    const asked = this.#askedAbout(token, header !== undefined);
    const endpoints = [endpoint, ...alsoFor];
    const checked = { token, cacheKey, nowMs, endpoint };
    if (asked !== undefined) return this.#verdictOf(await asked.verify(token, endpoints, address, nowMs), checked);
    if (header === undefined) {
      return this.#refuse(401, `${this.#keys().endOf(hash('sha256', token)) ?? 'unknown'} API key`, endpoint);
    }
    return this.#verdictOf(await this.#verify(token, header, endpoints), checked);
  }

  /** Returns the cached principal. A removed or changed API key is none: the lookup in its table decides. */
  #cached(cacheKey: string, nowMs: number): Principal | undefined {
    const principal = this.parts.verified.find(cacheKey, nowMs);
    return principal?.keyId === undefined || this.#keys().isCurrent(principal) ? principal : undefined;
  }

  /** Returns the issuer that is asked about a token; undefined for none. A token is shown to one issuer at most, a key that is not accepted any more to none. */
  #askedAbout(token: string, isJwt: boolean): Introspection | undefined {
    if (isJwt) {
      const issuer = unverifiedIssuer(token);
      return this.parts.introspections.find(({ config }) => config.issuer === issuer);
    }
    if (token.startsWith(API_KEY_PREFIX) || this.#keys().endOf(hash('sha256', token)) !== undefined) return undefined;
    const [longest] = this.parts.introspections
      .filter(({ config }) => token.startsWith(config.tokenPrefix))
      .toSorted((a, b) => b.config.tokenPrefix.length - a.config.tokenPrefix.length);
    return longest;
  }

  async #verify(token: string, header: ProtectedHeaderParameters, endpoints: readonly string[]): Promise<TokenVerdict> {
    try {
      return await verifyJwt(token, header, this.parts.issuers, endpoints, this.#now());
    } catch (thrown) {
      if (this.#clock() >= this.#nextErrorMs) {
        this.#nextErrorMs = this.#clock() + ERROR_MS;
        this.#deps.log.error({ err: thrown }, 'token cannot be verified');
      }
      return { kind: 'undecided', why: 'verification failed' };
    }
  }

  /** Returns the verdict about a verified token. */
  #verdictOf(verdict: TokenVerdict, { token, cacheKey, nowMs, endpoint }: CheckedToken): AuthVerdict {
    switch (verdict.kind) {
      case 'principal': {
        const { exchangesTokens, onVerified } = this.#deps;
        const principal = exchangesTokens?.() === true ? withScopedKey(verdict.principal) : verdict.principal;
        onVerified?.(principal, token);
        this.parts.verified.add(cacheKey, principal, nowMs, verdict.cachedUntilMs);
        const rule = this.#ruleOf(principal.issuer);
        if (rule !== undefined) acceptedBy.set(principal, rule);
        return { kind: 'principal', principal };
      }
      case 'invalid':
        return this.#refuse(401, verdict.why, endpoint, verdict.scopes);
      case 'lacking': {
        const challenge = challengeText({
          metadata: this.#metadata(endpoint),
          error: 'insufficient_scope',
          description: 'the token lacks a scope that this gateway asks for',
          scopes: verdict.scopes,
        });
        return { kind: 'refused', status: 403, challenge, why: 'insufficient scope' };
      }
      case 'undecided':
        return { kind: 'refused', status: 503, challenge: undefined, why: verdict.why };
    }
  }
}

/** Returns the authenticator of a gateway without credentials. */
function openAuthenticator(): ConfigAuthenticator {
  let successor: (() => ConfigAuthenticator) | undefined;
  return {
    authenticate: async (...request) =>
      successor === undefined ? { kind: 'principal', principal: LOCAL } : await successor().authenticate(...request),
    known: () => (successor === undefined ? LOCAL : undefined),
    currentOf: (principal) => principal,
    isOver: ({ key }) => key !== LOCAL.key,
    challengeOf: () => challengeText({ metadata: undefined, error: 'invalid_token', scopes: [] }),
    replaceBy: (_next, present) => {
      successor = present;
    },
    failures: [],
    parts: undefined,
  };
}

/**
 * Returns the scopes that clients are told to request of all issuers. A challenge without a token names only these: an
 * issuer would refuse a scope that only another issuer has.
 */
function sharedScopes(rules: readonly (JwtIssuerConfig | IntrospectionConfig)[]): readonly string[] {
  const [first = [], ...rest] = rules.map(advertisedScopes);
  return first.filter((scope) => rest.every((scopes) => scopes.includes(scope)));
}
