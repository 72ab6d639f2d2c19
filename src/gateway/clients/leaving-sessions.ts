import { tagOf } from './known-refs.ts';
import type { Session } from './session.ts';

export interface LeavingEvents {
  /**
   * Runs before a session is released or ended.
   *
   * @param isLeft true if another process may continue the session, with those that it has at upstreams.
   */
  onRelease(session: Session, isLeft: boolean): void;
  /** Runs when other processes may have a session, whose requests in flight end here. */
  onLeave(session: Session): void;
  /** Runs when an upstream begins to keep state for a session that other processes may have. None of them learns of that state. */
  onStateOfLeft(session: Session, upstream: string): void;
}

/** The sessions that were given away: other processes may have them by now. Their requests in flight end here. */
export class LeavingSessions {
  readonly #events: LeavingEvents;
  /** By the tag of the id. A session that comes back is given away again, beside what is left of it. */
  readonly #sessions = new Map<string, readonly Session[]>();

  constructor(events: LeavingEvents) {
    this.#events = events;
  }

  *[Symbol.iterator](): Iterator<Session> {
    for (const sessions of this.#sessions.values()) yield* sessions;
  }

  /** Returns the sessions of this id, the latest first. */
  of(id: string): readonly Session[] {
    return this.#sessions.get(tagOf(id))?.filter((session) => session.id === id) ?? [];
  }

  has(session: Session): boolean {
    return this.#sessions.get(tagOf(session.id))?.includes(session) === true;
  }

  add(session: Session): void {
    const tag = tagOf(session.id);
    this.#sessions.set(tag, [session, ...(this.#sessions.get(tag) ?? [])]);
    this.#events.onLeave(session);
  }

  /** Handles that an upstream begins to keep state for a session that another process may have, which continues what is attachable. */
  onStateKept(session: Session, upstream: string): void {
    if (session.attachable?.has(upstream) !== true) this.#events.onStateOfLeft(session, upstream);
  }

  /** Ends the requests in flight of a session. Resolves when the upstreams that it has connections of its own to know. */
  async end(session: Session): Promise<void> {
    const connections = [...session.links.values()].map(({ connection }) => connection);
    this.release(session);
    const closing = connections.filter(({ isClosed }) => isClosed);
    await Promise.all(closing.map((connection) => new Promise<void>((resolve) => void connection.onClosed(resolve))));
  }

  /** Ends the requests in flight of a session that was given away, and of no other one. */
  release(session: Session): void {
    if (!this.has(session)) return;
    const tag = tagOf(session.id);
    const others = this.#sessions.get(tag)?.filter((other) => other !== session) ?? [];
    if (others.length === 0) this.#sessions.delete(tag);
    else this.#sessions.set(tag, others);
    // Cancelled first: nobody may continue the session, so that its end at the upstream would cancel them.
    session.close();
    this.#events.onRelease(session, true);
  }
}
