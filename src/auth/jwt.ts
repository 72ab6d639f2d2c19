import { isDeepStrictEqual } from 'node:util';
import {
  type CryptoKey,
  decodeJwt,
  decodeProtectedHeader,
  errors,
  type JWTPayload,
  jwtVerify,
  type ProtectedHeaderParameters,
} from 'jose';
import type { JwtIssuerConfig } from '../config/values/config.ts';
import { advertisedScopes } from './challenge.ts';
import { audienceFault, principalOf, type TokenVerdict } from './token-claims.ts';
import { Jwks, type JwksDeps } from './jwks.ts';
import type { KeySet } from './jwks-download.ts';

/**
 * Accepted values of `typ`, which may also be absent. ID tokens and logout tokens of the same issuer have another `typ`
 * or audience.
 */
const TYPES = new Set(['jwt', 'at+jwt']);
const WRONG_TYPE = 'wrong type of token';

const DEFAULT_LEEWAY_MS = 30_000;
const MAX_KID_CHARS = 256;
const COMPACT = /^[A-Za-z0-9_-]+\.[A-Za-z0-9_-]*\.[A-Za-z0-9_-]*$/;

/** An issuer whose tokens we accept. */
export interface Issuer {
  readonly config: JwtIssuerConfig;
  readonly jwks: Jwks;
}

/**
 * Creates the issuers.
 *
 * @param before issuers of another config. Those with equal rules stay. Those with other rules keep the keys of an equal URL.
 */
export function issuersOf(
  configs: readonly JwtIssuerConfig[],
  deps: JwksDeps,
  before?: ReadonlyMap<string, Issuer>,
): ReadonlyMap<string, Issuer> {
  return new Map(
    configs.map((config) => {
      const known = before?.get(config.issuer);
      if (known !== undefined && isDeepStrictEqual(known.config, config)) return [config.issuer, known];
      // The issuer may be unable to send its keys again just now.
      const jwks = known?.config.jwksUrl === config.jwksUrl ? known.jwks : new Jwks(config.jwksUrl, deps);
      return [config.issuer, { config, jwks }];
    }),
  );
}

/**
 * Returns the header of a token in the form of a JWT, or undefined for any other token. A token in that form is never
 * looked up as an API key.
 */
export function jwtHeader(token: string): ProtectedHeaderParameters | undefined {
  if (!COMPACT.test(token)) return undefined;
  try {
    return decodeProtectedHeader(token);
  } catch {
    return undefined;
  }
}

/** Returns the media type of a token without `application/`, in lower case. RFC 7515 lets issuers leave the prefix out. */
function typeOf(typ: string): string {
  return typ.toLowerCase().replace(/^application\//, '');
}

function typeFault({ typ }: ProtectedHeaderParameters, types: readonly string[] | undefined): string | undefined {
  const isText = typeof typ === 'string';
  // An issuer with a rule of its own marks its access tokens, so a token without a mark is another one.
  if (types !== undefined) return isText && types.some((one) => typeOf(one) === typeOf(typ)) ? undefined : WRONG_TYPE;
  return typ === undefined || (isText && TYPES.has(typeOf(typ))) ? undefined : WRONG_TYPE;
}

function headerFault({ crit, kid }: ProtectedHeaderParameters): string | undefined {
  if (crit !== undefined) return 'critical header parameter';
  if (kid !== undefined && (typeof kid !== 'string' || kid.length > MAX_KID_CHARS)) return 'malformed key id';
  return undefined;
}

function claimFault(error: errors.JOSEError): string {
  if (error instanceof errors.JWTExpired) return 'expired';
  if (error instanceof errors.JWTClaimValidationFailed) {
    if (!['iss', 'aud', 'exp', 'nbf', 'sub'].includes(error.claim)) return 'wrong claim';
    return `${error.reason === 'missing' ? 'no' : 'wrong'} ${error.claim}`;
  }
  return error instanceof errors.JWSSignatureVerificationFailed ? 'bad signature' : 'malformed token';
}

/** Returns `iss` of a token that was not verified; undefined for none. */
export function unverifiedIssuer(token: string): string | undefined {
  try {
    return decodeJwt(token).iss;
  } catch {
    return undefined;
  }
}

/** Returns whether a token has expired that was not verified. */
function isPast(token: string, leewayMs: number, nowMs: number): boolean {
  const { exp } = decodeJwt(token);
  return typeof exp === 'number' && exp * 1_000 + leewayMs <= nowMs;
}

/**
 * Returns the claims, verified with the first key that matches the signature. @throws {errors.JOSEError} if the token
 * is invalid.
 */
async function verifiedClaims(
  token: string,
  keys: readonly CryptoKey[],
  options: Parameters<typeof jwtVerify>[2],
): Promise<JWTPayload> {
  let failed = new errors.JWSSignatureVerificationFailed();
  for (const key of keys) {
    try {
      return (await jwtVerify(token, key, options)).payload;
    } catch (error) {
      if (!(error instanceof errors.JWSSignatureVerificationFailed)) throw error;
      failed = error;
    }
  }
  throw failed;
}

/**
 * Verifies a JWT for one endpoint.
 *
 * @param endpoints the URIs of the endpoint.
 * @param tried the keys that did not fit the signature.
 * @throws if the failure is not the token's, such as a key of the issuer that is too weak to use.
 * @see https://www.rfc-editor.org/rfc/rfc9068#section-4
 */
export async function verifyJwt(
  token: string,
  header: ProtectedHeaderParameters,
  issuers: ReadonlyMap<string, Issuer>,
  endpoints: readonly string[],
  nowMs: number,
  tried?: KeySet,
): Promise<TokenVerdict> {
  const fault = headerFault(header);
  if (fault !== undefined) return { kind: 'invalid', why: fault };
  const issuer = issuers.get(unverifiedIssuer(token) ?? '');
  if (issuer === undefined) return { kind: 'invalid', why: 'unknown issuer' };
  const { config, jwks } = issuer;
  const { algorithms, leewayMs = DEFAULT_LEEWAY_MS } = config;
  const scopes = advertisedScopes(config);
  const wrongType = typeFault(header, config.types);
  if (wrongType !== undefined) return { kind: 'invalid', why: wrongType, scopes };
  const { alg, kid } = header;
  if (alg === undefined || !algorithms.includes(alg)) return { kind: 'invalid', why: 'algorithm not accepted', scopes };

  const found = await jwks.find(alg, kid, tried);
  if (found.kind === 'unknown')
    return { kind: 'invalid', why: tried === undefined ? 'unknown key' : 'bad signature', scopes };
  if (found.kind === 'unreachable') return { kind: 'undecided', why: 'issuer unreachable' };
  if (found.kind === 'withheld') {
    // Its client needs another token in any case, and would wait for as long as others cause the fetches.
    if (isPast(token, leewayMs, nowMs)) return { kind: 'invalid', why: 'expired', scopes };
    return { kind: 'undecided', why: 'key not looked up yet' };
  }

  let payload: JWTPayload;
  try {
    payload = await verifiedClaims(token, found.keys, {
      algorithms: [...algorithms],
      issuer: config.issuer,
      requiredClaims: ['exp', 'sub', 'aud'],
      clockTolerance: leewayMs / 1_000,
      currentDate: new Date(nowMs),
    });
  } catch (error) {
    // Without a key id, a bad signature may be one by a key that is not known yet.
    const isNew = kid === undefined && error instanceof errors.JWSSignatureVerificationFailed;
    if (isNew && tried === undefined) return await verifyJwt(token, header, issuers, endpoints, nowMs, found.set);
    if (error instanceof errors.JOSEError) return { kind: 'invalid', why: claimFault(error), scopes };
    throw error;
  }
  const wrongAudience = audienceFault(payload.aud, config, endpoints);
  if (wrongAudience !== undefined) return { kind: 'invalid', why: wrongAudience, scopes };
  if ('cnf' in payload) return { kind: 'invalid', why: 'sender-constrained token', scopes };
  const principal = principalOf(payload, config.issuer, leewayMs);
  if (typeof principal === 'string') return { kind: 'invalid', why: principal, scopes };
  if (!config.requiredScopes.every((scope) => principal.scopes.includes(scope))) {
    return { kind: 'lacking', scopes };
  }
  return { kind: 'principal', principal, cachedUntilMs: (payload.exp ?? 0) * 1_000 };
}
