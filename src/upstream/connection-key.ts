import type { Isolation } from '../config/config.ts';
import type { Era } from '../protocol/revisions.ts';

/** The properties of an upstream that decide which of its connections serves a user. */
export interface ConnectionScope {
  readonly isolation: Isolation;
  /** The era that the connection speaks. */
  readonly era: Era;
  /** True if each connection is a process of its own. */
  readonly isProcess: boolean;
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

/** Returns the key of the connection that serves all users. */
function sharedKey(era: Era): string {
  return `${era} shared`;
}

const DISCOVERY = 'discovery ';

/**
 * Returns the key of a connection that only reads lists. A modern upstream gets the client capabilities with each request, so
 * one connection reads the lists for all capabilities.
 */
export function discoveryKey(scope: ConnectionScope, capabilityKey: string): string {
  if (isStateless(scope) || scope.isolation === 'shared') return sharedKey(scope.era);
  return `${DISCOVERY}${scope.era}${scope.era === 'modern' ? '' : ` ${capabilityKey}`}`;
}

/** Returns whether a connection with this key only reads lists. */
export function isDiscoveryKey(key: string): boolean {
  return key.startsWith(DISCOVERY);
}

/** Returns whether a connection with this key serves one call and is closed after it. */
export function isCallKey(key: string): boolean {
  return key.startsWith('call ');
}

/** Returns whether a connection with this key serves all users, or only reads lists. */
export function isSharedKey(key: string): boolean {
  return key === sharedKey('legacy') || key === sharedKey('modern') || isDiscoveryKey(key);
}

/** Returns whether connections keep no state: over HTTP a modern upstream treats each request independently. */
function isStateless({ era, isProcess }: ConnectionScope): boolean {
  return era === 'modern' && !isProcess;
}

/**
 * Returns the key of the connection that serves a user. Users with equal keys share a connection.
 *
 * A modern client has no session. With isolation `session`, all requests of its principal to one endpoint share a connection,
 * with any capabilities, because a modern connection sends the capabilities with each request.
 *
 * @param call number of the call, unique, for isolation `call`.
 */
export function connectionKey(scope: ConnectionScope, user: ConnectionUser, call: number): string {
  const { isolation, era } = scope;
  if (isStateless(scope) || isolation === 'shared') return sharedKey(era);
  const { principal, capabilityKey } = user;
  switch (isolation) {
    case 'call':
      return `call ${era} ${call}`;
    case 'principal':
      return era === 'modern'
        ? `principal ${JSON.stringify([era, principal])}`
        : `principal ${JSON.stringify([era, capabilityKey, principal])}`;
    case 'session':
      return era === 'modern' && user.era === 'modern'
        ? `endpoint ${JSON.stringify([user.view, principal])}`
        : `session ${era} ${user.key}`;
  }
}
