import { principalOf } from '../../auth/token-claims.ts';
import { describedSchema } from '../../config/schema/access-schema.ts';
import { didYouMean, suggest } from '../../config/document/suggest.ts';
import { describedPrincipal } from '../../config/sections/described-principal.ts';
import { isRecord } from '../../json/record.ts';
import { CLIENT_CLAIMS, type Principal } from '../../policy/principal.ts';

/** Members of the payload of a token, one of which says who calls. Descriptions have none of them. */
const TOKEN_MEMBERS = ['sub', ...CLIENT_CLAIMS];

/** Returns the principal of a token as the edge does, by its payload, or the reason why there is none. */
function ofToken(payload: Readonly<Record<string, unknown>>): Principal | string {
  const { iss } = payload;
  const principal = principalOf(payload, typeof iss === 'string' ? iss : '', 0);
  return typeof principal === 'string' ? `the token ${principal}` : { ...principal, key: 'described' };
}

function unknownKey(key: string): string {
  const known = Object.keys(describedSchema.shape);
  const near = suggest(key, known);
  const hint = near === undefined ? `; known are ${known.join(', ')}, and the payload of a token` : didYouMean(near);
  return `unknown key ${JSON.stringify(key)}${hint}`;
}

/** Returns the groups of the API keys of a name, or the reason why there are none to return. */
export type GroupsOfKey = (name: string) => readonly string[] | string;

/**
 * Reads the description of a principal: the payload of a token, or a map with `key`, `groups`, `scopes`, `subject`, `issuer`, `client` and
 * `claims`. A key without `groups` has those that it has now. Returns the reason if it is neither, or there is no such key.
 */
export function readPrincipal(value: unknown, groupsOfKey: GroupsOfKey): Principal | string {
  if (isRecord(value) && TOKEN_MEMBERS.some((member) => member in value)) {
    return ofToken(value);
  }
  const checked = describedSchema.safeParse(value);
  if (!checked.success) {
    return checked.error.issues
      .map((issue) => {
        const text = issue.code === 'unrecognized_keys' ? issue.keys.map(unknownKey).join('; ') : issue.message;
        return [issue.path.join('.'), text].filter(Boolean).join(': ');
      })
      .join('; ');
  }
  const { key } = checked.data;
  if (key === undefined || checked.data.groups !== undefined) return describedPrincipal(checked.data);
  const groups = groupsOfKey(key);
  return typeof groups === 'string' ? groups : describedPrincipal({ ...checked.data, groups: [...groups] });
}
