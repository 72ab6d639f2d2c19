import { upstreamIn } from '../../catalog/view.ts';
import { isWorking } from '../../upstream/link/link.ts';
import type { ConnectionHolder } from '../exchange/connection-holder.ts';
import type { HolderLinks } from './holder-links.ts';

/** The pause before links that could not be released are looked at again. */
const AGAIN_MS = 500;

/** Releases the links to upstreams that their holders may not use any more. */
export class HiddenLinks {
  readonly #links: Pick<HolderLinks, 'releaseHidden'>;
  /** Holders with links that are looked at again. */
  readonly #waiting = new WeakSet<ConnectionHolder>();

  constructor(links: Pick<HolderLinks, 'releaseHidden'>) {
    this.#links = links;
  }

  /**
   * Releases the links of a holder to upstreams that the access policy hides from it. Of a session, also releases those to upstreams that
   * have left its endpoint. One with a call in flight is released soon after its end, and one with a task that the policy does not hide too.
   * One that is being opened is released when it is open.
   */
  releaseOf(holder: ConnectionHolder): void {
    const { restriction } = holder.catalog;
    // One of which the holder may use nothing that is listed has not left.
    const { view } = holder.catalog.whole ?? holder.catalog;
    const busy = new Set([...holder.exchanges()].map(({ upstream }) => upstream));
    for (const id of holder.linkPromises.keys()) {
      const isHidden = restriction?.serves(id) === false;
      // A modern client may still send answers to a call that is not in flight meanwhile.
      const hasLeft = holder.isOneClient && upstreamIn(view, id) === undefined;
      if (!isHidden && !hasLeft) continue;
      const link = holder.links.get(id);
      if (link === undefined || busy.has(id) || (!isHidden && isWorking(link))) this.#lookAgain(holder);
      else this.#links.releaseHidden(holder, link, isHidden);
    }
  }

  #lookAgain(holder: ConnectionHolder): void {
    if (this.#waiting.has(holder)) return;
    this.#waiting.add(holder);
    setTimeout(() => {
      this.#waiting.delete(holder);
      if (!holder.closed.aborted) this.releaseOf(holder);
    }, AGAIN_MS).unref();
  }
}
