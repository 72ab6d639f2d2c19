import type { SharedParts } from '../records/shared-parts.ts';
import { setTimeout as sleep } from 'node:timers/promises';
import { upstreamIn } from '../../catalog/view.ts';
import { backoffMs } from '../../upstream/rpc/backoff.ts';
import type { ConnectionHolder, Link } from '../exchange/connection-holder.ts';
import { removeSubscriptions, subscribedUpstreams } from './stored-subscriptions.ts';

export interface SubscriptionRestorerParts extends Pick<SharedParts, 'upstreams' | 'views' | 'log'> {
  /** Opens the link of a holder, which gets the holder's subscriptions. */
  open(holder: ConnectionHolder, upstream: string): Promise<Link>;
}

/** Opens the links that subscriptions of holders need, and tries again until it succeeds. */
export class SubscriptionRestorer {
  readonly #parts: SubscriptionRestorerParts;
  /**
   * The upstreams where subscriptions of a holder are being restored. Not by the key of the holder, which a released session shares with
   * the one that is restored from its id.
   */
  readonly #restoring = new WeakMap<ConnectionHolder, Set<string>>();

  constructor(parts: SubscriptionRestorerParts) {
    this.#parts = parts;
  }

  /** Returns whether an upstream has a connection for each call alone, which keeps nothing of a holder. */
  keepsNothing(upstream: string): boolean {
    return this.#parts.upstreams.get(upstream)?.config.isolation === 'call';
  }

  /** Restores the subscriptions of a holder at the upstream that has taken the place. If there is none, removes those of a client group. */
  move(holder: ConnectionHolder, upstream: string): void {
    if (this.#parts.upstreams.has(upstream)) this.restore(holder, upstream);
    else removeSubscriptions(holder, upstream);
  }

  /** Tries to open a link until it succeeds, or until the holder has no subscriptions there. Removes those of a client group if no link would keep them. */
  restore(holder: ConnectionHolder, upstream: string): void {
    if (this.keepsNothing(upstream)) {
      removeSubscriptions(holder, upstream);
      return;
    }
    const restoring = this.#restoring.get(holder) ?? new Set();
    if (restoring.has(upstream)) return;
    this.#restoring.set(holder, restoring.add(upstream));
    void this.#openWhileWanted(holder, upstream).finally(() => restoring.delete(upstream));
  }

  async #openWhileWanted(holder: ConnectionHolder, upstream: string): Promise<void> {
    const { log } = this.#parts;
    for (let attempt = 1; this.#isWanted(holder, upstream); attempt++) {
      try {
        const link = await this.#parts.open(holder, upstream);
        // A replacement meanwhile has left the subscriptions at the old upstream.
        if (!link.isRetired) return;
      } catch (thrown) {
        log.debug({ err: thrown, upstream }, 'subscriptions not restored yet');
        await sleep(backoffMs(attempt, Math.random()), undefined, { ref: false });
      }
    }
  }

  /** Returns whether a holder still has subscriptions at an upstream that can keep them. */
  #isWanted(holder: ConnectionHolder, upstream: string): boolean {
    if (holder.closed.aborted || this.keepsNothing(upstream)) return false;
    const isThere = upstreamIn(this.#parts.views.get(holder.view), upstream) !== undefined;
    return isThere && subscribedUpstreams(holder).has(upstream);
  }
}
