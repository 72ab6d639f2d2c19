import { commonKey } from '../../catalog/offer.ts';
import { ClientGroups } from '../../gateway/clients/client-group.ts';
import { SeenClients } from '../../gateway/clients/seen-clients.ts';
import type { Session } from '../../gateway/clients/session.ts';
import { Sessions } from '../../gateway/clients/sessions.ts';
import type { ConnectionHolder } from '../../gateway/exchange/connection-holder.ts';
import type { ConnectionParts } from './connections.ts';
import type { CommonParts } from './core-parts.ts';

/** Callbacks to parts that are constructed later. None runs before the core starts. */
export interface ClientCallbacks {
  /** Runs when a released session is in memory again. */
  readonly onRestored: (session: Session) => void;
  /** Runs when the rights of a session may have changed, because a request has come with other claims. */
  readonly onRightsChange: (session: Session) => void;
}

export type ClientParts = ReturnType<typeof createClients>;

/** Constructs the connection holders: sessions of legacy clients, and groups of modern clients. */
export function createClients(
  common: CommonParts,
  { offers, stateLosses, links }: ConnectionParts,
  { onRestored, onRightsChange }: ClientCallbacks,
) {
  const { state, gate, metrics, onLimit, audit } = common;
  const sessions = new Sessions({
    ...common,
    store: state.sessions,
    offers,
    gauge: metrics.sessions,
    onRestored: (session, used) => {
      stateLosses.onRestored(session, used);
      links.onRestored(session);
      onRestored(session);
    },
    onPrincipalChange: (session) => {
      if (!gate.isOpen) onRightsChange(session);
    },
    hasFurtherScopes: (before, after) => gate.hasFurtherScopes(before, after),
    onDropped: () => metrics.countDropped('session-queue'),
    onUnused: (session) => stateLosses.onUnused(session),
    onEnd: (session) => audit?.session('ended', session),
    onRelease: (session, isLeft) => links.releaseHolder(session, isLeft),
    onLeave: (session) => links.leaveSessions(session),
    onStateOfLeft: (session, upstream) => stateLosses.onKeptForLeft(session, upstream),
  });
  const groups = new ClientGroups({
    ...common,
    defaultCatalog: (view) => offers.catalog(view, commonKey('modern')),
    loadCatalog: (holder) => offers.loadCatalog(holder),
    rightsKeyOf: ({ principal, view }) => gate.shownRightsOf(principal, view)?.key ?? '',
    onRelease: (group) => links.releaseHolder(group),
  });
  const holders: Iterable<ConnectionHolder> = {
    *[Symbol.iterator]() {
      yield* sessions;
      yield* groups;
    },
  };
  return { sessions, groups, holders, seenClients: new SeenClients(onLimit) };
}
