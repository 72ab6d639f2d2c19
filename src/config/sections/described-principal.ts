import type { z } from 'zod';
import { LOCAL, type Principal } from '../../policy/principal.ts';
import type { describedSchema } from '../schema/access-schema.ts';
import type { KnownKey } from './selector-faults.ts';

/** Returns the principal that a test of the access policy or an operator describes; without any member, a client without credentials. */
export function describedPrincipal(described: z.output<typeof describedSchema>): Principal {
  const { key, groups = [], scopes, subject, issuer, client, claims } = described;
  const isNamed = [key, subject, issuer, client, claims].some((member) => member !== undefined);
  if (!isNamed && groups.length === 0 && scopes.length === 0) return LOCAL;
  return {
    key: 'described',
    label: subject ?? key ?? 'described',
    groups,
    scopes,
    ...(key === undefined ? {} : { keyName: key }),
    ...(subject === undefined ? {} : { subject }),
    ...(issuer === undefined ? {} : { issuer }),
    ...(client === undefined ? {} : { clientId: client }),
    ...(claims === undefined ? {} : { claims }),
  };
}

/** Returns the groups that a config gives to the API keys of a name. */
export function groupsOfKey(keys: readonly KnownKey[], name: string | undefined): readonly string[] {
  return keys.flatMap((key) => (key.name === name ? (key.groups ?? []) : []));
}
