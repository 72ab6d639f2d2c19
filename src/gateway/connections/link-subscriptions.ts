import { settlesWithin } from '../../deadline.ts';
import { GatewayError } from '../../errors.ts';
import { detach } from '../../json/kept-text.ts';
import { type Answer, EMPTY_RESULT } from '../../protocol/jsonrpc.ts';
import type { UpstreamSubscription } from '../../upstream/link/upstream-subscription.ts';
import { UPSTREAM_DIALECTS } from '../dialects/upstream-dialect.ts';
import type { ConnectionHolder, Link, Subscription } from '../exchange/connection-holder.ts';
import { getOrMake } from '../../map-entries.ts';

export type SubscriptionMethod = 'resources/subscribe' | 'resources/unsubscribe';

/** Sends a subscribe or unsubscribe request to a legacy upstream. */
export type SendSubscription = (link: Link, method: SubscriptionMethod, uri: string) => Promise<Answer>;

/** The longest that a subscription waits until the upstream has answered the end of an earlier one to the same resource. */
const UNSUBSCRIBE_MS = 10_000;

/** Subscribes links to resources, once for all holders that subscribe to the resource on a link. */
export class LinkSubscriptions {
  readonly #send: SendSubscription;
  /**
   * Subscriptions that the upstream has not answered yet, by URI. A second holder waits for the same answer. Undefined stands for the
   * end of an earlier subscription, after which this one has to be sent.
   */
  readonly #pending = new WeakMap<Link, Map<string, Promise<Answer | undefined>>>();
  /** Ends of subscriptions that a legacy upstream has not answered yet, by URI. Over HTTP a later subscription could overtake them. */
  readonly #ending = new WeakMap<Link, Map<string, Promise<undefined>>>();

  constructor(send: SendSubscription) {
    this.#send = send;
  }

  /**
   * Adds a holder to the subscribers of a resource. Subscribes at the upstream for the first one. Returns undefined if the upstream was
   * not asked, because another holder has, or has asked for, the subscription.
   *
   * @throws {GatewayError} `session-unknown` if the holder is closed meanwhile.
   */
  async add(link: Link, holder: ConnectionHolder, uri: string): Promise<Answer | undefined> {
    let isAsked = false;
    while (!link.subscribers.has(uri)) {
      const joined = this.#pending.get(link)?.get(uri);
      isAsked ||= joined === undefined;
      const answer = await (joined ?? this.#subscribe(link, uri));
      if (answer === undefined) continue;
      if (answer.kind === 'error') return answer;
      // The holder that began the subscription may have been the only one, and closed meanwhile.
      if (joined === undefined) break;
    }
    if (holder.closed.aborted) {
      if (!link.subscribers.has(uri)) await this.#unsubscribe(link, uri);
      throw new GatewayError('session-unknown', { message: 'the session ended' });
    }
    const holders = link.subscribers.get(uri) ?? new Set();
    link.subscribers.set(detach(uri), holders.add(holder));
    link.subscribedLengths.add(uri.length);
    return isAsked ? EMPTY_RESULT : undefined;
  }

  /**
   * Removes a holder from the subscribers of a resource. Unsubscribes at the upstream after the last one, and returns
   * the upstream's answer. Returns undefined if the upstream was not asked.
   */
  async remove(link: Link, holder: ConnectionHolder, uri: string): Promise<Answer | undefined> {
    const holders = link.subscribers.get(uri);
    if (holders === undefined || !holders.delete(holder) || holders.size > 0) return undefined;
    link.subscribers.delete(uri);
    return await this.#unsubscribe(link, uri);
  }

  /** Returns the number of resources with a subscription or a pending one. */
  count(link: Link): number {
    return link.subscribers.size + (this.#pending.get(link)?.size ?? 0);
  }

  /** Returns whether the link has a subscription to the resource, or a pending one. */
  has(link: Link, uri: string): boolean {
    return link.subscribers.has(uri) || this.#pending.get(link)?.has(uri) === true;
  }

  /** Returns the promise of a subscription that the upstream has not answered yet; undefined if there is none. */
  pending(link: Link, uri: string): Promise<unknown> | undefined {
    return this.#pending.get(link)?.get(uri);
  }

  /** Returns the upstream's promise without a wrapper, whose extra turn could let the first update overtake the answer. */
  #subscribe(link: Link, uri: string): Promise<Answer | undefined> {
    const pending = getOrMake(this.#pending, link, () => new Map());
    const subscribing = this.#ending.get(link)?.get(uri) ?? this.#sendSubscribe(link, uri);
    pending.set(uri, subscribing);
    const onEnd = () => pending.delete(uri);
    subscribing.then(onEnd, onEnd);
    return subscribing;
  }

  #sendSubscribe(link: Link, uri: string): Promise<Answer> {
    if (link.subscription === undefined) return this.#send(link, 'resources/subscribe', uri);
    return addToSubscription(link.subscription, link.upstream, uri);
  }

  #unsubscribe(link: Link, uri: string): Promise<Answer> {
    if (link.subscription !== undefined) {
      link.subscription.remove(uri);
      return Promise.resolve(EMPTY_RESULT);
    }
    const answered = this.#send(link, 'resources/unsubscribe', uri);
    const ending = this.#ending.get(link) ?? new Map<string, Promise<undefined>>();
    const onEnd = (): undefined => void ending.delete(uri);
    this.#ending.set(link, ending.set(uri, settlesWithin(answered, UNSUBSCRIBE_MS).then(onEnd)));
    return answered;
  }
}

/** Returns whether a subscription may be sent on this link. */
export function canSubscribe({ era, hello, place }: Link): boolean {
  const resources = hello.capabilities.object('resources');
  if (resources === undefined || place.purpose === 'call') return false;
  return UPSTREAM_DIALECTS[era].acceptsSubscriptions(resources);
}

/** Returns whether a holder has this subscription, and is not closed. */
export function isSubscribed({ closed, subscriptions }: ConnectionHolder, to: Subscription): boolean {
  if (closed.aborted) return false;
  return [...subscriptions.values()].some(({ upstream, uri }) => upstream === to.upstream && uri === to.uri);
}

/** Returns the holders that are subscribed to a resource or to a parent of it, each once. */
export function subscribersOf(links: Iterable<Link>, uri: string): ReadonlySet<ConnectionHolder> {
  const found = new Set<ConnectionHolder>();
  for (const { subscribers, subscribedLengths } of links) {
    for (const length of subscribedLengths) {
      const subscribed = uri.slice(0, length);
      if (length > uri.length || !isWithin(uri, subscribed)) continue;
      for (const holder of subscribers.get(subscribed) ?? []) found.add(holder);
    }
  }
  return found;
}

/**
 * Returns whether a URI is the subscribed one or a part of it: a server may report a part of the subscribed resource.
 */
export function isWithin(uri: string, subscribed: string): boolean {
  if (!uri.startsWith(subscribed)) return false;
  return uri.length === subscribed.length || subscribed.endsWith('/') || uri[subscribed.length] === '/';
}

async function addToSubscription(subscription: UpstreamSubscription, upstream: string, uri: string): Promise<Answer> {
  if (await subscription.add(uri)) return EMPTY_RESULT;
  throw new GatewayError('unknown-resource', { upstream, message: uri, data: { uri } });
}
