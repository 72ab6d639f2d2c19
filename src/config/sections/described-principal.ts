import { z } from 'zod';
import type { Principal } from '../../policy/principal.ts';
import { describedSchema } from '../schema/access-schema.ts';

/** The members of a token that say who its user is. */
const token = z.looseObject({
  iss: z.string().optional(),
  sub: z.string(),
  scope: z.string().optional(),
  scp: z.union([z.string(), z.array(z.string())]).optional(),
  client_id: z.string().optional(),
  azp: z.string().optional(),
});

/** Returns the principal that a test or an operator describes: as the tests of the access policy do. */
export function describedPrincipal(described: z.output<typeof describedSchema>): Principal {
  const { key, groups, scopes, subject, issuer, client, claims } = described;
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

/** Returns the description of a principal by the payload of its token; undefined if the value is no such payload. */
function ofToken(value: unknown): z.input<typeof describedSchema> | undefined {
  const { data } = token.safeParse(value);
  if (data === undefined) return undefined;
  const { iss, sub, scope = '', scp = [], client_id: client = data.azp } = data;
  const scopes = [...scope.split(' '), ...(typeof scp === 'string' ? scp.split(' ') : scp)];
  return {
    subject: sub,
    scopes: scopes.filter((one) => one !== ''),
    claims: data,
    ...(iss === undefined ? {} : { issuer: iss }),
    ...(client === undefined ? {} : { client }),
  };
}

/** Returns the groups of the API keys of a name, or the reason why there are none to return. */
export type GroupsOfKey = (name: string) => readonly string[] | string;

/**
 * Reads the description of a principal: the payload of a token, or a map with `key`, `groups`, `scopes`, `subject`, `issuer`, `client` and
 * `claims`. A key without `groups` has those that it has now. Returns the reason if it is neither, or there is no such key.
 */
export function readPrincipal(value: unknown, groupsOfKey: GroupsOfKey): Principal | string {
  const checked = describedSchema.safeParse(ofToken(value) ?? value);
  if (!checked.success) {
    return checked.error.issues
      .map(({ path, message }) => [path.join('.'), message].filter(Boolean).join(': '))
      .join('; ');
  }
  const { key } = checked.data;
  const isGiven = typeof value === 'object' && value !== null && 'groups' in value;
  if (key === undefined || isGiven) return describedPrincipal(checked.data);
  const groups = groupsOfKey(key);
  return typeof groups === 'string' ? groups : describedPrincipal({ ...checked.data, groups: [...groups] });
}
