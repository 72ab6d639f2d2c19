import type { z } from 'zod';
import { clientOf, LOCAL, type Principal, scopesOf } from '../../policy/principal.ts';
import type { describedSchema } from '../schema/access-schema.ts';

/**
 * Returns the principal that a test of the access policy or an operator describes; without any member, a client without credentials. What is
 * not named beside its `claims` is read from them, as from a token.
 */
export function describedPrincipal(described: z.output<typeof describedSchema>): Principal {
  const { key, groups = [], claims = {} } = described;
  const subject = described.subject ?? textOf(claims['sub']);
  const issuer = described.issuer ?? textOf(claims['iss']);
  const client = described.client ?? textOf(clientOf(claims));
  const scopes = described.scopes.length === 0 ? scopesOf(claims) : described.scopes;
  const isNamed = [key, subject, issuer, client, described.claims].some((member) => member !== undefined);
  if (!isNamed && groups.length === 0 && scopes.length === 0) return LOCAL;
  return {
    key: 'described',
    label: subject ?? key ?? client ?? 'described',
    groups,
    scopes,
    ...(key === undefined ? {} : { keyName: key }),
    ...(subject === undefined ? {} : { subject }),
    ...(issuer === undefined ? {} : { issuer }),
    ...(client === undefined ? {} : { clientId: client }),
    ...(described.claims === undefined ? {} : { claims }),
  };
}

function textOf(claim: unknown): string | undefined {
  return typeof claim === 'string' ? claim : undefined;
}
