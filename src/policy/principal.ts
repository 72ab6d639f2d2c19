/** The authenticated client. Two principals are the same if their keys are equal. */
export interface Principal {
  /** Stable and unique. Sessions, handles, caches and connections are bound to it. */
  readonly key: string;
  /** For people and logs: a subject, the name of an API key, or `local`. */
  readonly label: string;
  readonly issuer?: string;
  readonly subject?: string;
  readonly clientId?: string;
  readonly scopes: readonly string[];
}

/** The principal of every client if the gateway listens on loopback without authentication. */
export const LOCAL: Principal = { key: 'local', label: 'local', scopes: [] };

/** Returns whether clients need no credentials. Only then may an answer be cached for everyone. */
export function isAnonymous({ key }: Principal): boolean {
  return key === LOCAL.key;
}
