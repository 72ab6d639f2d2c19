import { hash } from 'node:crypto';
import type { JWTPayload } from 'jose';
import { LIMITS } from '../limits.ts';
import { clientOf, type Principal, scopesOf } from '../policy/principal.ts';

/** The outcome of verifying a token. */
export type TokenVerdict =
  /** The verdict may be used again until `cachedUntilMs`, in ms since the epoch. */
  | { readonly kind: 'principal'; readonly principal: Principal; readonly cachedUntilMs: number }
  /** `scopes`: those that the issuer of the token asks for, if it is known. */
  | { readonly kind: 'invalid'; readonly why: string; readonly scopes?: readonly string[] }
  | { readonly kind: 'lacking'; readonly scopes: readonly string[] }
  /** The token could not be checked and may be valid. */
  | { readonly kind: 'undecided'; readonly why: string };

/**
 * Returns a unique key for (issuer, subject, client). It has a fixed length, because it becomes part of sealed handles.
 */
function principalKey(issuer: string, subject: string, clientId: string | undefined): string {
  return `jwt:${hash('sha256', JSON.stringify([issuer, subject, clientId ?? null]), 'base64url')}`;
}

const UNNAMED = 'has no valid subject or client id';

/** Scheme and host of a URL. Case does not matter in them. */
const ORIGIN = /^https?:\/\/[^/?#@]*(?=[/?#]|$)/i;

/** Returns an audience as it is compared. Only URLs have another form than the text itself: some issuers copy what a user has typed. */
function comparable(audience: string): string {
  return audience.replace(ORIGIN, (origin) => origin.toLowerCase());
}

/**
 * Returns the reason why a token with this `aud` is not for an endpoint, or undefined.
 *
 * @param audiences of the config of the issuer. Empty: the URIs of the endpoint.
 * @see https://modelcontextprotocol.io/specification/2026-07-28/basic/authorization#canonical-server-uri
 */
export function audienceFault(
  aud: unknown,
  { audiences }: { readonly audiences: readonly string[] },
  endpoints: readonly string[],
): string | undefined {
  const named: readonly unknown[] = [aud ?? []].flat();
  if (named.length === 0) return 'no aud';
  const accepted = new Set((audiences.length === 0 ? endpoints : audiences).map(comparable));
  return named.some((one) => typeof one === 'string' && accepted.has(comparable(one))) ? undefined : 'wrong aud';
}

/**
 * Returns the principal that the claims of a token describe, or the reason why there is none. Introspection of a token that a client got for
 * itself may name no subject.
 *
 * @param issuer the configured one.
 * @param leewayMs added to the expiry of the token.
 */
export function principalOf(payload: JWTPayload, issuer: string, leewayMs: number): Principal | string {
  const { sub, exp } = payload;
  const clientId = clientOf(payload);
  if (clientId !== undefined && typeof clientId !== 'string') return UNNAMED;
  if (sub === '' || (sub !== undefined && typeof sub !== 'string')) return UNNAMED;
  const label = sub ?? clientId;
  if (label === undefined || label === '') return UNNAMED;
  const scopes = scopesOf(payload);
  if (scopes.length > LIMITS.tokenScopes) return `has more than ${LIMITS.tokenScopes} scopes`;
  return {
    // No user has the empty subject, so a client that acts for itself is never a user of the same name.
    key: principalKey(issuer, sub ?? '', clientId),
    label,
    issuer,
    ...(sub === undefined ? {} : { subject: sub }),
    ...(clientId === undefined ? {} : { clientId }),
    scopes,
    ...(exp === undefined ? {} : { expiresAtMs: exp * 1_000 + leewayMs }),
    claims: payload,
  };
}

/**
 * Returns a principal that is another one for each set of scopes. The rights of an exchanged token follow from the token that it was got
 * for. So connections, lists and sessions of one must not serve the other.
 *
 * Authorization details (RFC 9396) and the actor (RFC 8693) decide like scopes.
 */
export function withScopedKey(principal: Principal): Principal {
  const { key, scopes, claims = {} } = principal;
  const { authorization_details: details = null, act = null } = claims;
  const parts = [key, [...new Set(scopes)].toSorted(), details, act];
  return { ...principal, key: `jwt:${hash('sha256', JSON.stringify(parts), 'base64url')}`, person: key };
}
