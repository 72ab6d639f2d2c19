import type { Logger } from 'pino';
import { isShown } from '../catalog/catalog.ts';
import { LIST_KINDS, type ListKind, type OfferKey } from '../catalog/offer.ts';
import { isSameRestriction } from '../catalog/restriction.ts';
import { loggerToClient } from '../catalog/rewrite.ts';
import { uriToClient } from '../catalog/uri.ts';
import { upstreamIn, type View, type ViewUpstream, viewWith } from '../catalog/view.ts';
import type { RawObject } from '../json/json.ts';
import type { LimitName } from '../limits.ts';
import type { Notification } from '../protocol/jsonrpc.ts';
import { featuresOf } from '../protocol/revisions.ts';
import { elicitationIdToClient } from './questions/question-labels.ts';
import type { UrlElicitations } from './questions/url-elicitations.ts';
import { subscribersOf } from './connections/link-subscriptions.ts';
import type { ResourceCache } from './forward/resource-cache.ts';
import { inSlices } from '../work-turn.ts';
import type { ListAnnouncer } from './lists/list-announcer.ts';
import type { Offers } from './lists/offers.ts';
import { PrivateLists } from './lists/private-lists.ts';
import { RepeatedListings } from './connections/repeated-listings.ts';
import type { Recipient, Exchange } from './exchange/exchange.ts';
import type { ConnectionHolder, Link, Upstreams } from './exchange/connection-holder.ts';
import { DEFAULT_LEVEL } from './exchange/log-level.ts';
import { mayKnow, soleRecipient } from './questions/sole-recipient.ts';
import { isPrivate } from '../upstream/link/link.ts';
import { UpdateCoalescer } from './update-coalescer.ts';
import type { TaskMarks } from './handles/task-marks.ts';

export interface NotificationRouterParts {
  readonly upstreams: Upstreams;
  readonly holders: Iterable<ConnectionHolder>;
  /** Returns the other client groups of a holder's principal; none for a session. */
  readonly siblingsOf: (holder: ConnectionHolder) => Iterable<ConnectionHolder>;
  readonly offers: Offers;
  readonly announcer: ListAnnouncer;
  readonly urlElicitations: UrlElicitations;
  readonly resourceCache: ResourceCache;
  readonly marks: TaskMarks;
  /** Returns the promise of a subscription that the upstream has not answered yet; undefined if there is none. */
  readonly pendingSubscription: (link: Link, uri: string) => Promise<unknown> | undefined;
  readonly log: Logger;
  /** Runs when a holder has got another catalog, which may lead to fewer upstreams and resources. */
  onOtherCatalog(holder: ConnectionHolder): void;
  /** Runs when a session, whose catalog did not lead to all of its stored subscriptions, may have got another one. */
  onCatalogOfUnresolved(holder: ConnectionHolder): void;
  onDropped(reason: string): void;
  onMerged(): void;
  readonly onLimit: (limit: LimitName) => void;
}

/** The lists that a connection reported as changed, before and after it answered its first call. */
interface Report {
  readonly atStart: Set<ListKind>;
  readonly afterwards: Set<ListKind>;
}

/** Routes notifications of upstreams to the sessions and client groups that they concern, and to no other. */
export class NotificationRouter {
  readonly #parts: NotificationRouterParts;
  readonly #privateLists: PrivateLists;
  readonly #sharedListings = new RepeatedListings((link, onBegin) => this.#listShared(link, onBegin));
  /** Lists that a link reported as changed and that were not fetched again yet. */
  readonly #reported = new WeakMap<Link, Report>();
  readonly #updates: UpdateCoalescer<Link>;
  /** Pending subscriptions whose resource has changed. */
  readonly #changed = new WeakSet<Promise<unknown>>();

  constructor(parts: NotificationRouterParts) {
    this.#parts = parts;
    this.#privateLists = new PrivateLists({
      ...parts,
      refreshCatalog: (holder) => this.refreshCatalog(holder),
      onListed: (link, outcome) => {
        if (outcome === 'failed') this.#reported.delete(link);
        else this.#announceReported(link, this.#privateHolders(link), outcome === 'differs');
      },
    });
    this.#updates = new UpdateCoalescer({
      announce: (links, uri, params) => this.#announceUpdate(links, uri, params),
      areAll: (links, uri) => this.#areAllSubscribed(links, uri),
      onMerged: () => parts.onMerged(),
    });
  }

  /**
   * Routes a notification of an upstream.
   *
   * @param about the exchange of the call that the notification belongs to, if that is known.
   */
  onNotification(link: Link, notification: Notification, about: Exchange | undefined): void {
    const { method, params } = notification;
    switch (method) {
      case 'notifications/progress':
        if (about?.progressToken !== undefined && about.recordProgress(Number(params?.raw('progress')))) {
          const marked = params && this.#parts.marks.withTaskId(link, about.client, params);
          about.client.notify(method, marked?.with('progressToken', about.progressToken), about);
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

  /**
   * Returns the recipient of a notification: the client of its call, else the only user of the connection. Returns
   * undefined if that is ambiguous.
   */
  #recipient(link: Link, about: Exchange | undefined, params: RawObject | undefined): Recipient | undefined {
    if (about !== undefined) return { client: about.client, exchange: about, isUnambiguous: true };
    return isPrivate(link) ? soleRecipient(link, 'log', params) : undefined;
  }

  #routeLog(link: Link, { method, params }: Notification, about: Exchange | undefined): void {
    const to = this.#recipient(link, about, params);
    if (to === undefined || params === undefined) {
      this.#parts.onDropped('log-unattributable');
      this.#parts.log.debug(
        { upstream: link.upstream, level: params?.string('level') },
        'log message dropped: it belongs to no known client',
      );
      return;
    }
    const { client, exchange } = to;
    // A level that other users of the link have set concerns no client without one.
    if (!client.wantsLog(params.string('level'), link.logLevel && DEFAULT_LEVEL)) return;
    const marked = this.#parts.marks.withTaskId(link, client, params);
    if (!mayKnow(client.catalog, link.upstream, exchange)) {
      this.#parts.onDropped('log-denied');
      return;
    }
    const view = viewOf(link, to);
    const viewed = upstreamIn(view, link.upstream);
    const labelled = viewed === undefined ? marked : loggerToClient(view, viewed, marked);
    if (!client.notify(method, labelled, exchange)) this.#parts.onDropped('log-undeliverable');
  }

  #routeUpdate(link: Link, { params }: Notification): void {
    this.#parts.resourceCache.invalidate(link.upstream);
    const uri = params?.string('uri');
    if (params === undefined || uri === undefined) return;
    this.#updates.add(updateKey(link), link, uri, params);
    const pending = this.#parts.pendingSubscription(link, uri);
    if (pending === undefined || this.#changed.has(pending)) return;
    this.#changed.add(pending);
    // The upstream's answer may have come just before, so that its holder is not a subscriber yet. The holder is one in the next turn.
    pending.then(
      () => setImmediate(() => this.#updates.add(updateKey(link), link, uri, params)),
      () => undefined,
    );
  }

  /** Returns whether no other connection has subscribed to the resource for the same listeners. @param links of one update key. */
  #areAllSubscribed(links: ReadonlySet<Link>, uri: string): boolean {
    const [link] = links;
    const [user] = link?.users ?? [];
    if (link === undefined || user === undefined) return true;
    for (const sibling of this.#parts.siblingsOf(user)) {
      const other = sibling.links.get(link.upstream);
      if (other === undefined || links.has(other) || updateKey(other) !== updateKey(link)) continue;
      if (subscribersOf([other], uri).size > 0) return false;
    }
    return true;
  }

  /** @param links of one upstream. */
  #announceUpdate(links: Iterable<Link>, uri: string, params: RawObject): void {
    const [first] = links;
    for (const holder of subscribersOf(links, uri)) {
      const viewed = first && upstreamIn(holder.catalog.view, first.upstream);
      if (viewed === undefined) continue;
      // A part of a subscribed resource may be denied.
      if (holder.catalog.restriction?.allowsUpdates(viewed.id, uri) === false) continue;
      for (const name of namesOf(holder, viewed, uri)) {
        holder.announce('notifications/resources/updated', params.with('uri', JSON.stringify(name)));
      }
    }
  }

  /** Routes a change of a task to the clients that own the task. */
  #routeTask(link: Link, { method, params }: Notification): void {
    const task = params?.string('taskId');
    if (params === undefined || task === undefined) return;
    for (const holder of this.#parts.holders) holder.onTaskChange(link, task);
    for (const holder of link.users) {
      if (!isShown(holder.catalog, link.upstream)) continue;
      const id = this.#parts.marks.idFor(link, holder, task);
      if (id !== undefined && featuresOf(holder.caller.revision).coreTasks) {
        holder.announce(method, params.with('taskId', JSON.stringify(id)));
      }
    }
  }

  #routeOther(link: Link, { method, params }: Notification, about: Exchange | undefined): void {
    const elicitationId = params?.string('elicitationId');
    if (method === 'notifications/elicitation/complete' && elicitationId !== undefined) {
      this.#parts.urlElicitations.complete(link.upstream, elicitationId);
    }
    const to = this.#recipient(link, about, params);
    if (to === undefined) {
      this.#parts.onDropped('notification-unattributable');
      return;
    }
    if (!to.client.dialect.acceptsOtherNotifications) return;
    const mapped =
      method === 'notifications/elicitation/complete' && elicitationId !== undefined
        ? params?.with(
            'elicitationId',
            JSON.stringify(elicitationIdToClient(viewOf(link, to), link.upstream, elicitationId)),
          )
        : params;
    // A notification that belongs to no request may arrive between two requests.
    if (!to.client.notify(method, mapped, about)) to.client.announce(method, mapped);
  }

  #onListChanged(link: Link, method: string): void {
    if (link.isRetired) return;
    this.#parts.resourceCache.invalidate(link.upstream);
    const report = this.#reported.get(link) ?? { atStart: new Set(), afterwards: new Set() };
    this.#reported.set(link, report);
    const kinds = link.hasAnsweredCall ? report.afterwards : report.atStart;
    for (const kind of LIST_KINDS) if (method === listChanged(kind)) kinds.add(kind);
    if (isPrivate(link)) this.#privateLists.onChanged(link);
    else this.#sharedListings.onChanged(link);
  }

  /** Lists an upstream after a change that it has reported on a link for all clients. */
  async #listShared(link: Link, onBegin: () => void): Promise<void> {
    onBegin();
    if (link.isRetired) return;
    try {
      await this.#parts.upstreams.get(link.upstream)?.relist(link.era, link, link.audience);
      this.#announceReported(link, this.#sharedHolders(link), false);
    } catch (thrown) {
      this.#reported.delete(link);
      this.#parts.log.warn({ err: thrown, upstream: link.upstream }, 'changed lists not fetched');
    }
  }

  /**
   * Announces the changes that an upstream reported, even if its lists turned out equal. Ignores reports from before
   * the first answer if the lists are equal: many servers report the tools that they register while they start.
   */
  #announceReported(link: Link, holders: Iterable<ConnectionHolder>, isDifferent: boolean): void {
    const report = this.#reported.get(link);
    this.#reported.delete(link);
    if (report === undefined) return;
    const kinds = isDifferent ? report.afterwards.union(report.atStart) : report.afterwards;
    if (kinds.size === 0) return;
    for (const holder of holders) {
      const isViewed = upstreamIn(holder.catalog.view, link.upstream) !== undefined;
      if (!isViewed || !holder.wantsListChanges) continue;
      // Announces differing lists together with the reported ones.
      this.refreshCatalog(holder);
      // The reported change may be one of items that the client may not see.
      if (holder.catalog.restriction !== undefined) continue;
      this.#announceLists(holder, [...kinds]);
    }
  }

  /** Announces the lists that may have changed while a restored session was in no process. */
  onRestored(holder: ConnectionHolder): void {
    const { capabilities } = holder.catalog;
    this.#announceLists(
      holder,
      LIST_KINDS.filter((kind) => announcesChanges(capabilities, kind)),
    );
  }

  /** Reads the lists of a session at an upstream that was continued, if they may have changed meanwhile. Only its client gets them. */
  onReattached(link: Link): void {
    const { capabilities } = link.hello;
    if (LIST_KINDS.some((kind) => announcesChanges(capabilities, kind))) this.#privateLists.onChanged(link);
  }

  /** Reads the lists of a new process whose definitions are pinned: it may be of another version than the one that was listed. */
  onOpen(link: Link): void {
    const { offers, upstreams } = this.#parts;
    if (!offers.isPinned(link.upstream) || !isPrivate(link)) return;
    if (upstreams.get(link.upstream)?.isProcess === true) this.#privateLists.onChanged(link);
  }

  /** Gives the users of a closed link the lists for all clients again. Those of a retired one have links of another upstream. */
  onLinkClosed(link: Link): void {
    if (link.isRetired) this.#privateLists.release(link);
    else this.#privateLists.onLinkClosed(link);
  }

  /** Yields the holders that a shared connection may serve. */
  *#sharedHolders({ upstream: id, audience }: Link): Iterable<ConnectionHolder> {
    const upstream = this.#parts.upstreams.get(id);
    for (const holder of this.#parts.holders) if (upstream?.audienceOf(holder.principal) === audience) yield holder;
  }

  /** Returns the users of a private connection, and the siblings of its client groups. */
  #privateHolders(link: Link): ReadonlySet<ConnectionHolder> {
    const holders = new Set(link.users);
    for (const user of link.users) for (const sibling of this.#parts.siblingsOf(user)) holders.add(sibling);
    return holders;
  }

  /**
   * Lists an upstream again for clients with certain capabilities, after the lists for clients of any capabilities have changed.
   * Removes offers for capabilities that no current holder has. Never rejects.
   */
  async refreshVariants(upstreamId: string, changed: OfferKey): Promise<void> {
    const { offers, holders, upstreams, log } = this.#parts;
    const { era, audience } = changed;
    const upstream = upstreams.get(upstreamId);
    const listings: Promise<void>[] = [];
    for (const key of offers.keysOf(upstreamId, era)) {
      const { capabilityKey } = key;
      if (capabilityKey === '' || key.audience !== audience || upstream === undefined) continue;
      const holder = [...holders].find(
        (one) =>
          one.capabilityKey === capabilityKey &&
          upstream.audienceOf(one.principal) === audience &&
          upstream.servingEra(one.era) === era,
      );
      if (holder === undefined) {
        offers.remove(upstreamId, key);
        continue;
      }
      const listing = upstream.relist(holder.era, holder, audience);
      listings.push(
        listing.catch((thrown: unknown) =>
          log.warn(
            { err: thrown, upstream: upstreamId },
            'changed lists not fetched for clients with certain capabilities',
          ),
        ),
      );
    }
    await Promise.all(listings);
  }

  /** Rebuilds the catalogs that show one of these upstreams, and announces the changes. */
  async onListsChanged(upstreams: Iterable<string>): Promise<void> {
    const views = new Set([...upstreams].flatMap((id) => [...this.#parts.offers.viewsWith(id)]));
    await inSlices(this.#parts.holders, (holder) => {
      if (views.has(holder.view)) this.refreshCatalog(holder);
    });
  }

  /** Rebuilds the catalogs of all holders, and announces the changes. */
  async onConfigChanged(): Promise<void> {
    await inSlices(this.#parts.holders, (holder) => this.refreshCatalog(holder));
  }

  /** Gives a holder the catalog of the current offers, and announces the lists that differ. */
  refreshCatalog(holder: ConnectionHolder): void {
    const before = holder.catalog;
    const after = this.#parts.offers.catalogFor(holder);
    holder.catalog = after;
    holder.catalogVersion = this.#parts.offers.version;
    if (!isSameRestriction(before.restriction, after.restriction)) holder.onRightsChange();
    if (before !== after) this.#parts.onOtherCatalog(holder);
    if (holder.unresolved !== undefined) this.#parts.onCatalogOfUnresolved(holder);
    if (before === after || !holder.wantsListChanges) return;
    const kinds = LIST_KINDS.filter((kind) => before.digest[kind] !== after.digest[kind]);
    if (kinds.length > 0) this.#announceLists(holder, kinds);
  }

  #announceLists(holder: ConnectionHolder, kinds: readonly ListKind[]): void {
    this.#parts.announcer.add(holder, kinds);
  }
}

/** Returns the view in which the recipient of a message knows the upstream of a link. */
function viewOf({ upstream }: Link, { client, exchange }: Recipient): View {
  return viewWith(upstream, client.catalog.view, exchange?.view);
}

/**
 * Returns the URIs by which a session has subscribed to a resource: the published one, the upstream's own, or both. A part of a
 * subscribed resource has its published URI. For a group it is that one too, which its streams replace by their own names.
 */
function namesOf(
  { isOneClient, subscriptions }: ConnectionHolder,
  viewed: ViewUpstream,
  uri: string,
): readonly string[] {
  const names: string[] = [];
  if (isOneClient) {
    for (const [name, to] of subscriptions) if (to.uri === uri && to.upstream === viewed.id) names.push(name);
  }
  return names.length === 0 ? [uriToClient(viewed, uri)] : names;
}

/**
 * Returns a key that is equal for links whose updates reach the same listeners: those of one principal's client groups
 * at one upstream.
 */
function updateKey(link: Link): Link | string {
  const [user] = link.users;
  return !isPrivate(link) || user?.isOneClient !== false ? link : `${link.upstream} ${user.principal}`;
}

/** Returns whether a server with these capabilities announces changes of a list. */
function announcesChanges(capabilities: RawObject, kind: ListKind): boolean {
  return capabilities.object(kind)?.raw('listChanged') === 'true';
}

function listChanged(kind: ListKind): string {
  return `notifications/${kind}/list_changed`;
}
