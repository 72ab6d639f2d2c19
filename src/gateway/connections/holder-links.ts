import { setTimeout as sleep } from 'node:timers/promises';
import type { Logger } from 'pino';
import { GatewayError, toAnswer } from '../../errors.ts';
import { RawObject } from '../../json/json.ts';
import { type Answer, DONE } from '../../protocol/jsonrpc.ts';
import { detach } from '../../json/memo.ts';
import type { Severity } from '../../protocol/severity.ts';
import { backoffMs } from '../../upstream/rpc/backoff.ts';
import { isCallKey } from '../../upstream/connection-key.ts';
import type { CloseReason, Link } from '../../upstream/link.ts';
import type { UpstreamSubscription } from '../../upstream/upstream-subscription.ts';
import type { Upstream } from '../../upstream/upstream.ts';
import { atMost } from '../exchange/at-most.ts';
import { isWanted, lowestOf } from '../exchange/log-level.ts';
import type { Exchange } from '../exchange/exchange.ts';
import type { ConnectionHolder, Subscription } from '../exchange/connection-holder.ts';
import type { StateLosses } from './state-losses.ts';

type HolderLink = Link<Exchange, ConnectionHolder>;

/** A call does not wait longer than this for an upstream to take note of log levels and subscriptions. */
const PREPARE_MS = 1_000;

/**
 * The connections of each holder. Before a new one is used it gets the log level and the subscriptions of its holder, so that
 * it can take the place of a lost one.
 */
export class HolderLinks {
  readonly #upstreams: ReadonlyMap<string, Upstream<Exchange, ConnectionHolder>>;
  readonly #log: Logger;
  readonly #losses: StateLosses;
  readonly #beforeOpen: (holder: ConnectionHolder, upstream: string) => void;
  /** `<upstream> <holder>` of those whose subscriptions are being brought back. */
  readonly #restoring = new Set<string>();
  /** By URI, until the upstream has answered: two who subscribe at once are one subscription. */
  readonly #subscribing = new WeakMap<HolderLink, Map<string, Promise<Answer>>>();

  /** @param beforeOpen runs before a link of a holder is opened. */
  constructor(
    upstreams: ReadonlyMap<string, Upstream<Exchange, ConnectionHolder>>,
    losses: StateLosses,
    log: Logger,
    beforeOpen: (holder: ConnectionHolder, upstream: string) => void,
  ) {
    this.#beforeOpen = beforeOpen;
    this.#upstreams = upstreams;
    this.#losses = losses;
    this.#log = log;
  }

  /** Returns the link that serves this holder, if it is open. In the era of the holder's client, where the upstream has it. */
  ready(holder: ConnectionHolder, upstream: string): HolderLink | undefined {
    return holder.links.get(upstream);
  }

  /** @throws {GatewayError} `upstream-unavailable`, `overloaded` */
  open(holder: ConnectionHolder, upstreamId: string): Promise<HolderLink> {
    const known = holder.pendingLinks.get(upstreamId);
    if (known !== undefined) return known;
    const upstream = this.#upstreams.get(upstreamId);
    if (upstream === undefined) {
      return Promise.reject(new GatewayError('internal-error', { upstream: upstreamId }));
    }
    this.#beforeOpen(holder, upstreamId);
    const opening = this.#open(holder, upstream);
    if (upstream.config.isolation === 'call') return opening;
    holder.pendingLinks.set(upstreamId, opening);
    opening.then(
      (link) => {
        if (holder.pendingLinks.get(upstreamId) === opening && !link.connection.isClosed) {
          holder.links.set(upstreamId, link);
        }
      },
      () => {
        if (holder.pendingLinks.get(upstreamId) === opening) holder.pendingLinks.delete(upstreamId);
      },
    );
    return opening;
  }

  async #open(holder: ConnectionHolder, upstream: Upstream<Exchange, ConnectionHolder>): Promise<HolderLink> {
    const link = await upstream.link(holder);
    if (holder.closed.aborted) {
      upstream.releaseUser(holder);
      throw new GatewayError('session-unknown', { message: 'the session ended' });
    }
    const told = [...holder.subscriptions]
      .filter(([, to]) => to.upstream === link.upstream)
      .map(([known, { uri }]) => this.#resubscribe(link, holder, known, uri));
    await atMost([...told, this.#setLevel(link)], PREPARE_MS);
    return link;
  }

  /** Removes a link that has closed. Sessions with subscriptions there get a new one, where it ended by itself. */
  onLinkClosed(link: HolderLink, reason: CloseReason): void {
    for (const holder of link.users) {
      holder.pendingLinks.delete(link.upstream);
      holder.links.delete(link.upstream);
      if (reason === 'crash' || reason === 'forgotten') this.#restoreSubscriptions(holder, link.upstream);
    }
    this.#losses.onLinkClosed(link, reason);
  }

  /** A holder has come back: whoever owes it news is reached again, though nobody calls. */
  onRestored(holder: ConnectionHolder): void {
    const owing = new Set([...holder.subscriptions.values()].map(({ upstream }) => upstream));
    for (const upstream of owing) this.#restoreSubscriptions(holder, upstream);
  }

  /** Connects again and again until the session's subscriptions hold, or it has none any more. */
  #restoreSubscriptions(holder: ConnectionHolder, upstream: string): void {
    const key = `${upstream} ${holder.key}`;
    if (this.#restoring.has(key)) return;
    this.#restoring.add(key);
    const isOwed = () =>
      !holder.closed.aborted && [...holder.subscriptions.values()].some((to) => to.upstream === upstream);
    const attempts = async () => {
      for (let attempt = 1; isOwed(); attempt++) {
        try {
          await this.open(holder, upstream);
          return;
        } catch (thrown) {
          this.#log.debug({ err: thrown, upstream }, 'subscriptions not back yet');
          await sleep(backoffMs(attempt, Math.random()), undefined, { ref: false });
        }
      }
    };
    void attempts().finally(() => this.#restoring.delete(key));
  }

  /** Sends the lowest level that anybody on each connection wants. */
  async applyLogLevel(holder: ConnectionHolder): Promise<void> {
    const links = [...holder.links.values()];
    await atMost(
      links.map((link) => this.#setLevel(link)),
      PREPARE_MS,
    );
  }

  /** A request wants to hear of this level and above; its connection may have been asked for less. */
  async ensureLogLevel(holder: ConnectionHolder, link: HolderLink, level: Severity): Promise<void> {
    if (holder.logLevel !== undefined && isWanted(level, holder.logLevel)) return;
    holder.logLevel = level;
    await atMost([this.#setLevel(link)], PREPARE_MS);
  }

  /** Never rejects: without it there are more or fewer log messages, and that is all. */
  async #setLevel(link: HolderLink): Promise<void> {
    // In the modern era each request says it for itself.
    if (link.hello.capabilities.raw('logging') === undefined || link.era === 'modern') return;
    const level = lowestOf([...link.users].map((holder) => holder.logLevel));
    if (level === undefined) return;
    try {
      await this.#call(link, 'logging/setLevel', RawObject.of({ level }));
    } catch (thrown) {
      this.#log.warn({ err: thrown, upstream: link.upstream }, 'log level not set');
    }
  }

  async subscribe(holder: ConnectionHolder, known: string, to: Subscription): Promise<Answer> {
    const link = await this.open(holder, to.upstream);
    const canSubscribe = link.hello.capabilities.object('resources')?.raw('subscribe') === 'true';
    if (!canSubscribe || isCallKey(link.key)) {
      this.#upstreams.get(to.upstream)?.onCallEnd(link);
      const why = canSubscribe ? 'is connected for each call alone and keeps no subscriptions' : 'has no subscriptions';
      throw new GatewayError('method-not-found', {
        upstream: to.upstream,
        message: `upstream "${to.upstream}" ${why}`,
      });
    }
    const answer = await this.#addSubscriber(link, holder, to.uri);
    if (answer.kind === 'result')
      holder.subscriptions.set(detach(known), { upstream: to.upstream, uri: detach(to.uri) });
    return answer;
  }

  async unsubscribe(holder: ConnectionHolder, known: string, to: Subscription): Promise<Answer> {
    const had = holder.subscriptions.delete(known);
    const isStillWanted = [...holder.subscriptions.values()].some(
      ({ upstream, uri }) => upstream === to.upstream && uri === to.uri,
    );
    const link = holder.links.get(to.upstream);
    if (!had || isStillWanted || link === undefined) return DONE;
    return (await this.#removeSubscriber(link, holder, to.uri)) ?? DONE;
  }

  /** The holder is over: gives back all that was kept for it. */
  releaseHolder(holder: ConnectionHolder): void {
    for (const link of holder.links.values()) {
      for (const [uri, holders] of link.subscribers) {
        // A link of its own ends with the holder, and its subscriptions with it.
        if (!holders.has(holder) || this.#upstreams.get(link.upstream)?.config.isolation === 'session') continue;
        this.#removeSubscriber(link, holder, uri).catch((thrown: unknown) => {
          this.#log.debug({ err: thrown, upstream: link.upstream }, 'not unsubscribed');
        });
      }
    }
    holder.pendingLinks.clear();
    holder.links.clear();
    for (const upstream of this.#upstreams.values()) upstream.releaseUser(holder);
  }

  /** Sessions that are subscribed to an upstream's resource, or to one it is a part of. */
  *subscribers(link: HolderLink, uri: string): Iterable<ConnectionHolder> {
    const told = new Set<ConnectionHolder>();
    for (const [subscribed, holders] of link.subscribers) {
      if (!isWithin(uri, subscribed)) continue;
      for (const holder of holders) {
        if (told.has(holder)) continue;
        told.add(holder);
        yield holder;
      }
    }
  }

  /** The first who wants to hear of a resource makes us subscribe; the others join. */
  async #addSubscriber(link: HolderLink, holder: ConnectionHolder, uri: string): Promise<Answer> {
    while (!link.subscribers.has(uri)) {
      const joined = this.#subscribing.get(link)?.get(uri);
      const answer = await (joined ?? this.#subscribe(link, uri));
      if (answer.kind === 'error') return answer;
      // Whoever began it may have been the only one, and gone meanwhile.
      if (joined === undefined) break;
    }
    if (holder.closed.aborted) {
      if (!link.subscribers.has(uri)) await this.#setSubscription(link, 'resources/unsubscribe', uri);
      throw new GatewayError('session-unknown', { message: 'the session ended' });
    }
    const holders = link.subscribers.get(uri) ?? new Set();
    link.subscribers.set(uri, holders.add(holder));
    return DONE;
  }

  /** The very promise of the answer: see {@link #tune}. */
  #subscribe(link: HolderLink, uri: string): Promise<Answer> {
    const underWay = this.#subscribing.get(link) ?? new Map<string, Promise<Answer>>();
    this.#subscribing.set(link, underWay);
    const subscribing = this.#setSubscription(link, 'resources/subscribe', uri);
    underWay.set(uri, subscribing);
    const over = () => underWay.delete(uri);
    subscribing.then(over, over);
    return subscribing;
  }

  /** Nobody knows what has changed since the connection before this one. */
  async #resubscribe(link: HolderLink, holder: ConnectionHolder, known: string, uri: string): Promise<void> {
    try {
      const answer = await this.#addSubscriber(link, holder, uri);
      if (answer.kind === 'result') holder.announce('notifications/resources/updated', RawObject.of({ uri: known }));
    } catch (thrown) {
      this.#log.warn({ err: thrown, upstream: link.upstream }, 'not subscribed again');
    }
  }

  /** The last one makes us unsubscribe, and gets the upstream's answer. */
  async #removeSubscriber(link: HolderLink, holder: ConnectionHolder, uri: string): Promise<Answer | undefined> {
    const holders = link.subscribers.get(uri);
    if (holders === undefined || !holders.delete(holder) || holders.size > 0) return undefined;
    link.subscribers.delete(uri);
    return await this.#setSubscription(link, 'resources/unsubscribe', uri);
  }

  /** Begins or ends to hear of a resource, in the words of the link's era. */
  #setSubscription(
    link: HolderLink,
    method: 'resources/subscribe' | 'resources/unsubscribe',
    uri: string,
  ): Promise<Answer> {
    // Not a tick later than the answer: the first update may come right behind it.
    if (link.subscription === undefined) return this.#call(link, method, RawObject.of({ uri }));
    if (method === 'resources/subscribe') return addToSubscription(link.subscription, link.upstream, uri);
    link.subscription.remove(uri);
    return Promise.resolve(DONE);
  }

  #call(link: HolderLink, method: string, params: RawObject): Promise<Answer> {
    const timeoutMs = this.#upstreams.get(link.upstream)?.config.timeouts.callMs ?? 0;
    link.usedMs = performance.now();
    const limits = { timeoutMs, maxMs: timeoutMs, progress: false, context: undefined } as const;
    return link.connection.call(method, params, limits).answer;
  }
}

async function addToSubscription(listening: UpstreamSubscription, upstream: string, uri: string): Promise<Answer> {
  if (await listening.add(uri)) return DONE;
  return toAnswer(new GatewayError('unknown-resource', { upstream, message: uri, data: { uri } }));
}

/** A server may report a part of what was subscribed to. */
export function isWithin(uri: string, subscribed: string): boolean {
  return uri === subscribed || uri.startsWith(subscribed.endsWith('/') ? subscribed : `${subscribed}/`);
}
