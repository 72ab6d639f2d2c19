/** Who authenticated. Two principals are the same when their keys are equal. */
export interface Principal {
  /** Stable and unique: what sessions, handles, caches and connections are bound to. */
  readonly key: string;
  /** For people and logs: a subject, the name of an API key, or `local`. */
  readonly label: string;
  readonly issuer?: string;
  readonly subject?: string;
  readonly clientId?: string;
  readonly scopes: readonly string[];
}

/** The only principal of a gateway that listens on loopback and asks nobody for credentials. */
export const LOCAL: Principal = { key: 'local', label: 'local', scopes: [] };

/** Whether nobody was asked for credentials. Only then may an answer be cached for everybody. */
export function isAnonymous({ key }: Principal): boolean {
  return key === LOCAL.key;
}
