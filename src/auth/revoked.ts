import { isDeepStrictEqual } from 'node:util';
import { isAuthRequired } from '../config/auth-required.ts';
import type { AuthConfig, IntrospectionConfig, JwtIssuerConfig } from '../config/values/config.ts';
import { LOCAL, type Principal } from '../policy/principal.ts';

/**
 * Returns whether a principal may have used credentials that another config does not accept any more. Its open streams must end, since
 * only a new request is checked. API keys are compared by their table instead, which has those of files too.
 */
export function revokedBy(before: AuthConfig, after: AuthConfig): (principal: Principal) => boolean {
  if (!isAuthRequired(before)) return ({ key }) => key === LOCAL.key && isAuthRequired(after);
  const rulesOf = ({ jwt, introspection = [] }: AuthConfig) => [...jwt, ...introspection];
  const kept = rulesOf(after);
  const lost = new Set(
    rulesOf(before)
      .filter((entry) => !kept.some((one) => acceptAlike(one, entry)))
      .map(({ issuer }) => issuer),
  );
  return ({ issuer }) => issuer !== undefined && lost.has(issuer);
}

type IssuerConfig = JwtIssuerConfig | IntrospectionConfig;

/** Returns whether two entries accept the same tokens. They may tell clients to request other scopes. */
export function acceptAlike(a: IssuerConfig, b: IssuerConfig): boolean {
  return isDeepStrictEqual({ ...a, ...UNTOLD }, { ...b, ...UNTOLD });
}

const UNTOLD = { advertisedScopes: undefined, scopesOnDemand: undefined } as const;
