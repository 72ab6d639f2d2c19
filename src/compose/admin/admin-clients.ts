import type { ClientGroup } from '../../gateway/clients/client-group.ts';
import type { Session } from '../../gateway/clients/session.ts';
import type { ConnectionHolder } from '../../gateway/exchange/connection-holder.ts';
import type { Exchange } from '../../gateway/exchange/exchange.ts';
import { NULL_SINK } from '../../gateway/exchange/open-exchange.ts';
import type { CallsAnswer, ClientsAnswer, SessionsAnswer, StreamsAnswer } from '../../operator/admin/answers.ts';
import { shownText } from '../../peer-text.ts';
import type { Core } from '../core/core.ts';
import { longestFirst } from './merged-answers.ts';

/** The parts of the core that know clients. */
export interface ClientSource extends Pick<Core, 'seenClients' | 'parked'> {
  readonly sessions: Iterable<Session>;
  readonly groups: Iterable<ClientGroup>;
}

const MS = 1_000;
/** Sessions, streams or calls in one answer. */
export const MAX_ITEMS = 10_000;

interface Named {
  readonly id: string;
  readonly kind: 'session' | 'group';
  readonly holder: ConnectionHolder;
}

function* holdersOf({ sessions, groups }: ClientSource): Iterable<Named> {
  for (const session of sessions) yield { id: session.digest, kind: 'session', holder: session };
  for (const group of groups) yield { id: group.digest, kind: 'group', holder: group };
}

/** Returns whether a request of the client waits for the answer. Calls that are parked, or go on as tasks, have had one. */
function isAwaited({ sink }: Exchange): boolean {
  return sink !== NULL_SINK;
}

/** Returns the sessions and groups in memory. @param nowMs monotonic. */
export function sessionsAnswerOf(source: ClientSource, nowMs: number): SessionsAnswer {
  const all = [...holdersOf(source)].map(({ id, kind, holder }) => {
    const client = source.seenClients.find(holder.caller);
    return {
      id,
      kind,
      principal: shownText(holder.caller.principal.label),
      view: holder.view,
      revision: holder.caller.revision,
      client: client === undefined ? undefined : `${client.name} ${client.version}`.trim(),
      requestsInFlight: [...holder.exchanges()].filter(isAwaited).length,
      streams: holder.streamCount,
      subscriptions: holder.subscriptions.size,
      upstreams: [...holder.links.keys()],
      idleSeconds: Math.max(0, (nowMs - holder.usedMs) / MS),
    };
  });
  return { sessions: all.slice(0, MAX_ITEMS), isCut: all.length > MAX_ITEMS };
}

/** Returns the open streams for messages that belong to no request. */
export function streamsAnswerOf(source: ClientSource): StreamsAnswer {
  const all = [...holdersOf(source)]
    .filter(({ holder }) => holder.streamCount > 0)
    .map(({ id, kind, holder }) => ({
      session: id,
      kind: kind === 'session' ? ('listen' as const) : ('subscriptions' as const),
      count: holder.streamCount,
      principal: shownText(holder.caller.principal.label),
      view: holder.view,
    }));
  return { streams: all.slice(0, MAX_ITEMS), isCut: all.length > MAX_ITEMS };
}

/** Returns the clients that this process has served, with what they declare. */
export function clientsAnswerOf({ seenClients }: ClientSource): ClientsAnswer {
  return {
    clients: seenClients.values().map(({ firstMs, lastMs, capabilities, ...client }) => ({
      ...client,
      capabilities: [...capabilities],
      firstSeenAt: new Date(firstMs).toISOString(),
      lastSeenAt: new Date(lastMs).toISOString(),
    })),
  };
}

/** Returns the requests in flight and the parked calls, the longest first. @param nowMs monotonic. */
export function callsAnswerOf(source: ClientSource, nowMs: number): CallsAnswer {
  const parked = new Map<Exchange, number>();
  for (const { exchange, dueMs } of source.parked.waiting()) parked.set(exchange, dueMs);
  const isShown = (exchange: Exchange) => isAwaited(exchange) || parked.has(exchange);
  const all = [...holdersOf(source)].flatMap(({ id, holder }) =>
    [...holder.exchanges()].filter(isShown).map((exchange) => {
      const dueMs = parked.get(exchange);
      const state = dueMs === undefined ? ('in-flight' as const) : ('parked' as const);
      return {
        state,
        method: shownText(exchange.request.method),
        tool: exchange.tool === undefined ? undefined : shownText(exchange.tool),
        upstream: exchange.upstream,
        session: id,
        principal: shownText(holder.caller.principal.label),
        seconds: Math.max(0, (nowMs - exchange.startedMs) / MS),
        // Infinite while a request of the client is attached.
        expiresInSeconds: dueMs === undefined || dueMs === Infinity ? undefined : Math.max(0, (dueMs - nowMs) / MS),
      };
    }),
  );
  return { calls: all.toSorted(longestFirst).slice(0, MAX_ITEMS), isCut: all.length > MAX_ITEMS };
}
