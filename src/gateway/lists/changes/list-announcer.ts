import { listChangedMethod, type ListKind } from '../../../catalog/offer.ts';
import { kindOf, LIST_NAMES, type ListName } from '../../../catalog/page.ts';
import type { ConnectionHolder } from '../../exchange/connection-holder.ts';
import { inSlices } from '../../../work-turn.ts';
import { COALESCE_MS, LEAST_GAP_MS } from './pace.ts';

/** Announces changed lists to clients, to each client at most once a second. */
export class ListAnnouncer {
  readonly #saved: () => Promise<void> | undefined;
  /** Changed lists that are not announced yet. */
  readonly #pending = new Map<ConnectionHolder, Set<ListName>>();
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
    const changed = new Set(kinds);
    const names = LIST_NAMES.filter((name) => changed.has(kindOf(name)));
    const pending = this.#pending.get(holder);
    if (pending !== undefined) {
      for (const name of names) pending.add(name);
      return;
    }
    this.#pending.set(holder, new Set(names));
    const lastMs = this.#announcedMs.get(holder) ?? Number.NEGATIVE_INFINITY;
    this.#schedule(holder, Math.max(COALESCE_MS, lastMs + LEAST_GAP_MS - performance.now()));
  }

  /** Removes a list from those to be announced, since the client is about to get it as it is. */
  onListed(holder: ConnectionHolder, list: ListName): void {
    if (holder.isOneClient) this.#pending.get(holder)?.delete(list);
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
    const names = this.#pending.get(holder);
    if (names === undefined) return;
    // The list that the client waits for is made after the wait, and contains the change.
    if (holder.awaitedLists > 0 && !holder.closed.aborted) {
      this.#schedule(holder, LEAST_GAP_MS);
      return;
    }
    this.#pending.delete(holder);
    if (names.size === 0 || holder.closed.aborted || !holder.wantsListChanges) return;
    this.#announcedMs.set(holder, performance.now());
    for (const kind of new Set([...names].map(kindOf))) holder.announce(listChangedMethod(kind), undefined);
  }
}
