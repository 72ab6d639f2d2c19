import type { Isolation } from '../config/values/upstream-config.ts';
import type { Era } from '../protocol/revisions.ts';
import type { LinkPlace, LinkPurpose, LinkUser } from './link/link.ts';

/** The credentials that an upstream gets: those of the gateway, or those of the principal that a connection serves. */
export type CredentialSource = 'gateway' | 'principal';

/** The properties of an upstream that decide which of its connections serves a user. */
export interface ConnectionScope {
  readonly isolation: Isolation;
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

/** The properties of an upstream that decide which clients share a state there. */
interface StatefulUpstream {
  readonly config: { readonly isolation: Isolation };
  readonly isProcess: boolean;
  servingEra(client: Era): Era | undefined;
}

/** The properties of a user by which its connections are separated from those of other users. */
export type ConnectionUser = Omit<LinkUser, 'clientCapabilities' | 'closed'> & Partial<Pick<LinkUser, 'closed'>>;

/**
 * The kinds of connections. `shared` serves all users of an audience, `principal` and `endpoint` those of one principal, `session` one
 * user, `call` one call. `discovery` serves none: it only reads lists.
 */
type Kind = 'shared' | 'principal' | 'endpoint' | 'session' | 'call' | 'discovery';

const PURPOSES: Readonly<Record<Kind, LinkPurpose>> = {
  shared: 'all',
  principal: 'clients',
  endpoint: 'clients',
  session: 'clients',
  call: 'call',
  discovery: 'discovery',
};

/** Returns a place whose key is equal only for equal kinds and parts. */
function placeOf(kind: Kind, ...parts: readonly (string | number)[]): LinkPlace {
  return { key: `${kind} ${JSON.stringify(parts)}`, purpose: PURPOSES[kind] };
}

/**
 * Returns the place of a connection that only reads lists. A modern upstream gets the client capabilities with each request, so
 * one connection reads the lists for all capabilities.
 *
 * @param audience from {@link audienceOf}.
 */
export function discoveryPlace(scope: ConnectionScope, capabilityKey: string, audience: string): LinkPlace {
  const { era } = scope;
  if (isStateless(scope) || scope.isolation === 'shared') return placeOf('shared', era, audience);
  return placeOf('discovery', era, era === 'modern' ? '' : capabilityKey, audience);
}

/** Returns whether connections keep no state: over HTTP a modern upstream treats each request independently. */
function isStateless({ era, isProcess }: ConnectionScope): boolean {
  return era === 'modern' && !isProcess;
}

/** The clients of a principal that share the state of a connection: all of them, or those at one endpoint. `none`: no client has a state. */
export type StateScope = 'principal' | 'endpoint' | 'none';

/**
 * Returns which clients of this era share a state at an upstream. A remote upstream may keep one as long as no probe has decided its era.
 *
 * @see connectionPlace
 */
export function stateScopeOf(upstream: StatefulUpstream, client: Era): StateScope {
  const { isProcess } = upstream;
  const { isolation } = upstream.config;
  const isModern = upstream.servingEra(client) === 'modern';
  if (isolation === 'shared' || isolation === 'call' || (isModern && !isProcess)) return 'none';
  return isolation === 'principal' ? 'principal' : 'endpoint';
}

/** Returns whether each call of clients of this era has a connection of its own. False while the era of a remote upstream is not known. */
export function isPerCall(upstream: StatefulUpstream, client: Era): boolean {
  return upstream.config.isolation === 'call' && (upstream.isProcess || upstream.servingEra(client) === 'legacy');
}

/**
 * Returns the place of the connection that serves a user. Users with equal keys share a connection. With credentials of the
 * principal, no two principals have equal keys.
 *
 * A modern client has no session. With isolation `session`, all requests of its principal to one endpoint share a connection, with any
 * capabilities. A modern connection sends the capabilities with each request.
 *
 * @param call number of the call, unique, for isolation `call`.
 */
export function connectionPlace(scope: ConnectionScope, user: ConnectionUser, call: number): LinkPlace {
  const { isolation, era, credentials } = scope;
  const { principal, capabilityKey, closed } = user;
  if (isStateless(scope) || isolation === 'shared') return placeOf('shared', era, audienceOf(credentials, principal));
  switch (isolation) {
    case 'call':
      return { ...placeOf('call', era, call, principal), closed };
    case 'principal':
      return placeOf('principal', era, era === 'modern' ? '' : capabilityKey, principal);
    case 'session':
      return era === 'modern' && user.era === 'modern'
        ? placeOf('endpoint', user.view, principal)
        : { ...placeOf('session', era, user.key, principal), closed };
  }
}
