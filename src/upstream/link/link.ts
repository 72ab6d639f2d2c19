import { RawObject } from '../../json/json.ts';
import type { KeptMap } from '../../json/kept-text.ts';
import type { Era } from '../../protocol/revisions.ts';
import type { Severity } from '../../protocol/severity.ts';
import type { Connection } from '../rpc/connection.ts';
import type { ServerHello } from './initialize.ts';
import type { UpstreamSubscription } from './upstream-subscription.ts';

/** The capabilities of a client, with their capability key: equal for equal sets, `''` for none. */
export interface ClientFeatures {
  readonly clientCapabilities: RawObject;
  readonly capabilityKey: string;
}

export const NO_FEATURES: ClientFeatures = { clientCapabilities: RawObject.EMPTY, capabilityKey: '' };

/** A user of links: a session, or a client group. The core calls it a connection holder. */
export interface LinkUser extends ClientFeatures {
  /** Unique among all users. */
  readonly key: string;
  /** Key of its principal. */
  readonly principal: string;
  /** The endpoint that it uses. */
  readonly view: string;
  readonly era: Era;
  /** Aborted when the user has ended. */
  readonly closed: AbortSignal;
}

/**
 * The users that a link serves: `all` of its audience, the `clients` with its key, or one of them for one `call`. With
 * `discovery` it serves none: it only reads lists.
 */
export type LinkPurpose = 'all' | 'clients' | 'call' | 'discovery';

/** The key of a link among the links of its upstream, and the purpose that the key shows. */
export interface LinkPlace {
  readonly key: string;
  readonly purpose: LinkPurpose;
  /** Aborted when the only user that can get the link has ended. Undefined if others can. */
  readonly closed?: AbortSignal | undefined;
}

export interface RunningTask<Context> {
  /** The context of the call that has created it. */
  readonly owner: Context;
  /** Ends the time for which the link is kept open for it. */
  readonly timer: NodeJS.Timeout;
}

/** One connection after its handshake, and the users that it serves. */
export interface Link<Context = unknown, User extends LinkUser = LinkUser> extends ClientFeatures {
  /** Changes if a discovery connection becomes the connection of a client. */
  place: LinkPlace;
  readonly upstream: string;
  /** The key of the principal whose credentials the upstream gets; empty for those of the gateway, for all principals. */
  readonly audience: string;
  readonly connection: Connection<Context>;
  readonly hello: ServerHello;
  readonly era: Era;
  /** The `subscriptions/listen` stream of a modern connection. A legacy connection sends notifications without one. */
  readonly subscription: UpstreamSubscription | undefined;
  readonly users: Set<User>;
  /**
   * Subscribed resources by the upstream's URI, with the users that get their updates. The link is not idle while it serves one
   * of them; the others have subscribed on links of their own.
   */
  readonly subscribers: KeptMap<Set<User>>;
  /** The lengths of all URIs that were ever subscribed to. There are few, so that the parents of a resource are found by them. */
  readonly subscribedLengths: Set<number>;
  /** Running tasks by id. Clients poll them, so the link is not idle while there are any. */
  readonly tasks: KeptMap<RunningTask<Context>>;
  /** Names the process if principals share it; else empty. The next process may choose the same id for a task of another principal. */
  readonly run: string;
  /** Calls that use the link, also while nothing is in flight: between two polls of a task, and while a client is asked. */
  calls: number;
  /** Time of the last start or end of a call. Monotonic ms. */
  usedMs: number;
  /**
   * True if its upstream has been removed or replaced, or its server was deployed anew. Requests in flight finish on it. Later ones use a
   * link of the upstream that has taken the place, if any, or another link.
   */
  isRetired: boolean;
  /** True if it continues a session of the upstream that an earlier connection has initialized. */
  readonly isReattached: boolean;
  /** The level of log messages that the upstream was last told; undefined if no user has set one. */
  logLevel: Severity | undefined;
  /** True if it has answered a call, so that its end does not count toward a crash loop. */
  hasAnsweredCall: boolean;
  /** True if the upstream has reported on it that a list changed. */
  hasReportedChange: boolean;
}

/**
 * The reason why a link was closed. `idle`: unused for the configured time. `crash`: the connection ended unexpectedly.
 * `forgotten`: the upstream does not know its session any more, or was deployed anew. `replaced`: the upstream was removed, or another one has taken its
 * place. `released`: it has no users left, or the gateway stops.
 */
export type CloseReason = 'idle' | 'crash' | 'forgotten' | 'replaced' | 'released';

/** Returns whether messages of the upstream over this link are for its users only. */
export function isPrivate({ place: { purpose } }: Link): boolean {
  return purpose === 'clients' || purpose === 'call';
}

/** Returns whether no call, subscription or task uses the link at this moment. */
export function isIdle(link: Link): boolean {
  return !isWorking(link) && !isSubscribed(link);
}

/** Returns whether the upstream works for somebody over the link. */
export function isWorking({ calls, connection, tasks }: Link): boolean {
  return calls > 0 || connection.inFlight > 0 || tasks.size > 0;
}

/** Returns whether a user of the link is subscribed to a resource, or a client follows a task. */
function isSubscribed(link: Link): boolean {
  const { subscribers, subscription, users } = link;
  return subscription?.hasTasks === true || subscribers.values().some((each) => !each.isDisjointFrom(users));
}
