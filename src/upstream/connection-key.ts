import type { Isolation } from '../config/config.ts';
import type { Era } from '../protocol/revisions.ts';

/** The credentials that an upstream gets: those of the gateway, or those of the principal that a connection serves. */
export type CredentialSource = 'gateway' | 'principal';

/** The properties of an upstream that decide which of its connections serves a user. */
export interface ConnectionScope {
  readonly isolation: Isolation;
  /** The era that the connection speaks. */
  readonly era: Era;
  /** True if each connection is a process of its own. */
  readonly isProcess: boolean;
  readonly credentials: CredentialSource;
}

/** The audience of connections and offers that are for all principals. */
export const EVERYBODY = '';

/** Returns the audience of what an upstream sends for a principal: the key of the principal, or {@link EVERYBODY}. */
export function audienceOf(credentials: CredentialSource, principal: string): string {
  return credentials === 'principal' ? principal : EVERYBODY;
}

/** The properties of a user by which its connections are separated from those of other users. */
export interface ConnectionUser {
  /** Unique among all users. */
  readonly key: string;
  /** The era of the client. */
  readonly era: Era;
  readonly principal: string;
  /** The endpoint that it uses. */
  readonly view: string;
  readonly capabilityKey: string;
}

/**
 * The kinds of connections. `shared` serves all users of an audience, `principal` and `endpoint` those of one principal,
 * `session` one user, `call` one call, and `discovery` none: it only reads lists.
 */
type Kind = 'shared' | 'principal' | 'endpoint' | 'session' | 'call' | 'discovery';

/** Returns a key that is equal only for equal kinds and parts. */
function keyOf(kind: Kind, ...parts: readonly (string | number)[]): string {
  return `${kind} ${JSON.stringify(parts)}`;
}

function isOfKind(key: string, kind: Kind): boolean {
  return key.startsWith(`${kind} `);
}

/**
 * Returns the key of a connection that only reads lists. A modern upstream gets the client capabilities with each request, so
 * one connection reads the lists for all capabilities.
 *
 * @param audience from {@link audienceOf}.
 */
export function discoveryKey(scope: ConnectionScope, capabilityKey: string, audience: string): string {
  const { era } = scope;
  if (isStateless(scope) || scope.isolation === 'shared') return keyOf('shared', era, audience);
  return keyOf('discovery', era, era === 'modern' ? '' : capabilityKey, audience);
}

/** Returns whether a connection with this key only reads lists. */
export function isDiscoveryKey(key: string): boolean {
  return isOfKind(key, 'discovery');
}

/** Returns whether a connection with this key serves one call and is closed after it. */
export function isCallKey(key: string): boolean {
  return isOfKind(key, 'call');
}

/** Returns whether a connection with this key serves all users of its audience, or only reads lists. */
export function isSharedKey(key: string): boolean {
  return isOfKind(key, 'shared') || isDiscoveryKey(key);
}

/** Returns whether connections keep no state: over HTTP a modern upstream treats each request independently. */
function isStateless({ era, isProcess }: ConnectionScope): boolean {
  return era === 'modern' && !isProcess;
}

/**
 * Returns the key of the connection that serves a user. Users with equal keys share a connection. With credentials of the
 * principal, no two principals have equal keys.
 *
 * A modern client has no session. With isolation `session`, all requests of its principal to one endpoint share a connection,
 * with any capabilities, because a modern connection sends the capabilities with each request.
 *
 * @param call number of the call, unique, for isolation `call`.
 */
export function connectionKey(scope: ConnectionScope, user: ConnectionUser, call: number): string {
  const { isolation, era, credentials } = scope;
  const { principal, capabilityKey } = user;
  if (isStateless(scope) || isolation === 'shared') return keyOf('shared', era, audienceOf(credentials, principal));
  switch (isolation) {
    case 'call':
      return keyOf('call', era, call, principal);
    case 'principal':
      return keyOf('principal', era, era === 'modern' ? '' : capabilityKey, principal);
    case 'session':
      return era === 'modern' && user.era === 'modern'
        ? keyOf('endpoint', user.view, principal)
        : keyOf('session', era, user.key, principal);
  }
}
