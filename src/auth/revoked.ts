import { isDeepStrictEqual } from 'node:util';
import type { AuthConfig } from '../config/config.ts';
import { LOCAL } from '../policy/principal.ts';

/**
 * Returns whether a principal may have used credentials that another config does not accept any more, by the principal's key. Its
 * open streams must end, since only a new request is checked.
 *
 * Any removed or changed issuer concerns all principals of tokens: their keys do not show the issuer.
 */
export function revokedBy(before: AuthConfig, after: AuthConfig): (principal: string) => boolean {
  const isOpen = ({ jwt, apiKeys }: AuthConfig) => jwt.length === 0 && apiKeys.length === 0;
  if (isOpen(before)) return (principal) => principal === LOCAL.key && !isOpen(after);
  const accepts = (entry: object, entries: readonly object[]) => entries.some((one) => isDeepStrictEqual(one, entry));
  const keys = before.apiKeys.filter((entry) => !accepts(entry, after.apiKeys)).map(({ name }) => `key:${name}`);
  const hasLostIssuer = before.jwt.some((entry) => !accepts(entry, after.jwt));
  return (principal) => keys.includes(principal) || (hasLostIssuer && principal.startsWith('jwt:'));
}
