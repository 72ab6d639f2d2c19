import { GatewayError } from '../../errors.ts';
import { detach } from '../../json/kept-text.ts';
import type { ConnectionHolder, Subscription } from '../exchange/connection-holder.ts';
import { resolveUri } from '../exchange/route.ts';

/** Adds the stored subscriptions of a session that its catalog leads to by now. Returns them, by their published URIs. The others stay unresolved. */
export function addStored(holder: ConnectionHolder): ReadonlyMap<string, Subscription> {
  const added = new Map<string, Subscription>();
  const { catalog, subscriptions, unresolved = new Map<string, string | undefined>() } = holder;
  for (const [uri, upstream] of unresolved) {
    const resource = resolveUri(catalog, uri);
    if (resource instanceof GatewayError) continue;
    // Other rights may lead the URI to another upstream, to which the client has not subscribed.
    if (upstream !== undefined && resource.upstream !== upstream) continue;
    // The credentials of before may have had more rights. It stays stored, since those of a later request may have them too.
    if (catalog.restriction?.allowsUpdates(resource.upstream, resource.uri) === false) continue;
    unresolved.delete(uri);
    if (subscriptions.has(uri)) continue;
    const to = { upstream: resource.upstream, uri: detach(resource.uri) };
    subscriptions.set(detach(uri), to);
    added.set(uri, to);
  }
  if (unresolved.size === 0) holder.unresolved = undefined;
  return added;
}

/** The shortest time between two returns of subscriptions of one session. */
const RETURN_MS = 10_000;

/** Paces the returns of subscriptions: two tokens that a client uses side by side take and give their rights with each request. */
export class SubscriptionReturns {
  readonly #bringBack: (holder: ConnectionHolder) => boolean;
  /** The time of the last return; monotonic ms. */
  readonly #lastMs = new WeakMap<ConnectionHolder, number>();
  readonly #waiting = new WeakSet<ConnectionHolder>();

  /** @param bringBack brings back what may return. Returns whether there was any. */
  constructor(bringBack: (holder: ConnectionHolder) => boolean) {
    this.#bringBack = bringBack;
  }

  /** Brings the subscriptions of a holder back, now or when the pause is over. */
  run(holder: ConnectionHolder): void {
    if (this.#waiting.has(holder) || holder.closed.aborted) return;
    const nowMs = performance.now();
    const waitMs = (this.#lastMs.get(holder) ?? -Infinity) + RETURN_MS - nowMs;
    if (waitMs <= 0) {
      if (this.#bringBack(holder)) this.#lastMs.set(holder, nowMs);
      return;
    }
    this.#waiting.add(holder);
    const onTime = () => {
      this.#waiting.delete(holder);
      this.run(holder);
    };
    setTimeout(onTime, waitMs).unref();
  }
}

export function subscribedUpstreams({ subscriptions }: ConnectionHolder): ReadonlySet<string> {
  return new Set([...subscriptions.values()].map(({ upstream }) => upstream));
}

/** Removes the subscriptions of a client group at an upstream. A session keeps them, as its record does: its client does not learn of the loss. */
export function removeSubscriptions(holder: ConnectionHolder, upstream: string): void {
  if (holder.isOneClient) return;
  for (const [uri, to] of holder.subscriptions) {
    if (to.upstream !== upstream) continue;
    holder.subscriptions.delete(uri);
    holder.onSubscriptionLost(uri, upstream);
  }
}
