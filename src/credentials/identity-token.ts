import { randomUUID } from 'node:crypto';
import { SignJWT } from 'jose';
import type { IdentityAuth } from '../config/values/credentials.ts';
import type { Principal } from '../policy/principal.ts';
import type { Acquired } from './credential-cache.ts';
import type { IdentityKeys } from './identity-keys.ts';

/**
 * Returns the subject of a principal: `sub` of its token, or the name of its API key after `key:`. Subjects of two issuers may be equal, and `sub_id` tells
 * them apart.
 *
 * @see https://www.rfc-editor.org/rfc/rfc9493#name-issuer-and-subject-identifi
 */
function subjectOf({ key, label, issuer, subject, clientId, keyName }: Principal): Readonly<Record<string, unknown>> {
  if (issuer !== undefined) {
    const sub = subject ?? clientId ?? label;
    return {
      sub,
      sub_id: { format: 'iss_sub', iss: issuer, sub },
      ...(clientId === undefined ? {} : { client_id: clientId }),
    };
  }
  const sub = keyName === undefined ? key : `key:${keyName}`;
  return { sub, sub_id: { format: 'opaque', id: sub } };
}

/** Signs a token that says who calls an upstream. */
export async function identityToken(
  { audience, lifetimeMs }: IdentityAuth,
  principal: Principal,
  keys: IdentityKeys,
): Promise<Acquired> {
  const nowMs = Date.now();
  const { kid, key } = await keys.signing(nowMs, lifetimeMs);
  const now = Math.floor(nowMs / 1_000);
  const token = await new SignJWT(subjectOf(principal))
    .setProtectedHeader({ alg: 'ES256', typ: 'JWT', kid })
    .setIssuer(keys.issuer)
    .setAudience(audience)
    .setIssuedAt(now)
    .setExpirationTime(now + Math.floor(lifetimeMs / 1_000))
    .setJti(randomUUID())
    .sign(key);
  return { credential: { headers: ['authorization', `Bearer ${token}`] }, lifeMs: lifetimeMs };
}
