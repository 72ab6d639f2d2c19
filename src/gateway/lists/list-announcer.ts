import type { ListKind } from '../../catalog/offer.ts';
import type { ConnectionHolder } from '../exchange/connection-holder.ts';
import { inSlices } from './in-slices.ts';
import { COALESCE_MS, LEAST_GAP_MS } from './pace.ts';

/** Announces changed lists to clients, to each at most once a second. */
export class ListAnnouncer {
  /** Changed lists that are not announced yet. */
  readonly #pending = new Map<ConnectionHolder, Set<ListKind>>();
  /** Monotonic ms. */
  readonly #announcedMs = new WeakMap<ConnectionHolder, number>();
  /** Holders whose announcements are due. */
  #due: ConnectionHolder[] = [];

  /** The holder's lists of these kinds have changed. */
  add(holder: ConnectionHolder, kinds: Iterable<ListKind>): void {
    const pending = this.#pending.get(holder);
    if (pending !== undefined) {
      for (const kind of kinds) pending.add(kind);
      return;
    }
    this.#pending.set(holder, new Set(kinds));
    const lastMs = this.#announcedMs.get(holder) ?? Number.NEGATIVE_INFINITY;
    this.#schedule(holder, Math.max(COALESCE_MS, lastMs + LEAST_GAP_MS - performance.now()));
  }

  /** A client is about to get this list as it is now, so that nothing is left to announce to it. */
  onListed(holder: ConnectionHolder, kind: ListKind): void {
    if (holder.isOneClient) this.#pending.get(holder)?.delete(kind);
  }

  #schedule(holder: ConnectionHolder, delayMs: number): void {
    setTimeout(() => {
      this.#due.push(holder);
      if (this.#due.length === 1) setImmediate(() => void this.#announceDue());
    }, delayMs).unref();
  }

  async #announceDue(): Promise<void> {
    const due = this.#due;
    this.#due = [];
    await inSlices(due, (holder) => this.#announce(holder));
  }

  #announce(holder: ConnectionHolder): void {
    const kinds = this.#pending.get(holder);
    if (kinds === undefined) return;
    // The list that it waits for is made when the wait is over, and shows the change.
    if (holder.awaitedLists > 0 && !holder.closed.aborted) {
      this.#schedule(holder, LEAST_GAP_MS);
      return;
    }
    this.#pending.delete(holder);
    if (kinds.size === 0 || holder.closed.aborted || !holder.wantsListChanges) return;
    this.#announcedMs.set(holder, performance.now());
    for (const kind of kinds) holder.announce(`notifications/${kind}/list_changed`, undefined);
  }
}
