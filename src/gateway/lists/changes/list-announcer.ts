import type { ListKind } from '../../../catalog/offer.ts';
import type { ConnectionHolder } from '../../exchange/connection-holder.ts';
import { inSlices } from '../../../work-turn.ts';
import { COALESCE_MS, LEAST_GAP_MS } from './pace.ts';

/** Announces changed lists to clients, to each client at most once a second. */
export class ListAnnouncer {
  readonly #saved: () => Promise<void> | undefined;
  /** Changed lists that are not announced yet. */
  readonly #pending = new Map<ConnectionHolder, Set<ListKind>>();
  /** The time of the last announcement; monotonic ms. */
  readonly #announcedMs = new WeakMap<ConnectionHolder, number>();
  /** Holders whose announcements are due. */
  #due: ConnectionHolder[] = [];

  /**
   * @param saved resolves when all processes of the gateway can have the lists of this one. So a client finds a change wherever it asks.
   *   Returns undefined if there are no others.
   */
  constructor(saved: () => Promise<void> | undefined) {
    this.#saved = saved;
  }

  /** Adds changed kinds of lists of a holder, which are announced after a short delay. */
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

  /** Removes a pending announcement, since the client is about to get the current list. */
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
    await this.#saved();
    const due = this.#due;
    this.#due = [];
    await inSlices(due, (holder) => this.#announce(holder));
  }

  #announce(holder: ConnectionHolder): void {
    const kinds = this.#pending.get(holder);
    if (kinds === undefined) return;
    // The list that the client waits for is made after the wait, and contains the change.
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
