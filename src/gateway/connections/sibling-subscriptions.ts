import type { SharedParts } from '../records/shared-parts.ts';
import { LIMITS } from '../../limits.ts';
import type { ConnectionHolder, Link, Subscription } from '../exchange/connection-holder.ts';
import { isPrivate } from '../../upstream/link/link.ts';
import { canSubscribe, isSubscribed, type LinkSubscriptions } from './link-subscriptions.ts';

export interface SiblingSubscriptionsParts extends Pick<SharedParts, 'siblingsOf' | 'onLimit' | 'log'> {
  readonly subscriptions: LinkSubscriptions;
}

/**
 * Subscribes the links of a client group to the resources that its sibling groups listen to.
 *
 * The requests of one modern client may declare different capabilities, so that it listens in one group and calls in another.
 * Their links are different sessions of the upstream, and many servers report a change only in the session that made it.
 */
export class SiblingSubscriptions {
  readonly #parts: SiblingSubscriptionsParts;

  constructor(parts: SiblingSubscriptionsParts) {
    this.#parts = parts;
  }

  /** Subscribes a new link of this holder to the resources that its siblings listen to. Never rejects. */
  async onLinkOpen(link: Link, holder: ConnectionHolder): Promise<void> {
    if (!needsSubscriptions(link)) return;
    const wanted = [...this.#parts.siblingsOf(holder)].flatMap((sibling) =>
      [...sibling.subscriptions.values()].map((to) => ({ sibling, to })),
    );
    const adding: Promise<void>[] = [];
    for (const { sibling, to } of wanted.filter((one) => one.to.upstream === link.upstream)) {
      if (this.#isFull(link, to.uri)) break;
      adding.push(this.#add(link, sibling, to));
    }
    await Promise.all(adding);
  }

  /** Subscribes the links of a holder's siblings to a resource that the holder has subscribed to. Never rejects. */
  async onSubscribed(holder: ConnectionHolder, to: Subscription): Promise<void> {
    const add = async (link: Link) => {
      if (needsSubscriptions(link) && isSubscribed(holder, to) && !this.#isFull(link, to.uri))
        await this.#add(link, holder, to);
    };
    const adding: Promise<void>[] = [];
    for (const sibling of this.#parts.siblingsOf(holder)) {
      const ready = sibling.links.get(to.upstream);
      if (ready !== undefined) adding.push(add(ready));
      // The listener does not wait for a link that is still opening.
      else sibling.linkPromises.get(to.upstream)?.then(add, () => undefined);
    }
    await Promise.all(adding);
  }

  /** Removes a subscription that a holder has ended from the links of its siblings. */
  onUnsubscribed(holder: ConnectionHolder, to: Subscription): void {
    const remove = (link: Link) => {
      // A link that also serves the holder is the holder's own.
      if (!link.users.has(holder)) this.#remove(link, holder, to.uri);
    };
    const onPrepared = (link: Link) => {
      if (!isSubscribed(holder, to)) remove(link);
    };
    for (const sibling of this.#parts.siblingsOf(holder)) {
      const ready = sibling.links.get(to.upstream);
      if (ready !== undefined) remove(ready);
      // A link that is being prepared may have the subscription already.
      else sibling.linkPromises.get(to.upstream)?.then(onPrepared, () => undefined);
    }
  }

  /** Removes all subscriptions of a holder from the links of its siblings. */
  release(holder: ConnectionHolder): void {
    for (const to of holder.subscriptions.values()) this.onUnsubscribed(holder, to);
  }

  #isFull(link: Link, uri: string): boolean {
    const { subscriptions, onLimit } = this.#parts;
    if (subscriptions.has(link, uri) || subscriptions.count(link) < LIMITS.siblingSubscriptions) return false;
    onLimit('siblingSubscriptions');
    return true;
  }

  async #add(link: Link, holder: ConnectionHolder, to: Subscription): Promise<void> {
    if (link.subscribers.get(to.uri)?.has(holder) === true) return;
    const { subscriptions, log } = this.#parts;
    try {
      await subscriptions.add(link, holder, to.uri);
    } catch (thrown) {
      // The holder's own link is subscribed; only changes made over this link are missed.
      log.debug({ err: thrown, upstream: link.upstream }, 'cannot subscribe on the connection of a sibling group');
      return;
    }
    if (!isSubscribed(holder, to)) this.#remove(link, holder, to.uri);
  }

  #remove(link: Link, holder: ConnectionHolder, uri: string): void {
    const { subscriptions, log } = this.#parts;
    subscriptions.remove(link, holder, uri).catch((thrown: unknown) => {
      log.debug({ err: thrown, upstream: link.upstream }, 'cannot unsubscribe on the connection of a sibling group');
    });
  }
}

/** Returns whether the link accepts subscriptions, and gets messages only for its users. */
function needsSubscriptions(link: Link): boolean {
  return isPrivate(link) && !link.connection.isClosed && canSubscribe(link);
}
