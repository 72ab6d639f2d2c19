/** The authenticated client. Two principals are the same if their keys are equal. */
export interface Principal {
  /** Stable and unique. Sessions, handles, caches and connections are bound to it. */
  readonly key: string;
  /**
   * Key of the person or client behind several principals, whose tokens have different scopes. Quotas are counted by it. Default: `key`.
   */
  readonly person?: string;
  /** For people and logs: a subject, the name of an API key, or `local`. */
  readonly label: string;
  readonly issuer?: string;
  readonly subject?: string;
  readonly clientId?: string;
  readonly scopes: readonly string[];
  /** Name of the API key; undefined for tokens. */
  readonly keyName?: string;
  /** Id of the API key. Several keys may have one name, and so one principal. */
  readonly keyId?: string;
  /** The time when the credentials of the request expire, in ms since the epoch. Event streams end then. */
  readonly expiresAtMs?: number;
  /** Groups of the API key. Groups of a token are in its claims. */
  readonly groups?: readonly string[];
  /** Verified claims of the token, as its issuer wrote them. */
  readonly claims?: Readonly<Record<string, unknown>>;
}

/** Returns the key by which quotas of a principal are counted. */
export function personOf({ key, person = key }: Principal): string {
  return person;
}

/** The principal of every client if the gateway listens on loopback without authentication. */
export const LOCAL: Principal = { key: 'local', label: 'local', scopes: [] };

/** Returns whether clients need no credentials. Only then may an answer be cached for everyone. */
export function isAnonymous({ key }: Principal): boolean {
  return key === LOCAL.key;
}

const OPERATOR = 'operator:';

/** Returns the principal of an operator. It is no client: it shares no session, process or cache with one. */
export function operatorPrincipal(name: string): Principal {
  return { key: `${OPERATOR}${name}`, label: `operator ${name}`, scopes: [] };
}

/** Returns whether a principal is an operator, who may use everything: the access policy is for clients. */
export function isOperator({ key }: Principal): boolean {
  return key.startsWith(OPERATOR);
}
