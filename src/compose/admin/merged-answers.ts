import {
  type CallsAnswer,
  type ClientsAnswer,
  type SessionsAnswer,
  type StatusAnswer,
  type StreamsAnswer,
  UPSTREAM_STATES,
  type UpstreamAnswer,
} from '../../operator/admin/answers.ts';

export function withCountsOf(first: StatusAnswer, others: readonly StatusAnswer[]): StatusAnswer {
  return others.reduce(
    (sum, each) => ({
      ...sum,
      sessions: sum.sessions + each.sessions,
      clientGroups: sum.clientGroups + each.clientGroups,
      requestsInFlight: sum.requestsInFlight + each.requestsInFlight,
      parkedCalls: sum.parkedCalls + each.parkedCalls,
      memoryBytes: sum.memoryBytes + each.memoryBytes,
    }),
    first,
  );
}

/** Returns the upstreams of several processes, each of them once. */
export function mergedUpstreams(lists: readonly (readonly UpstreamAnswer[])[]): readonly UpstreamAnswer[] {
  return mergedBy(lists.flat(), ({ id }) => id, mergedUpstream);
}

type Client = ClientsAnswer['clients'][number];
type Call = CallsAnswer['calls'][number];
type Session = SessionsAnswer['sessions'][number];
type Stream = StreamsAnswer['streams'][number];

/** Returns the clients of several processes, each of them once, the latest first. */
export function mergedClients(clients: readonly Client[]): Client[] {
  const keyOf = ({ name, version, revision, era, capabilities, principal }: Client) =>
    JSON.stringify([name, version, revision, era, capabilities, principal]);
  const merged = mergedBy(clients, keyOf, (a, b) => ({
    ...a,
    connections: a.connections + b.connections,
    firstSeenAt: a.firstSeenAt < b.firstSeenAt ? a.firstSeenAt : b.firstSeenAt,
    lastSeenAt: a.lastSeenAt > b.lastSeenAt ? a.lastSeenAt : b.lastSeenAt,
  }));
  return merged.toSorted(latestFirst);
}

/** Puts the clients that were seen last first. */
export function latestFirst(a: Client, b: Client): number {
  return b.lastSeenAt.localeCompare(a.lastSeenAt);
}

/** Puts the calls that have run longest first. */
export function longestFirst(a: Call, b: Call): number {
  return b.seconds - a.seconds;
}

/** Returns the sessions and groups of several processes. A group of clients may be at all of them, and is listed once. */
export function mergedSessions(sessions: readonly Session[]): Session[] {
  return mergedBy(
    sessions,
    ({ id }) => id,
    (a, b) => ({
      ...a,
      client: a.client ?? b.client,
      requestsInFlight: a.requestsInFlight + b.requestsInFlight,
      streams: a.streams + b.streams,
      subscriptions: a.subscriptions + b.subscriptions,
      upstreams: [...new Set([...a.upstreams, ...b.upstreams])],
      idleSeconds: Math.min(a.idleSeconds, b.idleSeconds),
    }),
  );
}

/** Returns the streams of several processes, those of one session or group once. */
export function mergedStreams(streams: readonly Stream[]): Stream[] {
  return mergedBy(
    streams,
    ({ session }) => session,
    (a, b) => ({ ...a, count: a.count + b.count }),
  );
}

/** Returns the items, of those with one key their sum. */
function mergedBy<Item>(
  items: readonly Item[],
  keyOf: (item: Item) => string,
  sumOf: (a: Item, b: Item) => Item,
): Item[] {
  const byKey = new Map<string, Item>();
  for (const item of items) {
    const key = keyOf(item);
    const known = byKey.get(key);
    byKey.set(key, known === undefined ? item : sumOf(known, item));
  }
  return [...byKey.values()];
}

/** Returns the most useful state of an upstream, with the connections of both processes and what either knows of the eras. */
function mergedUpstream(a: UpstreamAnswer, b: UpstreamAnswer): UpstreamAnswer {
  const isFirstBetter = UPSTREAM_STATES.indexOf(a.state) <= UPSTREAM_STATES.indexOf(b.state);
  const [better, other] = isFirstBetter ? [a.eras, b.eras] : [b.eras, a.eras];
  const known = (era: keyof UpstreamAnswer['eras']) => (better[era].speaks === 'unknown' ? other : better)[era];
  const sum = (x: number | undefined, y: number | undefined) =>
    x === undefined && y === undefined ? undefined : (x ?? 0) + (y ?? 0);
  const [processes, memoryBytes] = [sum(a.processes, b.processes), sum(a.memoryBytes, b.memoryBytes)];
  return {
    ...(isFirstBetter ? a : b),
    eras: { legacy: known('legacy'), modern: known('modern') },
    isDisabled: a.isDisabled || b.isDisabled,
    connections: a.connections + b.connections,
    requestsInFlight: a.requestsInFlight + b.requestsInFlight,
    ...(processes === undefined ? {} : { processes }),
    ...(memoryBytes === undefined ? {} : { memoryBytes }),
  };
}
