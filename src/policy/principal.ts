type Claims = Readonly<Record<string, unknown>>;

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
  readonly claims?: Claims;
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

/** Returns the scopes of a token: `scope` of RFC 9068, or `scp` of Entra (text) and Okta (list). */
export function scopesOf({ scope, scp }: Claims): string[] {
  const granted = scope ?? scp;
  const texts: unknown[] = Array.isArray(granted) ? granted : typeof granted === 'string' ? granted.split(' ') : [];
  return texts.filter((text) => typeof text === 'string').filter((text) => text !== '');
}

/** The claims that name the client of a token. Many issuers name it in `azp`, as in ID tokens; Entra v1 in `appid`, and Okta in `cid`. */
export const CLIENT_CLAIMS = ['client_id', 'azp', 'appid', 'cid'];

/** Returns the client of a token as its issuer has written it. */
export function clientOf(claims: Claims): unknown {
  const name = CLIENT_CLAIMS.find((claim) => claim in claims);
  return name === undefined ? undefined : claims[name];
}
