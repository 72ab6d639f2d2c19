import { RawObject } from '../json/json.ts';
import type { Era } from '../protocol/revisions.ts';
import type { Connection } from './rpc/connection.ts';
import type { ServerHello } from './initialize.ts';
import type { UpstreamSubscription } from './upstream-subscription.ts';

/** The capabilities of a client that an upstream may use, and the key of that set: equal for equal sets, `''` for none. */
export interface ClientFeatures {
  readonly clientCapabilities: RawObject;
  readonly capabilityKey: string;
}

/** The features of a client without capabilities that an upstream may use. */
export const NO_FEATURES: ClientFeatures = { clientCapabilities: RawObject.EMPTY, capabilityKey: '' };

/** A holder of connections: a client session, or a group of modern clients. */
export interface LinkUser extends ClientFeatures {
  /** Unique among all users. */
  readonly key: string;
  /** Key of its principal. */
  readonly principal: string;
  /** The endpoint it came to. */
  readonly view: string;
  /** The era of the client. */
  readonly era: Era;
}

/** One connection that is through its handshake, and the users it serves. */
export interface Link<Owner, User extends LinkUser> extends ClientFeatures {
  /** Its place among the links of its upstream. Changes when a link that read lists is given to a client. */
  key: string;
  readonly upstream: string;
  readonly connection: Connection<Owner>;
  readonly hello: ServerHello;
  /** The era of the protocol that this connection speaks. */
  readonly era: Era;
  /** The `subscriptions/listen` stream of a modern connection. A legacy connection sends notifications without one. */
  readonly subscription: UpstreamSubscription | undefined;
  /** Whether it serves many clients at once, or none: the gateway alone, for its lists. */
  shared: boolean;
  readonly users: Set<User>;
  /**
   * Subscribed resources by the upstream's URI, with the holders that hear of them. While a user of the link is one of those,
   * the link is not idle; other holders have subscribed on links of their own.
   */
  readonly subscribers: Map<string, Set<User>>;
  /** Tasks that it works on, with their owners, which ask about them now and then. While there are any, the link is not idle. */
  readonly tasks: Map<string, Owner>;
  /** Monotonic ms of the last call's start or end. */
  usedMs: number;
  /** Whether it ever answered a call, so that its end is no sign of a crash loop. */
  hasAnswered: boolean;
}

/**
 * Why a link was closed: unused for the configured time; it ended by itself; the upstream does not know its session any more;
 * or nothing is lost, because its users are gone or the gateway stops.
 */
export type CloseReason = 'idle' | 'crash' | 'forgotten' | 'released';

/** Whether no call, subscription or task needs it at this moment. */
export function isIdle<Owner, User extends LinkUser>(link: Link<Owner, User>): boolean {
  return link.connection.inFlight === 0 && link.tasks.size === 0 && !isSubscribed(link);
}

/** Whether a user of the link is subscribed to a resource. */
function isSubscribed<Owner, User extends LinkUser>({ subscribers, users }: Link<Owner, User>): boolean {
  for (const holders of subscribers.values()) {
    for (const holder of holders) if (users.has(holder)) return true;
  }
  return false;
}
