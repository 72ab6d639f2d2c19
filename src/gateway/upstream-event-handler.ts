import type { SharedParts } from './records/shared-parts.ts';
import { keyOf } from '../catalog/item.ts';
import { isIncluded } from '../catalog/names/glob.ts';
import type { Offer, OfferKey } from '../catalog/offer.ts';
import type { Notification } from '../protocol/jsonrpc.ts';
import { ERAS } from '../protocol/revisions.ts';
import type { Eras } from '../upstream/link/eras.ts';
import type { Lifecycle } from '../upstream/lifecycle/lifecycle.ts';
import { type CloseReason, NO_FEATURES } from '../upstream/link/link.ts';
import type { ServerRequest } from '../upstream/rpc/connection.ts';
import type { UpstreamEvents } from '../upstream/upstream-events.ts';
import type { HolderLinks } from './connections/holder-links.ts';
import type { ConnectionHolder, Link } from './exchange/connection-holder.ts';
import type { Exchange } from './exchange/exchange.ts';
import type { ChangedLists } from './lists/changes/changed-lists.ts';
import { ChangeGatherer } from './lists/changes/change-gatherer.ts';
import type { ResourceCache } from './forward/resource-cache.ts';
import type { Offers } from './lists/offers.ts';
import { SharedOffers } from './lists/shared-offers.ts';
import type { OfferStore } from '../store/offer-store.ts';
import type { NotificationRouter } from './notification-router.ts';
import { relayServerRequest, type ServerRequestParts } from './questions/server-requests.ts';

export interface UpstreamEventHandlerParts extends Pick<SharedParts, 'upstreams' | 'metrics' | 'log'> {
  readonly offers: Offers;
  readonly offerStore: OfferStore;
  readonly links: HolderLinks;
  readonly changedLists: ChangedLists;
  readonly notifications: NotificationRouter;
  readonly resourceCache: ResourceCache;
  readonly serverRequests: ServerRequestParts;
}

/** Passes events of upstreams to the parts of the gateway that handle them. */
export class UpstreamEventHandler implements UpstreamEvents<Exchange, ConnectionHolder> {
  readonly #parts: UpstreamEventHandlerParts;
  /** Gathers changes of lists, so that clients get them together. */
  readonly #changes: ChangeGatherer;
  /** The lists of the other processes of this gateway. */
  readonly sharedOffers: SharedOffers;

  constructor(parts: UpstreamEventHandlerParts) {
    this.#parts = parts;
    const { offers, offerStore, changedLists, upstreams } = parts;
    this.sharedOffers = new SharedOffers({
      offers,
      store: offerStore,
      onChanged: (upstream, key) => {
        this.#changes.add(upstream, key.era, false);
        this.#announcePinned(upstream);
        // A listing of them finds no change any more.
        const isRemote = upstreams.get(upstream)?.isProcess === false;
        if (isRemote && key.capabilityKey === '') void changedLists.refreshVariants(upstream, key);
      },
      isProcess: (upstream) => upstreams.get(upstream)?.isProcess === true,
      relist: async (upstream, key) => {
        // Those for certain capabilities are listed with the capabilities of a client.
        if (key.capabilityKey !== '') await changedLists.refreshVariants(upstream, key);
        else
          await upstreams
            .get(upstream)
            ?.relist(key.era, NO_FEATURES, key.audience)
            .catch(() => undefined);
      },
    });
    this.#changes = new ChangeGatherer((changed) => {
      for (const [upstream, eras] of changed) for (const era of eras) offers.reportProblems(upstream, era);
      void changedLists.onListsChanged(changed.keys());
    });
  }

  onNotification(link: Link, notification: Notification, about: Exchange | undefined): void {
    this.#parts.notifications.onNotification(link, notification, about);
  }

  onServerRequest(link: Link, request: ServerRequest<Exchange>): void {
    relayServerRequest(this.#parts.serverRequests, link, request);
  }

  onGap(link: Link): void {
    this.#parts.notifications.onGap(link);
  }

  onLinkClosed(link: Link, reason: CloseReason): void {
    if (reason === 'crash') this.#parts.metrics.countRestart(link.upstream);
    // The next connection may reach a server with other resources.
    if (reason !== 'idle' && reason !== 'released' && !link.isRetired) {
      this.#parts.resourceCache.invalidate(link.upstream);
    }
    // The users of a retired one have links of the upstream that has taken the place.
    if (!link.isRetired) this.#parts.links.onLinkClosed(link, reason);
    this.#parts.changedLists.onLinkClosed(link);
  }

  onStateChange(upstream: string, after: Lifecycle): void {
    this.#parts.metrics.setUpstreamState(upstream, after.phase);
  }

  onEras(upstream: string, eras: Eras): void {
    this.#parts.metrics.setUpstreamEras(upstream, eras);
    if (!this.#parts.offers.setEras(upstream, eras)) return;
    for (const era of ERAS) this.#changes.add(upstream, era, true);
  }

  knownLists(upstream: string, key: OfferKey): Offer | undefined {
    return this.#parts.offers.offerIn(upstream, key);
  }

  prepareLists(upstream: string, offer: Offer): Promise<void> {
    return this.#parts.offers.prepare(upstream, offer);
  }

  onLists(upstream: string, key: OfferKey, offer: Offer, isWhole: boolean): void {
    const { offers, changedLists } = this.#parts;
    const isStart = offers.ageMs(upstream, key) === undefined;
    const wasKnown = offers.exactOffer(upstream, key) !== undefined;
    const isChanged = offers.update(upstream, key, offer, isWhole);
    if ((isChanged || isStart) && key.audience === '') this.#logLists(upstream, key, offer);
    // Problems of lists that were read from disk are not in this process's log yet.
    if (isChanged || isStart) this.#changes.add(upstream, key.era, isStart);
    if (isChanged) this.#announcePinned(upstream);
    // First lists are no sign that others have changed.
    if (isChanged && wasKnown && key.capabilityKey === '') void changedLists.refreshVariants(upstream, key);
  }

  /**
   * Applies changed definitions at once where they are pinned. One that differs from the lock must not be callable until the next
   * announcement is due.
   */
  #announcePinned(upstream: string): void {
    const { offers, changedLists } = this.#parts;
    if (offers.isPinned(upstream)) void changedLists.onListsChanged([upstream]);
  }

  #logLists(upstream: string, { era }: OfferKey, offer: Offer): void {
    const { tools, prompts, resources, templates } = offer;
    const { log, upstreams } = this.#parts;
    const filter = upstreams.get(upstream)?.config;
    const counts = {
      tools: tools.length,
      offeredTools:
        filter === undefined ? tools.length : tools.filter((tool) => isIncluded(filter, keyOf('tool', tool))).length,
      prompts: prompts.length,
      resources: resources.length,
      templates: templates.length,
    };
    log.info({ upstream, era, ...counts }, 'upstream lists');
  }

  close(): void {
    this.#changes.close();
    this.sharedOffers.close();
  }
}
