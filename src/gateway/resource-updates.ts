import { uriToClient } from '../catalog/uri.ts';
import { upstreamIn, type ViewUpstream } from '../catalog/view.ts';
import type { RawObject } from '../json/json.ts';
import { isPrivate } from '../upstream/link/link.ts';
import { subscribersOf } from './connections/link-subscriptions.ts';
import type { ConnectionHolder, Link } from './exchange/connection-holder.ts';
import { UpdateCoalescer } from './update-coalescer.ts';

export interface ResourceUpdatesParts {
  /** Returns the other client groups of a holder's principal; none for a session. */
  readonly siblingsOf: (holder: ConnectionHolder) => Iterable<ConnectionHolder>;
  /** Returns the promise of a subscription that the upstream has not answered yet; undefined if there is none. */
  readonly pendingSubscription: (link: Link, uri: string) => Promise<unknown> | undefined;
  onMerged(): void;
}

/** Announces changes of resources to their subscribers, each under the URI that the subscriber knows. */
export class ResourceUpdates {
  readonly #parts: ResourceUpdatesParts;
  readonly #updates: UpdateCoalescer<Link>;
  /** Pending subscriptions whose resource has changed. */
  readonly #changed = new WeakSet<Promise<unknown>>();

  constructor(parts: ResourceUpdatesParts) {
    this.#parts = parts;
    this.#updates = new UpdateCoalescer({
      announce: (links, uri, params) => this.#announce(links, uri, params),
      areAll: (links, uri) => this.#areAllSubscribed(links, uri),
      onMerged: () => parts.onMerged(),
    });
  }

  /** Announces a change that an upstream has reported on a link. @param params of the report. */
  onUpdated(link: Link, uri: string, params: RawObject): void {
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
  #announce(links: Iterable<Link>, uri: string, params: RawObject): void {
    const [first] = links;
    for (const holder of subscribersOf(links, uri)) {
      const viewed = first && upstreamIn(holder.catalog.view, first.upstream);
      if (viewed === undefined) continue;
      // A part of a subscribed resource may be denied, and a rule may have hours.
      if (holder.catalog.restriction?.allowsUpdateNow(viewed.id, uri) === false) continue;
      for (const name of namesOf(holder, viewed, uri)) {
        holder.announce('notifications/resources/updated', params.with('uri', JSON.stringify(name)));
      }
    }
  }
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
