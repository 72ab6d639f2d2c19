import type { SharedParts } from '../records/shared-parts.ts';
import { GatewayError } from '../../errors.ts';
import { RawObject } from '../../json/json.ts';
import type { Answer } from '../../protocol/jsonrpc.ts';
import { detach } from '../../json/kept-text.ts';
import { endAfter } from '../../telemetry/tracing/mcp-spans.ts';
import type { Span } from '../../telemetry/tracing/tracing.ts';
import { isPerCall } from '../../upstream/connection-key.ts';
import { closesWithUsers } from '../../upstream/idle-links.ts';
import type { CloseReason } from '../../upstream/link/link.ts';
import { resultWithin } from '../../deadline.ts';
import type { OpenExchange } from '../exchange/open-exchange.ts';
import { removedUpstream } from '../exchange/route.ts';
import type { ConnectionHolder, Link, Subscription, Upstream } from '../exchange/connection-holder.ts';
import { targetOf } from '../handles/attachments.ts';
import { LinkLevels, PREPARE_MS } from './link-levels.ts';
import { canSubscribe, isSubscribed, LinkSubscriptions } from './link-subscriptions.ts';
import { SiblingSubscriptions } from './sibling-subscriptions.ts';
import { addStored, subscribedUpstreams } from './stored-subscriptions.ts';
import type { StateLosses } from './state-losses.ts';
import { SubscriptionRestorer } from './subscription-restorer.ts';

/** The time before a subscription is made once more that the new process of an upstream has refused. */
const RESUBSCRIBE_MS = 10_000;

export interface HolderLinksParts extends Pick<SharedParts, 'upstreams' | 'views' | 'log' | 'siblingsOf' | 'onLimit'> {
  readonly stateLosses: StateLosses;
  /** Runs when a link continues a session that an earlier process had at its upstream. */
  readonly onReattached: (link: Link) => void;
  readonly beforeOpen: (holder: ConnectionHolder, upstream: string) => void;
  readonly onOpen: (link: Link, holder: ConnectionHolder) => void;
}

/**
 * Opens and releases the links of connection holders. A new link gets the log level and subscriptions of its holder
 * before it is used, so that it can replace a lost one.
 */
export class HolderLinks {
  readonly #parts: HolderLinksParts;
  readonly #subscriptions = new LinkSubscriptions((link, method, uri) =>
    this.#call(link, method, RawObject.of({ uri })),
  );
  readonly #siblings: SiblingSubscriptions;
  readonly #restorer: SubscriptionRestorer;
  readonly levels: LinkLevels;

  constructor(parts: HolderLinksParts) {
    this.#parts = parts;
    this.#siblings = new SiblingSubscriptions({ ...parts, subscriptions: this.#subscriptions });
    this.#restorer = new SubscriptionRestorer({ ...parts, open: (holder, upstream) => this.open(holder, upstream) });
    this.levels = new LinkLevels(
      (link, level) => this.#call(link, 'logging/setLevel', RawObject.of({ level })),
      parts.log,
    );
  }

  /**
   * Returns the open link of a holder, in the era of the holder's client if the upstream supports it. Returns undefined
   * if no link is open.
   */
  findOpen(holder: ConnectionHolder, upstream: Upstream): Link | undefined {
    return upstream.isRetired ? undefined : holder.links.get(upstream.id);
  }

  /**
   * Returns the link of a holder to the upstream of this id, and opens it if necessary.
   *
   * @throws {GatewayError} `upstream-unavailable`, `overloaded`
   */
  open(holder: ConnectionHolder, upstreamId: string): Promise<Link> {
    const upstream = this.#parts.upstreams.get(upstreamId);
    if (upstream !== undefined) return this.openAt(holder, upstream);
    return Promise.reject(removedUpstream(upstreamId));
  }

  /**
   * Opens the link of a holder for a request. The wait is a span of the request, and ends if the request is cancelled.
   *
   * @throws {GatewayError} `upstream-unavailable`, `overloaded`, `cancelled`
   */
  openFor(exchange: OpenExchange, holder: ConnectionHolder, upstream: Upstream): Promise<Link> {
    exchange.throwIfCancelled();
    const span = exchange.span?.child('internal', `connect ${upstream.id}`);
    const wanted = this.openAt(holder, upstream, span);
    const opening = exchange.unlessCancelled(wanted);
    // The connection of one call is of no use to others, and opens although the call is cancelled.
    if (upstream.config.isolation === 'call') {
      opening.catch(async () => upstream.leave(await wanted)).catch(() => undefined);
    }
    return span === undefined ? opening : endAfter(span, upstream.id, opening);
  }

  /** Closes a link that serves a single call, after its use for something else. */
  leave(link: Link): void {
    this.#parts.upstreams.getEvenIfLeaving(link.upstream)?.leave(link);
  }

  /**
   * Returns the link of a holder, and opens it if necessary. A call that began before its upstream was replaced opens one there.
   *
   * @param span of the request that needs the link, if it is traced.
   * @throws {GatewayError} `upstream-unavailable`, `overloaded`
   */
  openAt(holder: ConnectionHolder, upstream: Upstream, span?: Span): Promise<Link> {
    const upstreamId = upstream.id;
    // The links that the holder keeps by this id are of the upstream that has replaced this one.
    if (upstream.isRetired) return this.#open(holder, upstream, span);
    const known = holder.linkPromises.get(upstreamId);
    if (known !== undefined) return known;
    this.#parts.beforeOpen(holder, upstreamId);
    const opening = this.#open(holder, upstream, span);
    if (upstream.config.isolation === 'call') return opening;
    holder.linkPromises.set(upstreamId, opening);
    opening.then(
      (link) => {
        if (holder.linkPromises.get(upstreamId) === opening && !link.connection.isClosed) {
          holder.links.set(upstreamId, link);
        }
      },
      () => {
        if (holder.linkPromises.get(upstreamId) === opening) holder.linkPromises.delete(upstreamId);
      },
    );
    return opening;
  }

  async #open(holder: ConnectionHolder, upstream: Upstream, span: Span | undefined): Promise<Link> {
    releaseIfClosed(holder, upstream);
    const kept = upstream.isRetired ? undefined : holder.attachments?.get(upstream.id);
    // A reload may have named another server meanwhile.
    const attachment = kept !== undefined && kept.target === targetOf(upstream.config) ? kept : undefined;
    const known = upstream.isRetired ? [...upstream.links()].filter(({ users }) => users.has(holder)) : [];
    const link = await upstream.link(holder, span, attachment);
    // Another process may have the session, and continue it at the upstream.
    if (holder.isLeft && link.isReattached) link.connection.setLeft(true);
    releaseIfClosed(holder, upstream);
    this.#parts.stateLosses.onLinked(holder, link);
    const isContinued = kept !== undefined && link.isReattached;
    if (kept !== undefined) {
      holder.attachments?.delete(upstream.id);
      if (isContinued) this.#onContinued(holder, link);
      this.#parts.stateLosses.onAttachmentTried(holder, link);
    }
    if (upstream.isRetired) {
      if (isContinued) this.#parts.stateLosses.onLinkClosed(link, 'replaced');
      // The upstream that has taken the place has the subscriptions and lists, and only its session may be continued.
      if (!known.includes(link)) await resultWithin(this.levels.set(link), PREPARE_MS);
      return link;
    }
    holder.onLinkOpen(link);
    this.#parts.onOpen(link, holder);
    const isKept = !this.#restorer.keepsNothing(upstream.id);
    const restored = [...holder.subscriptions].filter(([, to]) => isKept && to.upstream === link.upstream);
    const resubscribing = restored.map(([publishedUri, to]) => this.#resubscribe(link, holder, publishedUri, to));
    await resultWithin(
      Promise.all([...resubscribing, this.#siblings.onLinkOpen(link, holder), this.levels.set(link)]),
      PREPARE_MS,
    );
    // The holder did not have the link yet when it ended one of these, or closed.
    for (const [, to] of restored) if (!isSubscribed(holder, to)) this.#remove(link, holder, to.uri);
    releaseIfClosed(holder, upstream);
    if (upstream.isRetired && isContinued) this.#parts.stateLosses.onLinkClosed(link, 'replaced');
    return link;
  }

  /** Another process may continue the session as this one does: the store has it, whether it can be stored again or not. */
  #onContinued(holder: ConnectionHolder, link: Link): void {
    (holder.attachable ??= new Set()).add(link.upstream);
    this.#parts.onReattached(link);
  }

  /**
   * Removes a closed link from its holders. After a crash or a lost session, holders with subscriptions there get a new
   * link.
   */
  onLinkClosed(link: Link, reason: CloseReason): void {
    for (const holder of link.users) {
      removeLink(holder, link.upstream);
      if (reason === 'crash' || reason === 'forgotten') this.#restorer.restore(holder, link.upstream);
    }
    this.#parts.stateLosses.onLinkClosed(link, reason);
  }

  /**
   * Makes holders use the upstream that has taken the place of a removed or replaced one. Their requests in flight stay on their
   * links. Runs in the same turn as the replacement.
   */
  onReplaced(upstreamId: string, holders: Iterable<ConnectionHolder>): void {
    const links = new Set<Link>();
    for (const holder of holders) {
      const link = holder.links.get(upstreamId);
      if (link !== undefined) links.add(link);
      removeLink(holder, upstreamId);
      holder.ownOffers.delete(upstreamId);
      this.#restorer.move(holder, upstreamId);
    }
    for (const link of links) this.#parts.stateLosses.onLinkClosed(link, 'replaced');
  }

  /** Restores the subscriptions that sessions have kept while an upstream was removed, or was not at their endpoint. */
  onConfigChanged(holders: Iterable<ConnectionHolder>): void {
    for (const holder of holders)
      for (const upstream of subscribedUpstreams(holder))
        if (!holder.linkPromises.has(upstream)) this.#restorer.restore(holder, upstream);
  }

  /** Restores the stored subscriptions of a session that its catalog leads to by now. Returns whether there are any. */
  bringBack(holder: ConnectionHolder): boolean {
    const added = addStored(holder);
    for (const [uri, to] of added) this.#subscribeAgain(holder, uri, to);
    return added.size > 0;
  }

  /** Makes a subscription that a holder has on its link. One that opens makes all of them. */
  #subscribeAgain(holder: ConnectionHolder, publishedUri: string, to: Subscription): void {
    const open = () => this.#restorer.move(holder, to.upstream);
    const known = holder.linkPromises.get(to.upstream);
    if (known === undefined) open();
    else known.then((link) => this.#resubscribe(link, holder, publishedUri, to), open);
  }

  /** Opens links to the upstreams where a restored session has subscriptions or a session, before its first call. */
  onRestored(holder: ConnectionHolder): void {
    const upstreams = subscribedUpstreams(holder);
    for (const upstream of upstreams) this.#restorer.restore(holder, upstream);
    for (const upstream of holder.attachments?.keys() ?? []) {
      if (upstreams.has(upstream) || this.#restorer.keepsNothing(upstream)) continue;
      this.open(holder, upstream).catch((thrown: unknown) => {
        this.#parts.log.debug({ err: thrown, upstream }, 'session at the upstream not continued yet');
      });
    }
  }

  /**
   * Subscribes a holder to a resource. Later updates reach the client under `publishedUri`. Returns undefined if the upstream was not asked,
   * because others share the subscription.
   *
   * @param judgeAgain throws if the client may not subscribe any more, after a wait.
   * @throws {GatewayError} `method-not-found` if the upstream has no subscriptions.
   */
  async subscribe(
    holder: ConnectionHolder,
    publishedUri: string,
    to: Subscription,
    judgeAgain?: () => void,
  ): Promise<Answer | undefined> {
    const upstream = this.#parts.upstreams.get(to.upstream);
    // Without a start, which would only show it.
    if (upstream !== undefined && isPerCall(upstream, holder.era)) throw noSubscriptions(to.upstream, true);
    const link = await this.open(holder, to.upstream);
    // One that serves a single call keeps no subscription, whether the client is denied or not.
    this.leave(link);
    judgeAgain?.();
    if (!canSubscribe(link)) throw noSubscriptions(to.upstream, link.place.purpose === 'call');
    let answer: Answer | undefined;
    do {
      answer = (await this.#subscriptions.add(link, holder, to.uri)) ?? answer;
      if (answer?.kind === 'error') return answer;
      // An earlier one of the holder, which has ended before the upstream answered it, ends both.
    } while (link.subscribers.get(to.uri)?.has(holder) !== true);
    try {
      judgeAgain?.();
    } catch (thrown) {
      // A reload ends the subscriptions that a holder has, and it did not have this one yet.
      this.#remove(link, holder, to.uri);
      throw thrown;
    }
    const subscription = { upstream: to.upstream, uri: detach(to.uri) };
    holder.unresolved?.delete(publishedUri);
    holder.subscriptions.set(detach(publishedUri), subscription);
    // The upstream was replaced before it answered.
    if (link.isRetired) this.#subscribeAgain(holder, publishedUri, subscription);
    await resultWithin(this.#siblings.onSubscribed(holder, subscription), PREPARE_MS);
    return answer;
  }

  /** Returns the promise of a subscription that the upstream has not answered yet; undefined if there is none. */
  pendingSubscription(link: Link, uri: string): Promise<unknown> | undefined {
    return this.#subscriptions.pending(link, uri);
  }

  /**
   * Removes a subscription of a holder. Unsubscribes at the upstream if no other holder needs the subscription. Returns undefined if the
   * upstream was not asked.
   */
  async unsubscribe(holder: ConnectionHolder, publishedUri: string, to: Subscription): Promise<Answer | undefined> {
    holder.unresolved?.delete(publishedUri);
    const had = holder.subscriptions.delete(publishedUri);
    if (!had || isSubscribed(holder, to)) return undefined;
    this.#siblings.onUnsubscribed(holder, to);
    const link = holder.links.get(to.upstream);
    return link && (await this.#subscriptions.remove(link, holder, to.uri));
  }

  /** Releases the link of a holder to an upstream, because another process has it, or the holder may not use it any more. */
  releaseAt(holder: ConnectionHolder, upstreamId: string): void {
    removeLink(holder, upstreamId);
    // The next request makes the catalog anew. Nobody finds the holder by the link when it closes.
    if (holder.ownOffers.delete(upstreamId)) holder.catalogVersion = 0;
    const upstream = this.#parts.upstreams.getEvenIfLeaving(upstreamId);
    if (upstream !== undefined) this.levels.releaseUser(holder, upstream);
  }

  /**
   * Releases a link that its holder may not use any more.
   *
   * @param isDenied whether the access policy hides the upstream. If it has left the endpoint, it may come back, and the next answer says that its state is lost.
   */
  releaseHidden(holder: ConnectionHolder, link: Link, isDenied: boolean): void {
    if (!this.#closesWithUser(link)) this.#endSubscriptions(link, holder);
    else if (!isDenied) this.#parts.stateLosses.onLinkClosed(link, 'replaced');
    this.releaseAt(holder, link.upstream);
  }

  /** Leaves the sessions of a holder at upstreams to another process. Requests in flight end on these links. */
  leaveSessions(holder: ConnectionHolder): void {
    holder.isLeft = true;
    for (const id of holder.attachable ?? []) {
      const link = holder.links.get(id) ?? this.#preparedAt(id, holder);
      link?.connection.setLeft(true);
    }
  }

  /** Returns the link that is being prepared for a holder, which does not have it yet. */
  #preparedAt(upstreamId: string, holder: ConnectionHolder): Link | undefined {
    for (const link of this.#parts.upstreams.get(upstreamId)?.links() ?? []) if (link.users.has(holder)) return link;
    return undefined;
  }

  /** Releases all links and subscriptions of a holder. @param isLeft leaves its sessions at upstreams to another process. */
  releaseHolder(holder: ConnectionHolder, isLeft = false): void {
    this.#siblings.release(holder);
    if (isLeft) this.leaveSessions(holder);
    for (const link of holder.links.values()) if (!this.#closesWithUser(link)) this.#endSubscriptions(link, holder);
    holder.linkPromises.clear();
    holder.links.clear();
    for (const upstream of this.#parts.upstreams.values()) this.levels.releaseUser(holder, upstream);
    for (const upstream of this.#parts.upstreams.leaving()) this.levels.releaseUser(holder, upstream);
  }

  /** Returns whether a link closes, and so do its subscriptions, when its only user is released. */
  #closesWithUser(link: Link): boolean {
    const config = this.#parts.upstreams.get(link.upstream)?.config;
    return link.users.size === 1 && config !== undefined && closesWithUsers(link, config);
  }

  #endSubscriptions(link: Link, holder: ConnectionHolder): void {
    for (const [uri, holders] of link.subscribers) if (holders.has(holder)) this.#remove(link, holder, uri);
  }

  /**
   * Subscribes a new link to a resource of the holder. Announces an update, since the resource may have changed
   * meanwhile. A session whose upstream refuses it is subscribed once more later: a new process may still load its resources.
   */
  async #resubscribe(
    link: Link,
    holder: ConnectionHolder,
    publishedUri: string,
    to: Subscription,
    mayRepeat = holder.isOneClient,
  ): Promise<void> {
    const { upstream } = link;
    try {
      const answer = await this.#subscriptions.add(link, holder, to.uri);
      if (answer?.kind !== 'error') {
        if (!isSubscribed(holder, to)) this.#remove(link, holder, to.uri);
        else if (holder.catalog.restriction?.allowsUpdateNow(to.upstream, to.uri) !== false)
          holder.announce('notifications/resources/updated', RawObject.of({ uri: publishedUri }));
        return;
      }
      this.#parts.log.warn({ upstream, code: answer.error.code }, 'subscription not restored');
    } catch (thrown) {
      this.#parts.log.warn({ err: thrown, upstream }, 'subscription not restored');
    }
    // The next link makes it again.
    const isOver = () =>
      link.connection.isClosed ||
      link.isRetired ||
      holder.closed.aborted ||
      holder.subscriptions.get(publishedUri) !== to;
    if (isOver()) return;
    if (!holder.isOneClient) {
      this.unsubscribe(holder, publishedUri, to).catch(() => undefined);
      holder.onSubscriptionLost(publishedUri, to.upstream);
    } else if (mayRepeat) {
      const again = () => {
        if (!isOver()) void this.#resubscribe(link, holder, publishedUri, to, false);
      };
      setTimeout(again, RESUBSCRIBE_MS).unref();
    }
  }

  /** Ends a subscription of a holder on a link that it does not need any more. */
  #remove(link: Link, holder: ConnectionHolder, uri: string): void {
    this.#subscriptions.remove(link, holder, uri).catch((thrown: unknown) => {
      this.#parts.log.debug({ err: thrown, upstream: link.upstream }, 'cannot unsubscribe from a resource');
    });
  }

  #call(link: Link, method: string, params: RawObject): Promise<Answer> {
    const timeoutMs = this.#parts.upstreams.getEvenIfLeaving(link.upstream)?.config.timeouts.callMs ?? 0;
    link.usedMs = performance.now();
    const limits = { timeoutMs, maxMs: timeoutMs, progress: false, context: undefined } as const;
    return link.connection.call(method, params, limits).answer;
  }
}

/** Releases the links of a holder that has closed while one was opened. @throws {GatewayError} `session-unknown` if it has. */
function releaseIfClosed(holder: ConnectionHolder, upstream: Upstream): void {
  if (!holder.closed.aborted) return;
  upstream.releaseUser(holder);
  throw new GatewayError('session-unknown', { message: 'the session ended' });
}

function noSubscriptions(upstream: string, isOfOneCall: boolean): GatewayError {
  const why = isOfOneCall ? 'is connected for each call alone and keeps no subscriptions' : 'has no subscriptions';
  return new GatewayError('method-not-found', { upstream, message: `upstream "${upstream}" ${why}` });
}

function removeLink(holder: ConnectionHolder, upstream: string): void {
  holder.linkPromises.delete(upstream);
  holder.links.delete(upstream);
}
