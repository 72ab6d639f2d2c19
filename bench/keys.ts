import { createHash, randomBytes } from 'node:crypto';

/** The principals of a load: their credentials, and the settings with which a gateway accepts them. */
export interface Principals {
  readonly authorizations: readonly string[];
  readonly settings: object;
}

/** Makes principals with an API key each, so that no bound per principal has to be raised. */
export function makePrincipals(count: number): Principals {
  const keys = Array.from({ length: count }, () => randomBytes(32).toString('base64url'));
  const apiKeys = keys.map((key, index) => {
    return { name: `client-${index}`, sha256: createHash('sha256').update(key).digest('hex') };
  });
  return { authorizations: keys.map((key) => `Bearer ${key}`), settings: { auth: { apiKeys } } };
}
