import type { UpstreamKey, StoredOfferKey } from '../offer-store.ts';
import type { KeyedCall } from '../keyed-call-store.ts';
import { hashOf, type PlacementKey, sessionKey } from '../placement-table.ts';
import type { SessionRef } from '../session-store.ts';

/**
 * The names of all entries in Redis. `<…>` is a hash, `sealed` is a text that only the wrapping keys open.
 *
 * | Entry | Value | Lifetime | Written by |
 * |---|---|---|---|
 * | `{ring}` | sealed: the keys of handles | none | the first process; rotation |
 * | `{members}` | sorted set: member id → end of its lease, ms of the clock of leases | none; ended ones are removed by the next beat | every process, each second |
 * | `{members}:clock` | last time of Redis, and the clock of leases then, ms | none | every process, each second |
 * | `{members}:info` | hash: member id → sealed: address and version | as `{members}` | its member, when it joins |
 * | `{p.<principal>}:at:<name>` | member id, `/` and token of a placement | 1 h after its last confirmation | the process that claims or confirms it |
 * | `{p.<principal>}:was:<name>` | member id of the one that has given the placement away while requests of it were in flight | 2 min | that process |
 * | `{p.<principal>}:serial` | the last serial number | 1 day | `initialize` |
 * | `{p.<principal>}:serial:of` | `master_replid` of the Redis that has counted it; empty if unknown | 1 day | `initialize` |
 * | `{p.<principal>}:ended` | sorted set: ended ranges `first:last:until`, by their last number | until the last of the ids expires | DELETE, and operators |
 * | `{p.<principal>}:rec:<serial>` | hash: `level`; `u<uri>`, `x<upstream>` and `a<upstream>` (attachment) → sealed, after a serial number | until the id of the session expires | the owner of the session, with its token |
 * | `{p.<principal>}:sizes`, `…:until` | hash and sorted set: serial → bytes and end of each record; `total`; `a<serial>` and `attached`: bytes of attachments; `plain`: up to this end, that entry has the records of older versions | as the last record | with each record |
 * | `{p.<principal>}:plain`, `…:attached` | sorted sets of the records that make room, oldest first: those without subscriptions and attachments by their end, those with attachments by the time of the last one (µs) | as the last record | with each record |
 * | `{p.<principal>}:ev:<serial>` | hash: stream → `endless:opened:count:bytes:added:last:writer`, the writer as the name of its process; `#events`, `#bytes`, `#running` of the session | 5 min after the end of its last stream; 1 h while one runs | the writer of each stream |
 * | `{p.<principal>}:ev:<serial>#ended` | sorted set: ended streams by time | as the hash | with each stream |
 * | `{p.<principal>}:ev:<serial>:<stream>` | list: `number:` and sealed event | 5 min after the end of the stream, or after the last event of a GET stream; 1 h while it runs | with each event |
 * | `{p.<principal>}:ev`, `…:ev#until` | hash and sorted set: serial → bytes and end of the events of each session | as the last of them | with each event |
 * | `{events}`, `{events}:until`, `{events}:sum` | sorted sets: principal → bytes of events, and their end; their sum | 2 h after the last event | the process that wrote events, within a second |
 * | `{o.<upstream>}:index` | sorted set: list entries by time of writing | 30 days after the last write | with each list |
 * | `{o.<upstream>}:<lists>` | sealed: the lists of an upstream for one kind of client | 30 days | the process that listed it |
 * | `{o.<upstream>}:start` | hash: `failed`, `listed` (ms) of the upstream | 30 days | the process that listed it |
 * | `{t.<client>}` | hash: task → sealed | 30 days after the last task | the process that got the task |
 * | `{t.<client>}:order` | sorted set: task → serial number | as `{t.<client>}` | with each task |
 * | `{outcomes}:<id>` | sealed: the end of a parked call | as long as its handle | the process that had the call; the first end wins |
 * | `{outcomes}`, `{outcomes}:sizes` | sorted set and hash: outcome → end of its lifetime, bytes | as the last outcome | with each outcome |
 * | `{keyed}:<principal>:<call>` | a call with an idempotency key: `c`, the name of a process, `/` and a number; after its end `r` and sealed: its outcome | `idempotency.keep` after its end | the process that makes the call |
 * | `{keyed}:<principal>:<call>:<process>/<number>` | nothing: this claim of the call was released before it arrived | 30 minutes | the process that has got no reply to the claim |
 * | `{keyed}`, `{keyed}:sizes` | sorted set and hash: call → end of its lifetime, bytes; calls and bytes of each principal | as the last call | with each call |
 * | `{keyed}:kept`, `{keyed}:kept:<principal>` | sorted sets: calls with an outcome by time, all and those of a principal | as the last outcome | with each outcome |
 * | `{c.<counter>}` | hash: member → units; `<member>:until` → end of the lease of the units | 60 s after the last change | the process that leases units |
 * | `{keys}` | hash: id → sealed: an API key of clients | none | `linkspan key` |
 * | `{keys}:version` | random text, another one after each change of `{keys}` | none | with each change |
 * | `{keys}:used` | hash: id → time of the last use (ms) of an API key | none | each replica, once a minute |
 * | `{r.<counter>}` | units that were taken in this window | until the window ends | the process that takes units |
 *
 * The channel `offers` carries the sealed names of lists of upstreams that a process has written.
 * The channel `revoked:<member>` carries the names of entries of placements that another process has removed, such as those of ended sessions.
 */
export type RedisKeys = ReturnType<typeof redisKeys>;

/** Returns the names of the entries behind a prefix. See the table above. */
export function redisKeys(prefix: string) {
  const ofPrincipal = (principal: string) => `${prefix}:{p.${hashOf([principal])}}`;
  const ofUpstream = ({ upstream, target }: UpstreamKey) => `${prefix}:{o.${hashOf([upstream, target])}}`;
  const placement = ({ principal, name }: PlacementKey) => `${ofPrincipal(principal)}:at:${name}`;
  /** Entries of the events of a principal, by the name of it that {@link hashOf} returns. */
  const eventsOf = (name: string) => {
    const sizes = `${prefix}:{p.${name}}:ev`;
    return { sizes, ends: `${sizes}#until` };
  };
  /** Beginning of the channels of `revokedChannel`. */
  const revokedChannels = `${prefix}:revoked:`;
  const [apiKeys, members, events] = [`${prefix}:{keys}`, `${prefix}:{members}`, `${prefix}:{events}`];
  return {
    ring: `${prefix}:{ring}`,
    apiKeys: { entries: apiKeys, version: `${apiKeys}:version`, uses: `${apiKeys}:used` },
    /** Leases, descriptions and clock. */
    members: [members, `${members}:info`, `${members}:clock`] as const,
    placement,
    former: ({ principal, name }: PlacementKey) => `${ofPrincipal(principal)}:was:${name}`,
    /** The last serial number, and the server that has counted it. */
    serial: (principal: string) => [`${ofPrincipal(principal)}:serial`, `${ofPrincipal(principal)}:serial:of`] as const,
    /** Entries of one session, and of all sessions of its principal. */
    session: ({ principal, serial }: Pick<SessionRef, 'principal' | 'serial'>) => {
      const own = ofPrincipal(principal);
      return {
        record: `${own}:rec:${serial}`,
        sizes: `${own}:sizes`,
        until: `${own}:until`,
        plain: `${own}:plain`,
        attached: `${own}:attached`,
        ended: `${own}:ended`,
        placement: placement(sessionKey({ principal, serial })),
      };
    },
    /** Entries of the events of one session. */
    events: ({ principal, serial }: Pick<SessionRef, 'principal' | 'serial'>) => {
      const { sizes, ends } = eventsOf(hashOf([principal]));
      return { index: `${sizes}:${serial}`, sizes, ends };
    },
    eventsOf,
    /** Bytes, ends and sum of the events of all principals. */
    allEvents: [events, `${events}:until`, `${events}:sum`] as const,
    /** The channel of the lists that processes write. */
    offersChannel: `${prefix}:offers`,
    revokedChannels,
    /** The channel on which a member gets the placements that others have revoked. */
    revokedChannel: (member: string) => `${revokedChannels}${member}`,
    /** The lists, and the index of all lists of the upstream. */
    offer: (key: StoredOfferKey) => {
      const own = ofUpstream(key);
      return [`${own}:${hashOf([key.era, key.capabilityKey, key.audience])}`, `${own}:index`] as const;
    },
    start: (key: UpstreamKey) => `${ofUpstream(key)}:start`,
    /** The tasks, and their order. */
    tasks: (client: string) => {
      const own = `${prefix}:{t.${hashOf([client])}}`;
      return [own, `${own}:order`] as const;
    },
    /** The outcome, the index of all, and their sizes. */
    outcome: (id: string) => {
      const own = `${prefix}:{outcomes}`;
      return [`${own}:${hashOf([id])}`, own, `${own}:sizes`] as const;
    },
    /** Entries of a call with an idempotency key: the call, all calls, sizes, outcomes; see `keyed-call-scripts.ts`. */
    keyedCall: ({ principal, name }: KeyedCall) => {
      const own = `${prefix}:{keyed}`;
      return [`${own}:${hashOf([principal])}:${hashOf([name])}`, own, `${own}:sizes`, `${own}:kept`] as const;
    },
    counter: (name: string) => `${prefix}:{c.${hashOf([name])}}`,
    rate: (name: string) => `${prefix}:{r.${hashOf([name])}}`,
  };
}
