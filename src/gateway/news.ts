import type { Logger } from 'pino';
import { LIST_KINDS, type ListKind, sameOffer } from '../catalog/offer.ts';
import { loggerToClient } from '../catalog/rewrite.ts';
import { uriToClient } from '../catalog/uri.ts';
import type { Notification } from '../protocol/jsonrpc.ts';
import type { Link } from '../upstream/link.ts';
import type { Upstream } from '../upstream/upstream.ts';
import { elicitationIdToClient } from './asks.ts';
import type { Links } from './links.ts';
import { isWanted } from './log-level.ts';
import type { Offers } from './offers.ts';
import type { Exchange, Session } from './session.ts';

type SessionLink = Link<Exchange, Session>;

/** Changes this close together are one change to a client. */
const COALESCE_MS = 25;

export interface NewsParts {
  readonly upstreams: ReadonlyMap<string, Upstream<Exchange, Session>>;
  readonly sessions: Iterable<Session>;
  readonly offers: Offers;
  readonly links: Links;
  readonly log: Logger;
  dropped(reason: string): void;
}

/** What upstreams say of their own accord, taken to those sessions it concerns and to no other. */
export class News {
  readonly #parts: NewsParts;
  /** Links whose lists are being fetched; true when they changed again meanwhile. */
  readonly #listing = new Map<SessionLink, boolean>();
  readonly #changed = new Map<Session, Set<ListKind>>();

  constructor(parts: NewsParts) {
    this.#parts = parts;
  }

  heard(link: SessionLink, notification: Notification, about: Exchange | undefined): void {
    const { method, params } = notification;
    switch (method) {
      case 'notifications/progress':
        if (about?.progressToken !== undefined) {
          about.session.tell(method, params?.with('progressToken', about.progressToken), about);
        }
        return;
      case 'notifications/message':
        this.#logged(link, notification, about);
        return;
      case 'notifications/resources/updated':
        this.#updated(link, notification);
        return;
      case 'notifications/tools/list_changed':
      case 'notifications/prompts/list_changed':
      case 'notifications/resources/list_changed':
        this.#listChanged(link);
        return;
      default:
        this.#other(link, notification, about);
    }
  }

  /** Who hears what a connection says about no call: the only one behind it, else nobody can tell. */
  #audience(link: SessionLink, about: Exchange | undefined): Session | undefined {
    if (about !== undefined) return about.session;
    if (link.shared || link.users.size !== 1) return undefined;
    const [only] = link.users;
    return only;
  }

  #logged(link: SessionLink, { method, params }: Notification, about: Exchange | undefined): void {
    const session = this.#audience(link, about);
    if (session === undefined || params === undefined) {
      this.#parts.dropped('log-unattributable');
      this.#parts.log.debug({ upstream: link.upstream, level: params?.string('level') }, 'log message of nobody');
      return;
    }
    if (!isWanted(params.string('level'), session.logLevel)) return;
    const { view } = session.catalog;
    const seat = view.upstreams.find(({ id }) => id === link.upstream);
    const labelled = seat === undefined ? params : loggerToClient(view, seat, params);
    const isTold = session.tell(method, labelled, about ?? session.latestExchangeAt(link.upstream));
    if (!isTold) this.#parts.dropped('log-undeliverable');
  }

  #updated(link: SessionLink, { method, params }: Notification): void {
    const uri = params?.string('uri');
    if (params === undefined || uri === undefined) return;
    for (const session of this.#parts.links.subscribers(link, uri)) {
      const seat = session.catalog.view.upstreams.find(({ id }) => id === link.upstream);
      if (seat === undefined) continue;
      session.announce(method, params.with('uri', JSON.stringify(uriToClient(seat, uri))));
    }
  }

  #other(link: SessionLink, { method, params }: Notification, about: Exchange | undefined): void {
    const session = this.#audience(link, about);
    if (session === undefined) {
      this.#parts.dropped('notification-unattributable');
      return;
    }
    const elicitationId = params?.string('elicitationId');
    const mapped =
      method === 'notifications/elicitation/complete' && elicitationId !== undefined
        ? params?.with('elicitationId', JSON.stringify(elicitationIdToClient(session, link.upstream, elicitationId)))
        : params;
    if (!session.tell(method, mapped, about)) session.announce(method, mapped);
  }

  #listChanged(link: SessionLink): void {
    if (link.shared) {
      const upstream = this.#parts.upstreams.get(link.upstream);
      upstream?.relist(link).catch((thrown: unknown) => {
        this.#parts.log.warn({ err: thrown, upstream: link.upstream }, 'changed lists not had');
      });
      return;
    }
    const isListing = this.#listing.has(link);
    this.#listing.set(link, isListing);
    if (!isListing) void this.#relist(link);
  }

  /** A private connection's lists changed: that is news for its own session alone. */
  async #relist(link: SessionLink): Promise<void> {
    const { upstreams, offers, log } = this.#parts;
    try {
      do {
        this.#listing.set(link, false);
        const offer = await upstreams.get(link.upstream)?.list(link);
        if (offer === undefined) return;
        const everybodys = offers.of(link.upstream, link.profile) ?? offers.of(link.upstream, '');
        const isOwn = everybodys === undefined || !sameOffer(everybodys, offer);
        for (const session of link.users) {
          if (isOwn) session.offers.set(link.upstream, offer);
          else session.offers.delete(link.upstream);
          this.refreshed(session);
        }
      } while (this.#listing.get(link) === true);
    } catch (thrown) {
      log.warn({ err: thrown, upstream: link.upstream }, 'changed lists not had');
    } finally {
      this.#listing.delete(link);
    }
  }

  /** What a lost connection had shown its session alone is not there any more. */
  gone(link: SessionLink): void {
    for (const session of link.users) {
      if (session.offers.delete(link.upstream)) this.refreshed(session);
    }
  }

  /** Everybody's lists changed: so may those for clients with more features. Where nobody is there to ask for, they are forgotten. */
  superseded(upstream: string): void {
    const { offers, sessions, upstreams, log } = this.#parts;
    for (const profile of offers.profilesOf(upstream)) {
      if (profile === '') continue;
      const session = [...sessions].find((one) => one.profile === profile);
      if (session === undefined) {
        offers.forget(upstream, profile);
        continue;
      }
      upstreams
        .get(upstream)
        ?.relist(session)
        .catch((thrown: unknown) => log.warn({ err: thrown, upstream }, 'changed lists not had'));
    }
  }

  /** Offers have changed: every session looks again at what it sees. */
  offered(): void {
    for (const session of this.#parts.sessions) this.refreshed(session);
  }

  /** Tells a session which of its lists differ from what it saw last, once for all changes that come close together. */
  refreshed(session: Session): void {
    const before = session.catalog;
    const after = this.#parts.offers.catalogFor(session);
    session.catalog = after;
    if (before === after || !session.isInitialized) return;
    const kinds = LIST_KINDS.filter((kind) => before.digest[kind] !== after.digest[kind]);
    if (kinds.length === 0) return;
    const waiting = this.#changed.get(session);
    if (waiting !== undefined) {
      for (const kind of kinds) waiting.add(kind);
      return;
    }
    const changed = new Set<ListKind>(kinds);
    this.#changed.set(session, changed);
    setTimeout(() => {
      this.#changed.delete(session);
      if (session.closed.aborted) return;
      for (const kind of changed) session.announce(`notifications/${kind}/list_changed`, undefined);
    }, COALESCE_MS).unref();
  }
}
