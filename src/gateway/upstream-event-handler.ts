import type { Offer, OfferKey } from '../catalog/offer.ts';
import type { Notification } from '../protocol/jsonrpc.ts';
import { ERAS } from '../protocol/revisions.ts';
import type { Metrics } from '../telemetry/metrics.ts';
import type { Eras } from '../upstream/link/eras.ts';
import type { Lifecycle } from '../upstream/lifecycle.ts';
import type { CloseReason } from '../upstream/link/link.ts';
import type { ServerRequest } from '../upstream/rpc/connection.ts';
import type { UpstreamEvents } from '../upstream/upstream-events.ts';
import type { HolderLinks } from './connections/holder-links.ts';
import type { ConnectionHolder, Link } from './exchange/connection-holder.ts';
import type { Exchange } from './exchange/exchange.ts';
import { ChangeGatherer } from './lists/change-gatherer.ts';
import type { Offers } from './lists/offers.ts';
import type { NotificationRouter } from './notification-router.ts';
import type { ServerRequests } from './questions/server-requests.ts';

export interface UpstreamEventHandlerParts {
  readonly offers: Offers;
  readonly links: HolderLinks;
  readonly notifications: NotificationRouter;
  readonly serverRequests: ServerRequests;
  readonly metrics: Metrics;
}

/** Passes events of upstreams to the parts of the gateway that handle them. */
export class UpstreamEventHandler implements UpstreamEvents<Exchange, ConnectionHolder> {
  readonly #parts: UpstreamEventHandlerParts;
  /** Gathers changes of lists, so that clients get them together. */
  readonly #changes: ChangeGatherer;

  constructor(parts: UpstreamEventHandlerParts) {
    this.#parts = parts;
    const { offers, notifications } = parts;
    this.#changes = new ChangeGatherer((changed) => {
      for (const [upstream, eras] of changed) for (const era of eras) offers.reportProblems(upstream, era);
      void notifications.onListsChanged(changed.keys());
    });
  }

  onNotification(link: Link, notification: Notification, about: Exchange | undefined): void {
    this.#parts.notifications.onNotification(link, notification, about);
  }

  onServerRequest(link: Link, request: ServerRequest<Exchange>): void {
    this.#parts.serverRequests.relay(link, request);
  }

  onLinkClosed(link: Link, reason: CloseReason): void {
    if (reason === 'crash' || reason === 'forgotten') this.#parts.metrics.upstreamRestarted(link.upstream);
    // Its users have links of the upstream that has taken the place.
    if (link.isRetired) return;
    this.#parts.links.onLinkClosed(link, reason);
    this.#parts.notifications.onLinkClosed(link);
  }

  onStateChange(upstream: string, after: Lifecycle): void {
    this.#parts.metrics.upstreamState(upstream, after.phase);
  }

  onEras(upstream: string, eras: Eras): void {
    this.#parts.metrics.upstreamEras(upstream, eras);
    if (!this.#parts.offers.setEras(upstream, eras)) return;
    for (const era of ERAS) this.#changes.add(upstream, era, true);
  }

  onLists(upstream: string, key: OfferKey, offer: Offer): void {
    const { offers, notifications } = this.#parts;
    const isStart = offers.ageMs(upstream, key) === undefined;
    const isChanged = offers.update(upstream, key, offer);
    // Problems of lists that were read from disk are not in this process's log yet.
    if (isChanged || isStart) this.#changes.add(upstream, key.era, isStart);
    if (isChanged && key.capabilityKey === '') notifications.refreshVariants(upstream, key);
  }

  /** Stops announcing changes of lists. */
  close(): void {
    this.#changes.close();
  }
}
