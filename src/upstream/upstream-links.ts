import { EVERYBODY } from './connection-key.ts';
import type { Era } from '../protocol/revisions.ts';
import { isPrivate, type Link, type LinkPlace, type LinkUser } from './link/link.ts';
import type { ConnectionPermit } from './quota/connection-quota.ts';

/** An open link, with the facts about it that only its upstream needs. */
export interface OpenLink<Context, User extends LinkUser> {
  readonly link: Link<Context, User>;
  /** The connection of the link, which the quotas count. */
  readonly permit: ConnectionPermit;
  /** True while the link waits for its first user, or for the end of the listing that it was opened for. */
  isClaimed: boolean;
  /** True if the link has given up its key, and finishes its requests. */
  isReleased: boolean;
  /** The listings that read over the link: several, if they are for clients of different capabilities. */
  readonly readings: Set<Promise<unknown>>;
}

/**
 * The links of an upstream. A key has a link from the start of its opening; an open link has one record until it is closed. The
 * iterator returns the open links.
 */
export class UpstreamLinks<Context = unknown, User extends LinkUser = LinkUser> implements Iterable<
  Link<Context, User>
> {
  readonly #byKey = new Map<string, Promise<Link<Context, User>>>();
  readonly #open = new Map<Link<Context, User>, OpenLink<Context, User>>();
  readonly #closing = new Set<Promise<void>>();

  get size(): number {
    return this.#open.size;
  }

  [Symbol.iterator](): Iterator<Link<Context, User>> {
    return this.#open.keys();
  }

  isOpenIn(era: Era): boolean {
    return this.#open.keys().some((link) => link.era === era);
  }

  /** Returns one link of the other era that is for everybody, if there is one. */
  inOtherEra(era: Era): readonly Link<Context, User>[] {
    const others = this.#open.keys().filter((link) => link.era !== era && link.audience === EVERYBODY);
    return others.take(1).toArray();
  }

  /** Returns the link of a key, open or opening. */
  find(key: string): Promise<Link<Context, User>> | undefined {
    return this.#byKey.get(key);
  }

  /** Sets the link of a key while it is being opened. Removes it if that fails. */
  setOpening(key: string, opening: Promise<Link<Context, User>>): void {
    this.#byKey.set(key, opening);
    opening.catch(() => this.removeKey(key, opening));
  }

  /** Removes the link of a key. An open link stays open. @param opening if given, only this one. */
  removeKey(key: string, opening?: Promise<Link<Context, User>>): void {
    if (opening === undefined || this.#byKey.get(key) === opening) this.#byKey.delete(key);
  }

  add(link: Link<Context, User>, permit: ConnectionPermit): void {
    this.#open.set(link, { link, permit, isClaimed: true, isReleased: false, readings: new Set() });
  }

  /** Returns the record of a link; undefined if it is not open. */
  recordOf(link: Link<Context, User>): OpenLink<Context, User> | undefined {
    return this.#open.get(link);
  }

  /** Notes that an open link waits for no user any more. */
  unclaim(link: Link<Context, User>): void {
    const record = this.#open.get(link);
    if (record !== undefined) record.isClaimed = false;
  }

  /** Notes that lists are read over a link. */
  beginReading(link: Link<Context, User>, reading: Promise<unknown>): void {
    this.#open.get(link)?.readings.add(reading);
  }

  /** Yields the open links over which no lists are read. A listing waits for turns of the event loop between its requests. */
  *withoutReading(): Iterable<Link<Context, User>> {
    for (const { link, readings } of this.#open.values()) if (readings.size === 0) yield link;
  }

  /** Notes the end of a listing. After the last one, a link without a client of its own waits for nothing more. */
  endReading(link: Link<Context, User>, reading: Promise<unknown> | undefined): void {
    const readings = this.#open.get(link)?.readings;
    if (reading !== undefined) readings?.delete(reading);
    if (readings?.size === 0 && !isPrivate(link)) this.unclaim(link);
  }

  /**
   * Moves an open link from the expected key to its own, which depends on its era. If there is already a link with that key, closes
   * this one and returns that one.
   */
  place(expected: string, link: Link<Context, User>): Link<Context, User> | Promise<Link<Context, User>> {
    const { key } = link.place;
    if (key === expected) return link;
    this.#byKey.delete(expected);
    const record = this.#open.get(link);
    // It was lost as soon as it was open.
    if (record === undefined) return link;
    const other = this.#byKey.get(key);
    if (other === undefined) {
      this.#byKey.set(key, Promise.resolve(link));
      return link;
    }
    this.#open.delete(link);
    void this.close(record);
    return other;
  }

  /**
   * Removes the key of an open link, which stays open, and gives it back to the quotas. Its server keeps nothing for it, and another link
   * takes its place. Returns whether it had a key.
   */
  release(link: Link<Context, User>): boolean {
    const record = this.#open.get(link);
    if (record === undefined || record.isReleased) return false;
    record.isReleased = true;
    record.permit.release();
    this.#byKey.delete(link.place.key);
    return true;
  }

  /** Returns whether an open link has given up its key, and its last request has ended. Its tasks are polled over other links. */
  isDone(link: Link<Context, User>): boolean {
    return this.#open.get(link)?.isReleased === true && link.calls === 0 && link.connection.inFlight === 0;
  }

  /** Removes an open link and its key. Returns its record, to be closed; undefined if it is not open. */
  remove(link: Link<Context, User>): OpenLink<Context, User> | undefined {
    const record = this.#open.get(link);
    if (record === undefined) return undefined;
    this.#open.delete(link);
    // Another link may have the key by now.
    if (!record.isReleased) this.#byKey.delete(link.place.key);
    return record;
  }

  /** Closes the connection of a removed link, and then gives it back to the quotas. Its tasks keep their calls in memory no longer. */
  close({ link, permit }: OpenLink<Context, User>): Promise<void> {
    const closing = link.connection.close().finally(() => {
      permit.release();
      for (const { timer } of link.tasks.values()) clearTimeout(timer);
      link.tasks.clear();
      this.#closing.delete(closing);
    });
    this.#closing.add(closing);
    return closing;
  }

  /** Resolves when the links that are being opened are open or have failed. */
  async whenOpened(): Promise<void> {
    await Promise.allSettled(this.#byKey.values());
  }

  /** Resolves when the connections that are being closed are closed. */
  async whenClosed(): Promise<void> {
    await Promise.allSettled(this.#closing);
  }
}

/** Returns whether a link is for the user with these places. One that turned out to be of another era than expected may be for another user. */
export function isPlaced({ place, era }: Pick<Link, 'place' | 'era'>, placeIn: (era: Era) => LinkPlace): boolean {
  return place.key === placeIn(era).key;
}
