import type { Logger } from 'pino';
import { LIST_KINDS, type ListKind, sameOffer } from '../catalog/offer.ts';
import { loggerToClient } from '../catalog/rewrite.ts';
import { uriToClient } from '../catalog/uri.ts';
import type { RawObject } from '../json/json.ts';
import type { Notification } from '../protocol/jsonrpc.ts';
import { type Era, MODERN, featuresOf } from '../protocol/revisions.ts';
import type { ClientFeatures, Link } from '../upstream/link.ts';
import type { Upstream } from '../upstream/upstream.ts';
import { ClientGroup } from './clients/client-group.ts';
import { elicitationIdToClient } from './questions/question-labels.ts';
import type { UrlElicitations } from './questions/url-elicitations.ts';
import type { HolderLinks } from './connections/holder-links.ts';
import type { ResourceCache } from './forward/resource-cache.ts';
import { inSlices } from './lists/in-slices.ts';
import type { ListAnnouncer } from './lists/list-announcer.ts';
import type { Offers } from './lists/offers.ts';
import type { Recipient, Exchange } from './exchange/exchange.ts';
import type { ConnectionHolder } from './exchange/connection-holder.ts';
import { UpdateCoalescer } from './update-coalescer.ts';
import type { TaskMarks } from './handles/task-marks.ts';

type HolderLink = Link<Exchange, ConnectionHolder>;

export interface NotificationRouterParts {
  readonly upstreams: ReadonlyMap<string, Upstream<Exchange, ConnectionHolder>>;
  readonly holders: Iterable<ConnectionHolder>;
  readonly offers: Offers;
  readonly announcer: ListAnnouncer;
  readonly links: HolderLinks;
  readonly urlElicitations: UrlElicitations;
  readonly resourceCache: ResourceCache;
  readonly marks: TaskMarks;
  readonly log: Logger;
  onDropped(reason: string): void;
}

/** Routes notifications of upstreams to the sessions and client groups that they concern, and to no other. */
export class NotificationRouter {
  readonly #parts: NotificationRouterParts;
  /** Links whose lists are being fetched; true when they changed again meanwhile. */
  readonly #listing = new Map<HolderLink, boolean>();
  /** Lists that a link said have changed, until they are fetched again. */
  readonly #reported = new Map<HolderLink, Set<ListKind>>();
  readonly #updates: UpdateCoalescer<HolderLink>;

  constructor(parts: NotificationRouterParts) {
    this.#parts = parts;
    this.#updates = new UpdateCoalescer((link, uri, params) => this.#announceUpdate(link, uri, params));
  }

  onNotification(link: HolderLink, notification: Notification, about: Exchange | undefined): void {
    const { method, params } = notification;
    switch (method) {
      case 'notifications/progress':
        if (about?.progressToken !== undefined && about.advances(Number(params?.raw('progress')))) {
          const told = params && this.#parts.marks.withTaskId(link, about.client, params);
          about.client.notify(method, told?.with('progressToken', about.progressToken), about);
        }
        return;
      case 'notifications/message':
        this.#routeLog(link, notification, about);
        return;
      case 'notifications/resources/updated':
        this.#routeUpdate(link, notification);
        return;
      case 'notifications/tasks':
      case 'notifications/tasks/status':
        this.#routeTask(link, notification);
        return;
      case 'notifications/tools/list_changed':
      case 'notifications/prompts/list_changed':
      case 'notifications/resources/list_changed':
        this.#onListChanged(link, method);
        return;
      default:
        this.#routeOther(link, notification, about);
    }
  }

  /** Who hears what a connection says about no call: the only one behind it, else nobody can tell. */
  #recipient(link: HolderLink, about: Exchange | undefined): Recipient | undefined {
    if (about !== undefined) return { client: about.client, exchange: about, isUnambiguous: true };
    if (link.shared || link.users.size !== 1) return undefined;
    const [only] = link.users;
    return only?.recipientAt(link.upstream);
  }

  #routeLog(link: HolderLink, { method, params }: Notification, about: Exchange | undefined): void {
    const to = this.#recipient(link, about);
    if (to === undefined || params === undefined) {
      this.#parts.onDropped('log-unattributable');
      this.#parts.log.debug({ upstream: link.upstream, level: params?.string('level') }, 'log message of nobody');
      return;
    }
    const { client, exchange } = to;
    if (!client.wantsLog(params.string('level'))) return;
    const marked = this.#parts.marks.withTaskId(link, client, params);
    const { view } = client.catalog;
    const viewed = view.upstreams.find(({ id }) => id === link.upstream);
    const labelled = viewed === undefined ? marked : loggerToClient(view, viewed, marked);
    if (!client.notify(method, labelled, exchange)) this.#parts.onDropped('log-undeliverable');
  }

  #routeUpdate(link: HolderLink, { params }: Notification): void {
    this.#parts.resourceCache.invalidate(link.upstream);
    const uri = params?.string('uri');
    if (params !== undefined && uri !== undefined) this.#updates.add(link, uri, params);
  }

  #announceUpdate(link: HolderLink, uri: string, params: RawObject): void {
    for (const holder of this.#parts.links.subscribers(link, uri)) {
      const viewed = holder.catalog.view.upstreams.find(({ id }) => id === link.upstream);
      if (viewed === undefined) continue;
      const known = JSON.stringify(uriToClient(viewed, uri));
      holder.announce('notifications/resources/updated', params.with('uri', known));
    }
  }

  /** Clients hear of their own tasks, and of no others'. */
  #routeTask(link: HolderLink, { method, params }: Notification): void {
    const task = params?.string('taskId');
    if (params === undefined || task === undefined) return;
    for (const holder of this.#parts.holders) {
      if (holder instanceof ClientGroup) for (const listener of holder.subscribers) listener.onTaskChange(link, task);
    }
    for (const holder of link.users) {
      const id = this.#parts.marks.idFor(link, holder, task);
      if (id !== undefined && featuresOf(holder.caller.revision).coreTasks) {
        holder.announce(method, params.with('taskId', JSON.stringify(id)));
      }
    }
  }

  #routeOther(link: HolderLink, { method, params }: Notification, about: Exchange | undefined): void {
    const elicitationId = params?.string('elicitationId');
    if (method === 'notifications/elicitation/complete' && elicitationId !== undefined) {
      this.#parts.urlElicitations.complete(link.upstream, elicitationId);
    }
    const to = this.#recipient(link, about);
    if (to === undefined) {
      this.#parts.onDropped('notification-unattributable');
      return;
    }
    // A modern client knows none of these: it hears of the end of a page by the answer to its call.
    if (to.client.caller.revision === MODERN) return;
    const mapped =
      method === 'notifications/elicitation/complete' && elicitationId !== undefined
        ? params?.with('elicitationId', JSON.stringify(elicitationIdToClient(to.client, link.upstream, elicitationId)))
        : params;
    // What it says of its own accord may come between two requests.
    if (!to.client.notify(method, mapped, about)) to.client.announce(method, mapped);
  }

  #onListChanged(link: HolderLink, method: string): void {
    this.#parts.resourceCache.invalidate(link.upstream);
    const reported = this.#reported.get(link) ?? new Set();
    this.#reported.set(link, reported);
    for (const kind of LIST_KINDS) if (method === listChanged(kind)) reported.add(kind);
    if (link.shared) {
      const relisted = this.#parts.upstreams.get(link.upstream)?.relist(link.era, link);
      relisted?.then(
        () => this.#announceReported(link, this.#parts.holders),
        (thrown: unknown) => {
          this.#reported.delete(link);
          this.#parts.log.warn({ err: thrown, upstream: link.upstream }, 'changed lists not fetched');
        },
      );
      return;
    }
    const isListing = this.#listing.has(link);
    this.#listing.set(link, isListing);
    if (!isListing) void this.#relist(link);
  }

  /** Announces the changes that an upstream reported, also where its lists turned out equal. */
  #announceReported(link: HolderLink, holders: Iterable<ConnectionHolder>): void {
    const kinds = this.#reported.get(link);
    this.#reported.delete(link);
    if (kinds === undefined) return;
    for (const holder of holders) {
      const isViewed = holder.catalog.view.upstreams.some(({ id }) => id === link.upstream);
      if (!isViewed || !holder.wantsListChanges) continue;
      // So that what differs is announced together with what was reported.
      this.refreshCatalog(holder);
      this.#announceLists(holder, [...kinds]);
    }
  }

  /** The lists of a private connection changed, which concerns the users of that connection alone. */
  async #relist(link: HolderLink): Promise<void> {
    const { log } = this.#parts;
    try {
      do {
        this.#listing.set(link, false);
        for (const features of link.era === 'modern' ? distinctFeatures(link.users) : [link]) {
          await this.#relistFor(link, features);
        }
        this.#announceReported(link, link.users);
      } while (this.#listing.get(link) === true);
    } catch (thrown) {
      log.warn({ err: thrown, upstream: link.upstream }, 'changed lists not fetched');
    } finally {
      this.#reported.delete(link);
      this.#listing.delete(link);
    }
  }

  /** A modern connection serves clients of different capabilities, and is listed for each set of them. */
  async #relistFor(link: HolderLink, { clientCapabilities, capabilityKey }: ClientFeatures): Promise<void> {
    const { upstreams, offers } = this.#parts;
    const offer = await upstreams.get(link.upstream)?.list(link, clientCapabilities);
    if (offer === undefined) return;
    const common = offers.get(link.upstream, link.era, capabilityKey) ?? offers.get(link.upstream, link.era, '');
    const isOwn = common === undefined || !sameOffer(common, offer);
    for (const holder of link.users) {
      if (link.era === 'modern' && holder.capabilityKey !== capabilityKey) continue;
      if (isOwn) holder.ownOffers.set(link.upstream, offer);
      else holder.ownOffers.delete(link.upstream);
      this.refreshCatalog(holder);
    }
  }

  /** Removes from the catalogs of its users the lists that a closed connection alone had shown. */
  onLinkClosed(link: HolderLink): void {
    for (const holder of link.users) {
      if (holder.ownOffers.delete(link.upstream)) this.refreshCatalog(holder);
    }
  }

  /**
   * The lists for all clients of an era changed, and so may those for clients with more capabilities: lists them again, or
   * removes them where no such client is there.
   */
  refreshVariants(upstreamId: string, era: Era): void {
    const { offers, holders, upstreams, log } = this.#parts;
    const upstream = upstreams.get(upstreamId);
    for (const capabilityKey of offers.capabilityKeysOf(upstreamId, era)) {
      if (capabilityKey === '' || upstream === undefined) continue;
      const holder = [...holders].find(
        (one) => one.capabilityKey === capabilityKey && upstream.servingEra(one.era) === era,
      );
      if (holder === undefined) {
        offers.remove(upstreamId, era, capabilityKey);
        continue;
      }
      upstream
        .relist(holder.era, holder)
        .catch((thrown: unknown) => log.warn({ err: thrown, upstream: upstreamId }, 'changed lists not had'));
    }
  }

  /** Rebuilds the catalogs that show one of these upstreams, and announces the changes. */
  async onListsChanged(upstreams: Iterable<string>): Promise<void> {
    const views = new Set([...upstreams].flatMap((id) => [...this.#parts.offers.viewsWith(id)]));
    await inSlices(this.#parts.holders, (holder) => {
      if (views.has(holder.view)) this.refreshCatalog(holder);
    });
  }

  /** Gives a holder the catalog of the offers as they are, and announces the lists that differ. */
  refreshCatalog(holder: ConnectionHolder): void {
    const before = holder.catalog;
    const after = this.#parts.offers.catalogFor(holder);
    holder.catalog = after;
    holder.catalogVersion = this.#parts.offers.version;
    if (before === after || !holder.wantsListChanges) return;
    const kinds = LIST_KINDS.filter((kind) => before.digest[kind] !== after.digest[kind]);
    if (kinds.length > 0) this.#announceLists(holder, kinds);
  }

  #announceLists(holder: ConnectionHolder, kinds: readonly ListKind[]): void {
    this.#parts.announcer.add(holder, kinds);
  }
}

/** One holder for each set of capabilities. */
function distinctFeatures(holders: Iterable<ConnectionHolder>): Iterable<ClientFeatures> {
  return new Map([...holders].map((holder) => [holder.capabilityKey, holder])).values();
}

function listChanged(kind: ListKind): string {
  return `notifications/${kind}/list_changed`;
}
