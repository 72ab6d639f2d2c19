import type { Era } from '../protocol/revisions.ts';
import type { Span } from '../telemetry/tracing/tracing.ts';
import type { Link, LinkUser } from './link/link.ts';
import type { LinkRequest } from './link/opener.ts';

/** The purpose of a link that is needed: the client or the listing that it is for. */
export interface LinkNeed extends Omit<LinkRequest, 'placeIn'> {
  /** The principal that a free connection is waited for; the audience of a listing. */
  readonly principal: string;
  /** Returns the key of the link, which depends on the era of the connection. */
  readonly keyIn: (era: Era) => string;
  /** The span that a start of the upstream is a part of. */
  readonly span?: Span | undefined;
}

/** The links of an upstream by their keys, open or opening. */
export class LinksByKey<Context, User extends LinkUser> {
  readonly #links = new Map<string, Promise<Link<Context, User>>>();

  get(key: string): Promise<Link<Context, User>> | undefined {
    return this.#links.get(key);
  }

  values(): Iterable<Promise<Link<Context, User>>> {
    return this.#links.values();
  }

  /** Adds a link that is being opened. Removes it if that fails. */
  set(key: string, opening: Promise<Link<Context, User>>): void {
    this.#links.set(key, opening);
    opening.catch(() => this.remove(key, opening));
  }

  /** Removes the link of a key. @param opening if given, only this one. */
  remove(key: string, opening?: Promise<Link<Context, User>>): void {
    if (opening === undefined || this.#links.get(key) === opening) this.#links.delete(key);
  }

  /**
   * Moves an open link from the expected key to its own, which depends on its era. Returns the link that has this key already,
   * if there is one.
   */
  move(expected: string, link: Link<Context, User>): Promise<Link<Context, User>> | undefined {
    if (link.key === expected) return undefined;
    this.#links.delete(expected);
    const other = this.#links.get(link.key);
    if (other === undefined) this.#links.set(link.key, Promise.resolve(link));
    return other;
  }
}
