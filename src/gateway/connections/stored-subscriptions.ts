import { GatewayError } from '../../errors.ts';
import { detach } from '../../json/kept-text.ts';
import type { ConnectionHolder, Subscription } from '../exchange/connection-holder.ts';
import { resolveUri } from '../exchange/route.ts';

/** Adds the stored subscriptions of a session that its catalog leads to by now. Returns them, by their published URIs. The others stay unresolved. */
export function addStored(holder: ConnectionHolder): ReadonlyMap<string, Subscription> {
  const added = new Map<string, Subscription>();
  const { catalog, subscriptions, unresolved = new Set() } = holder;
  for (const uri of unresolved) {
    const resource = resolveUri(catalog, uri);
    if (resource instanceof GatewayError) continue;
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

export function subscribedUpstreams({ subscriptions }: ConnectionHolder): ReadonlySet<string> {
  return new Set([...subscriptions.values()].map(({ upstream }) => upstream));
}

/** Removes the subscriptions of a client group at an upstream. A session keeps them, as its record does: its client does not learn of the loss. */
export function removeSubscriptions(holder: ConnectionHolder, upstream: string): void {
  if (holder.isOneClient) return;
  for (const [uri, to] of holder.subscriptions) {
    if (to.upstream !== upstream) continue;
    holder.subscriptions.delete(uri);
    holder.onSubscriptionLost(uri);
  }
}
