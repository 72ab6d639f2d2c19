import type { Logger } from 'pino';
import { isShown } from '../catalog/catalog.ts';
import { changedKindOf, type ListKind } from '../catalog/offer.ts';
import { loggerToClient } from '../catalog/rewrite.ts';
import { upstreamIn, type View, viewWith } from '../catalog/view.ts';
import { RawObject } from '../json/json.ts';
import type { Notification } from '../protocol/jsonrpc.ts';
import type { DropReason } from '../telemetry/upstream-metrics.ts';
import { featuresOf } from '../protocol/revisions.ts';
import { isPrivate } from '../upstream/link/link.ts';
import type { ConnectionHolder, Link } from './exchange/connection-holder.ts';
import type { Recipient, Exchange } from './exchange/exchange.ts';
import { DEFAULT_LEVEL } from './exchange/log-level.ts';
import { opensPages } from './exchange/client-capabilities.ts';
import type { ResourceCache } from './forward/resource-cache.ts';
import type { TaskMarks } from './handles/task-marks.ts';
import type { ChangedLists } from './lists/changes/changed-lists.ts';
import { elicitationIdToClient } from './questions/question-labels.ts';
import { mayKnow, soleRecipient } from './questions/sole-recipient.ts';
import type { UrlElicitations } from './questions/url-elicitations.ts';
import type { ResourceUpdates } from './resource-updates.ts';

export interface NotificationRouterParts {
  readonly holders: Iterable<ConnectionHolder>;
  readonly changedLists: ChangedLists;
  readonly updates: ResourceUpdates;
  readonly urlElicitations: UrlElicitations;
  readonly resourceCache: ResourceCache;
  readonly marks: TaskMarks;
  readonly log: Logger;
  onDropped(reason: DropReason, upstream: string): void;
}

/** Routes notifications of upstreams to the sessions and client groups that they concern, and to no other. */
export class NotificationRouter {
  readonly #parts: NotificationRouterParts;

  constructor(parts: NotificationRouterParts) {
    this.#parts = parts;
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
        this.#routeUpdate(link, params);
        return;
      case 'notifications/tasks':
      case 'notifications/tasks/status':
        this.#routeTask(link, notification);
        return;
      default: {
        const kind = changedKindOf(method);
        if (kind === undefined) this.#routeOther(link, notification, about);
        else this.#routeListChange(link, kind);
      }
    }
  }

  /** Reads lists again whose changes may not have been reported, and announces those that differ. Resources cannot be compared. */
  onGap(link: Link): void {
    this.#parts.resourceCache.invalidate(link.upstream);
    this.#parts.changedLists.onPossibleChanges(link);
    for (const uri of link.subscribers.keys()) this.#routeUpdate(link, RawObject.of({ uri }));
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
      this.#parts.onDropped('log-unattributable', link.upstream);
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
      this.#parts.onDropped('log-denied', link.upstream);
      return;
    }
    const view = viewOf(link, to);
    const viewed = upstreamIn(view, link.upstream);
    const labelled = viewed === undefined ? marked : loggerToClient(view, viewed, marked);
    if (!client.notify(method, labelled, exchange)) this.#parts.onDropped('log-undeliverable', link.upstream);
  }

  #routeUpdate(link: Link, params: RawObject | undefined): void {
    this.#parts.resourceCache.invalidate(link.upstream);
    const uri = params?.string('uri');
    if (params !== undefined && uri !== undefined) this.#parts.updates.onUpdated(link, uri, params);
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
      const audience = isPrivate(link) ? [...link.users][0]?.principal : link.audience;
      if (audience !== undefined) this.#parts.urlElicitations.complete(link.upstream, audience, elicitationId);
    }
    const to = this.#recipient(link, about, params);
    if (to === undefined) {
      this.#parts.onDropped('notification-unattributable', link.upstream);
      return;
    }
    if (!to.client.dialect.acceptsOtherNotifications) return;
    const isCompletion = method === 'notifications/elicitation/complete';
    // Others have got the page as text, without its id.
    if (isCompletion && !opensPages(to.client)) return;
    const mapped =
      isCompletion && elicitationId !== undefined
        ? params?.with(
            'elicitationId',
            JSON.stringify(elicitationIdToClient(viewOf(link, to), link.upstream, elicitationId)),
          )
        : params;
    // A notification that belongs to no request may arrive between two requests.
    if (!to.client.notify(method, mapped, about)) to.client.announce(method, mapped);
  }

  #routeListChange(link: Link, kind: ListKind): void {
    if (link.isRetired) return;
    this.#parts.resourceCache.invalidate(link.upstream);
    this.#parts.changedLists.onReported(link, kind);
  }
}

/** Returns the view in which the recipient of a message knows the upstream of a link. */
function viewOf({ upstream }: Link, { client, exchange }: Recipient): View {
  return viewWith(upstream, client.catalog.view, exchange?.view);
}
