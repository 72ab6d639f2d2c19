import type { Offer, OfferKey } from '../catalog/offer.ts';
import type { Notification } from '../protocol/jsonrpc.ts';
import type { Eras } from './link/eras.ts';
import type { Lifecycle } from './lifecycle/lifecycle.ts';
import type { CloseReason, Link, LinkUser } from './link/link.ts';
import type { ServerRequest } from './rpc/connection.ts';

/** Receives the events of upstreams, and knows their last lists. The methods are called in the order of arrival, and only one of them returns a promise. */
export interface UpstreamEvents<Context = unknown, User extends LinkUser = LinkUser> {
  onNotification(link: Link<Context, User>, notification: Notification, about: Context | undefined): void;
  onServerRequest(link: Link<Context, User>, request: ServerRequest<Context>): void;
  /** Notifications may have been lost while there was no stream for them. */
  onGap(link: Link<Context, User>): void;
  /** A link has closed. Its users, if any, have lost the state that the upstream kept for them. */
  onLinkClosed(link: Link<Context, User>, reason: CloseReason): void;
  onStateChange(upstream: string, after: Lifecycle): void;
  /** Returns the lists that the clients of this key have now, if any. */
  knownLists(upstream: string, key: OfferKey): Offer | undefined;
  /** Does the long work for lists that were read, before {@link onLists}, and over several turns of the event loop. */
  prepareLists(upstream: string, offer: Offer): Promise<void>;
  /** The lists of the upstream were read for the clients of this key; not all of them if `isWhole` is false. */
  onLists(upstream: string, key: OfferKey, offer: Offer, isWhole: boolean): void;
  onEras(upstream: string, eras: Eras): void;
}
