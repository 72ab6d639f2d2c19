import { hash } from 'node:crypto';
import type { ProtectedHeaderParameters } from 'jose';
import type { Logger } from 'pino';
import type { AuthConfig } from '../config/config.ts';
import { LOCAL, type Principal } from '../policy/principal.ts';
import { ApiKeys } from './api-key.ts';
import { credentialsOf } from './bearer.ts';
import { challengeText } from './challenge.ts';
import { type Issuer, issuersOf, jwtHeader, type JwtVerdict, verifyJwt } from './jwt.ts';
import { metadataUrl } from './metadata.ts';
import { VerifiedTokens } from './verified-tokens.ts';

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
   */
  authenticate(headers: Authorization, endpoint: string): Promise<AuthVerdict>;
  /** Returns the principal of a request if it is known without waiting, as for most requests; else undefined. */
  known(headers: Authorization, endpoint: string): Principal | undefined;
}

interface Authorization {
  readonly authorization: readonly string[];
}

interface AuthenticatorDeps {
  readonly log: Logger;
  /** Wall clock in ms since the epoch. */
  readonly now?: () => number;
  /** Monotonic, ms. */
  readonly clock?: () => number;
}

const INVALID = 'the token is not valid here; get a new one';

/**
 * Creates the authenticator. Without configured credentials every client is {@link LOCAL}; the config then allows
 * loopback addresses only.
 *
 * @throws {TypeError} if the config allows unsafe algorithms, URLs or keys.
 */
export function createAuthenticator(config: AuthConfig, deps: AuthenticatorDeps): Authenticator {
  if (config.jwt.length === 0 && config.apiKeys.length === 0) {
    return { authenticate: async () => ({ kind: 'principal', principal: LOCAL }), known: () => LOCAL };
  }
  const { log, now = Date.now, clock = () => performance.now() } = deps;
  const apiKeys = new ApiKeys(config.apiKeys);
  const issuers = issuersOf(config.jwt, { log, clock });
  const verified = new VerifiedTokens();
  const metadata = (endpoint: string) => (issuers.size === 0 ? undefined : metadataUrl(endpoint));
  const common = sharedScopes([...issuers.values()]);

  function refuse(status: 400 | 401, why: string, endpoint: string, issuer?: Issuer): AuthRefusal {
    const challenge = challengeText({
      metadata: metadata(endpoint),
      error: status === 400 ? 'invalid_request' : 'invalid_token',
      description: status === 400 ? 'send one Authorization header: Bearer and the token' : INVALID,
      scopes: issuer?.config.requiredScopes ?? common,
    });
    return { kind: 'refused', status, challenge, why };
  }

  async function verify(token: string, header: ProtectedHeaderParameters, endpoint: string): Promise<JwtVerdict> {
    try {
      return await verifyJwt(token, header, issuers, endpoint, now());
    } catch (thrown) {
      log.error({ err: thrown }, 'token cannot be verified');
      return { kind: 'undecided', why: 'verification failed' };
    }
  }

  /** Returns the cache key of a request. It covers the whole header, so a known header is not even parsed. */
  const keyOf = (header: string, endpoint: string) => `${hash('sha256', header)} ${endpoint}`;

  return {
    known: ({ authorization }, endpoint) => {
      const [only] = authorization;
      return only === undefined || authorization.length > 1 ? undefined : verified.find(keyOf(only, endpoint), now());
    },
    authenticate: async ({ authorization }, endpoint) => {
      const nowMs = now();
      const [only = ''] = authorization;
      const key = keyOf(only, endpoint);
      const known = authorization.length === 1 ? verified.find(key, nowMs) : undefined;
      if (known !== undefined) return { kind: 'principal', principal: known };

      const credentials = credentialsOf(authorization);
      if (credentials.kind === 'malformed') return refuse(400, credentials.why, endpoint);
      if (credentials.kind === 'none') {
        const challenge = challengeText({ metadata: metadata(endpoint), scopes: common });
        return { kind: 'refused', status: 401, challenge, why: credentials.why };
      }
      const { token } = credentials;
      const header = jwtHeader(token);
      if (header === undefined) {
        const principal = apiKeys.find(hash('sha256', token));
        if (principal === undefined) return refuse(401, 'unknown API key', endpoint);
        verified.add(key, principal, nowMs, Infinity);
        return { kind: 'principal', principal };
      }
      const verdict = await verify(token, header, endpoint);
      switch (verdict.kind) {
        case 'principal':
          verified.add(key, verdict.principal, nowMs, verdict.expiresAtMs);
          return { kind: 'principal', principal: verdict.principal };
        case 'invalid':
          return refuse(401, verdict.why, endpoint, verdict.issuer);
        case 'lacking': {
          const challenge = challengeText({
            metadata: metadata(endpoint),
            error: 'insufficient_scope',
            description: 'the token lacks a scope that this gateway asks for',
            scopes: verdict.scopes,
          });
          return { kind: 'refused', status: 403, challenge, why: 'insufficient scope' };
        }
        case 'undecided':
          return { kind: 'refused', status: 503, challenge: undefined, why: verdict.why };
      }
    },
  };
}

/**
 * Returns the scopes that all issuers require. A challenge without a token names only these: an issuer would refuse a
 * scope that only another issuer has.
 */
function sharedScopes(issuers: readonly Issuer[]): readonly string[] {
  const [first, ...rest] = issuers;
  const scopes = first?.config.requiredScopes ?? [];
  return scopes.filter((scope) => rest.every(({ config }) => config.requiredScopes.includes(scope)));
}
