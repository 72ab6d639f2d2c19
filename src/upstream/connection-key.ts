import type { Isolation } from '../config/config.ts';
import type { Era } from '../protocol/revisions.ts';

/** What decides which connection of an upstream serves a user. */
export interface ConnectionScope {
  readonly isolation: Isolation;
  /** The era that the connection speaks. */
  readonly era: Era;
  /** Whether each connection is a process of its own. */
  readonly isProcess: boolean;
}

/** The parts of a user that keep its connections apart from those of others. */
export interface ConnectionUser {
  /** Unique among all users. */
  readonly key: string;
  /** The era of the client. */
  readonly era: Era;
  readonly principal: string;
  /** The endpoint it came to. */
  readonly view: string;
  readonly capabilityKey: string;
}

/** A connection that serves everybody. */
function sharedKey(era: Era): string {
  return `${era} shared`;
}

const DISCOVERY = 'discovery ';

/**
 * A connection that only reads lists. Those of a modern upstream depend on what each request declares, so that one
 * connection reads them for clients of all capabilities.
 */
export function discoveryKey(scope: ConnectionScope, capabilityKey: string): string {
  if (isStateless(scope) || scope.isolation === 'shared') return sharedKey(scope.era);
  return `${DISCOVERY}${scope.era}${scope.era === 'modern' ? '' : ` ${capabilityKey}`}`;
}

export function isDiscoveryKey(key: string): boolean {
  return key.startsWith(DISCOVERY);
}

/** Whether a connection with this key is made for one call and ends with it. */
export function isCallKey(key: string): boolean {
  return key.startsWith('call ');
}

/** Whether a connection serves many clients, or none in particular. */
export function isSharedKey(key: string): boolean {
  return key === sharedKey('legacy') || key === sharedKey('modern') || isDiscoveryKey(key);
}

/** Over HTTP a modern upstream gets every request by itself, so that a connection holds nothing that could be mixed up. */
function isStateless({ era, isProcess }: ConnectionScope): boolean {
  return era === 'modern' && !isProcess;
}

/**
 * Names the connection that serves a user: users with equal keys share one.
 *
 * A modern client has no session. Its `session` is all that its principal does at one endpoint, whatever capabilities its
 * requests declare: a modern connection carries those with each request.
 *
 * @param call unique for each call, for isolation `call`.
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
