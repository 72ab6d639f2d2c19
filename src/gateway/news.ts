import type { Logger } from 'pino';
import { LIST_KINDS, type ListKind, sameOffer } from '../catalog/offer.ts';
import { loggerToClient } from '../catalog/rewrite.ts';
import { uriToClient } from '../catalog/uri.ts';
import type { Notification } from '../protocol/jsonrpc.ts';
import { MODERN, quirksOf } from '../protocol/revisions.ts';
import type { Link } from '../upstream/link.ts';
import type { Upstream } from '../upstream/upstream.ts';
import { Affinity } from './affinity.ts';
import { elicitationIdToClient } from './asks.ts';
import type { Completions } from './completions.ts';
import type { Links } from './links.ts';
import type { Reads } from './reads.ts';
import type { Offers } from './offers.ts';
import type { Addressee, Exchange } from './exchange.ts';
import type { Party } from './party.ts';
import type { TaskMarks } from './task-marks.ts';

type PartyLink = Link<Exchange, Party>;

/** Changes this close together are one change to a client. */
const COALESCE_MS = 25;

export interface NewsParts {
  readonly upstreams: ReadonlyMap<string, Upstream<Exchange, Party>>;
  readonly parties: Iterable<Party>;
  readonly offers: Offers;
  readonly links: Links;
  readonly completions: Completions;
  readonly reads: Reads;
  readonly marks: TaskMarks;
  readonly log: Logger;
  dropped(reason: string): void;
}

/** What upstreams say of their own accord, taken to those sessions it concerns and to no other. */
export class News {
  readonly #parts: NewsParts;
  /** Links whose lists are being fetched; true when they changed again meanwhile. */
  readonly #listing = new Map<PartyLink, boolean>();
  readonly #changed = new Map<Party, Set<ListKind>>();

  constructor(parts: NewsParts) {
    this.#parts = parts;
  }

  heard(link: PartyLink, notification: Notification, about: Exchange | undefined): void {
    const { method, params } = notification;
    switch (method) {
      case 'notifications/progress':
        if (about?.progressToken !== undefined && about.advances(Number(params?.raw('progress')))) {
          const told = params && this.#parts.marks.told(link, about.client, params);
          about.client.tell(method, told?.with('progressToken', about.progressToken), about);
        }
        return;
      case 'notifications/message':
        this.#logged(link, notification, about);
        return;
      case 'notifications/resources/updated':
        this.#updated(link, notification);
        return;
      case 'notifications/tasks':
      case 'notifications/tasks/status':
        this.#taskChanged(link, notification);
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
  #audience(link: PartyLink, about: Exchange | undefined): Addressee | undefined {
    if (about !== undefined) return { client: about.client, exchange: about, isOnly: true };
    if (link.shared || link.users.size !== 1) return undefined;
    const [only] = link.users;
    return only?.addresseeAt(link.upstream);
  }

  #logged(link: PartyLink, { method, params }: Notification, about: Exchange | undefined): void {
    const to = this.#audience(link, about);
    if (to === undefined || params === undefined) {
      this.#parts.dropped('log-unattributable');
      this.#parts.log.debug({ upstream: link.upstream, level: params?.string('level') }, 'log message of nobody');
      return;
    }
    const { client, exchange } = to;
    if (!client.isLogWanted(params.string('level'))) return;
    const marked = this.#parts.marks.told(link, client, params);
    const { view } = client.catalog;
    const seat = view.upstreams.find(({ id }) => id === link.upstream);
    const labelled = seat === undefined ? marked : loggerToClient(view, seat, marked);
    if (!client.tell(method, labelled, exchange)) this.#parts.dropped('log-undeliverable');
  }

  #updated(link: PartyLink, { method, params }: Notification): void {
    this.#parts.reads.changed(link.upstream);
    const uri = params?.string('uri');
    if (params === undefined || uri === undefined) return;
    for (const party of this.#parts.links.subscribers(link, uri)) {
      const seat = party.catalog.view.upstreams.find(({ id }) => id === link.upstream);
      if (seat === undefined) continue;
      party.announce(method, params.with('uri', JSON.stringify(uriToClient(seat, uri))));
    }
  }

  /** Clients hear of their own tasks, and of no others'. */
  #taskChanged(link: PartyLink, { method, params }: Notification): void {
    const task = params?.string('taskId');
    if (params === undefined || task === undefined) return;
    for (const party of this.#parts.parties) {
      if (party instanceof Affinity) for (const listener of party.listeners) listener.taskChanged(link, task);
    }
    for (const party of link.users) {
      const id = this.#parts.marks.idFor(link, party, task);
      if (id !== undefined && quirksOf(party.caller.revision).coreTasks) {
        party.announce(method, params.with('taskId', JSON.stringify(id)));
      }
    }
  }

  #other(link: PartyLink, { method, params }: Notification, about: Exchange | undefined): void {
    const elicitationId = params?.string('elicitationId');
    if (method === 'notifications/elicitation/complete' && elicitationId !== undefined) {
      this.#parts.completions.completed(link.upstream, elicitationId);
    }
    const to = this.#audience(link, about);
    if (to === undefined) {
      this.#parts.dropped('notification-unattributable');
      return;
    }
    // A modern client knows none of these: it hears of the end of a page by the answer to its call.
    if (to.client.caller.revision === MODERN) return;
    const mapped =
      method === 'notifications/elicitation/complete' && elicitationId !== undefined
        ? params?.with('elicitationId', JSON.stringify(elicitationIdToClient(to.client, link.upstream, elicitationId)))
        : params;
    // What it says of its own accord may come between two requests.
    if (!to.client.tell(method, mapped, about)) to.client.announce(method, mapped);
  }

  #listChanged(link: PartyLink): void {
    this.#parts.reads.changed(link.upstream);
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

  /** A private connection's lists changed: that is news for its own party alone. */
  async #relist(link: PartyLink): Promise<void> {
    const { upstreams, offers, log } = this.#parts;
    try {
      do {
        this.#listing.set(link, false);
        const offer = await upstreams.get(link.upstream)?.list(link, link.offered);
        if (offer === undefined) return;
        const everybodys = offers.of(link.upstream, link.profile) ?? offers.of(link.upstream, '');
        const isOwn = everybodys === undefined || !sameOffer(everybodys, offer);
        for (const party of link.users) {
          if (isOwn) party.offers.set(link.upstream, offer);
          else party.offers.delete(link.upstream);
          this.refreshed(party);
        }
      } while (this.#listing.get(link) === true);
    } catch (thrown) {
      log.warn({ err: thrown, upstream: link.upstream }, 'changed lists not had');
    } finally {
      this.#listing.delete(link);
    }
  }

  /** What a lost connection had shown its party alone is not there any more. */
  gone(link: PartyLink): void {
    for (const party of link.users) {
      if (party.offers.delete(link.upstream)) this.refreshed(party);
    }
  }

  /** Everybody's lists changed: so may those for clients with more features. Where nobody is there to ask for, they are forgotten. */
  superseded(upstream: string): void {
    const { offers, parties, upstreams, log } = this.#parts;
    for (const profile of offers.profilesOf(upstream)) {
      if (profile === '') continue;
      const party = [...parties].find((one) => one.profile === profile);
      if (party === undefined) {
        offers.forget(upstream, profile);
        continue;
      }
      upstreams
        .get(upstream)
        ?.relist(party)
        .catch((thrown: unknown) => log.warn({ err: thrown, upstream }, 'changed lists not had'));
    }
  }

  /** Offers have changed: every party looks again at what it sees. */
  offered(): void {
    for (const party of this.#parts.parties) this.refreshed(party);
  }

  /** Tells a party which of its lists differ from what it saw last, once for all changes that come close together. */
  refreshed(party: Party): void {
    const before = party.catalog;
    const after = this.#parts.offers.catalogFor(party);
    party.catalog = after;
    if (before === after || !party.isListening) return;
    const kinds = LIST_KINDS.filter((kind) => before.digest[kind] !== after.digest[kind]);
    if (kinds.length === 0) return;
    const waiting = this.#changed.get(party);
    if (waiting !== undefined) {
      for (const kind of kinds) waiting.add(kind);
      return;
    }
    const changed = new Set<ListKind>(kinds);
    this.#changed.set(party, changed);
    setTimeout(() => {
      this.#changed.delete(party);
      if (party.closed.aborted) return;
      for (const kind of changed) party.announce(`notifications/${kind}/list_changed`, undefined);
    }, COALESCE_MS).unref();
  }
}
