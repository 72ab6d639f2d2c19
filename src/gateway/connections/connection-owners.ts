import type { SharedParts } from '../records/shared-parts.ts';
import { stateScopeOf } from '../../upstream/connection-key.ts';
import type { ConnectionHolder, Upstream } from '../exchange/connection-holder.ts';
import { type ConnectionRef, HERE } from '../exchange/owners.ts';
import type { Ownership } from '../front/front.ts';
import type { HolderLinks } from './holder-links.ts';
import { getOrMake } from '../../map-entries.ts';

/** A connection that nobody uses belongs to the next process that asks, after this time. */
const UNUSED_MS = 30_000;

/** A client group, with its `subscriptions/listen` streams. */
type Group = ConnectionHolder & { readonly subscribers: Iterable<{ close(): void }> };

export interface ConnectionOwnersParts extends Pick<SharedParts, 'owners' | 'upstreams'> {
  /** Returns the client groups of a principal in this process. */
  readonly groupsOf: (principal: string) => Iterable<Group>;
  readonly links: Pick<HolderLinks, 'open' | 'releaseAt'>;
}

/** A connection of this process. */
interface Held {
  readonly ref: ConnectionRef;
  /** The key of its ref. */
  readonly name: string;
  readonly upstream: string;
  readonly principal: string;
  /** The endpoint; undefined if the connection is for all endpoints. */
  readonly view: string | undefined;
  usedMs: number;
}

/**
 * Finds the process that has the connection of a client group to an upstream. Requests of one principal to an upstream that keeps state on its
 * connections go to one process, so that there is one state. It is the same process for all capabilities of its clients.
 */
export class ConnectionOwners {
  readonly #parts: ConnectionOwnersParts;
  readonly #held = new Map<string, Held>();
  /** Connections by group and upstream. */
  readonly #places = new WeakMap<ConnectionHolder, Map<string, Held>>();

  constructor(parts: ConnectionOwnersParts) {
    this.#parts = parts;
  }

  /**
   * Returns where requests of a group to an upstream go; a promise only if it must be looked up.
   *
   * @param isForwarded true if another process has passed the request on.
   */
  ownerOf(group: ConnectionHolder, id: string, isForwarded = false): Ownership | Promise<Ownership> {
    const { owners, upstreams } = this.#parts;
    const upstream = owners.isAlone ? undefined : upstreams.get(id);
    if (upstream === undefined) return HERE;
    const held = this.#placeOf(group, upstream);
    if (held === undefined) return HERE;
    if (owners.holds(held.ref)) {
      this.#hold(group, held);
      return HERE;
    }
    return this.#lookUp(group, upstream, held, isForwarded);
  }

  /** Returns where requests of a group to an upstream go, without a connection that would show it. */
  ownerIfKnown(group: ConnectionHolder, id: string): Ownership | Promise<Ownership> {
    const upstream = this.#parts.upstreams.get(id);
    const isKnown = upstream !== undefined && (upstream.isProcess || upstream.servingEra(group.era) !== undefined);
    return isKnown ? this.ownerOf(group, id) : HERE;
  }

  async #lookUp(group: ConnectionHolder, upstream: Upstream, held: Held, isForwarded: boolean): Promise<Ownership> {
    const { owners, links } = this.#parts;
    const isProbed = !upstream.isProcess && upstream.servingEra(group.era) === undefined;
    if (isProbed) {
      // The link shows the era. A failure is reported by the request itself.
      await links.open(group, upstream.id).catch(() => undefined);
      if (this.#placeOf(group, upstream) === undefined) return HERE;
    }
    const ownership = await owners.ownerOf({ kind: 'connection', ref: held.ref, isForwarded });
    if (ownership.kind === 'here') this.#hold(group, held);
    else if (isProbed && ownership.kind === 'elsewhere') links.releaseAt(group, upstream.id);
    return ownership;
  }

  /** Returns the connection that a group needs at an upstream; undefined if any process may have one. */
  #placeOf(group: ConnectionHolder, upstream: Upstream): Held | undefined {
    const scope = stateScopeOf(upstream, group.era);
    if (scope === 'none') return undefined;
    const view = scope === 'principal' ? undefined : group.view;
    const places = getOrMake(this.#places, group, () => new Map());
    const known = places.get(upstream.id);
    // A reload may have changed the isolation.
    if (known !== undefined && known.view === view) return known;
    const ref = { principal: group.principal, name: JSON.stringify([upstream.id, view ?? null]) };
    const name = JSON.stringify([ref.principal, ref.name]);
    const place = { ref, name, upstream: upstream.id, principal: group.principal, view, usedMs: 0 };
    places.set(upstream.id, place);
    return place;
  }

  /** Notes that a connection is used. All groups that use it share one object, so that each of them keeps it. */
  #hold(group: ConnectionHolder, held: Held): void {
    const shared = this.#held.get(held.name);
    (shared ?? held).usedMs = performance.now();
    if (shared === held) return;
    if (shared !== undefined) {
      this.#places.get(group)?.set(held.upstream, shared);
      return;
    }
    this.#held.set(held.name, held);
    this.#parts.owners.onConnectionLost(held.ref, () => {
      this.#held.delete(held.name);
      for (const one of this.#groupsOf(held)) {
        // Their clients listen again, also at the process that has the connection now.
        for (const subscriber of one.subscribers) subscriber.close();
        if (one.linkPromises.has(held.upstream)) this.#parts.links.releaseAt(one, held.upstream);
      }
    });
  }

  /** Returns the groups of this process that may have a link of a connection. */
  #groupsOf({ principal, view, upstream: id }: Held): readonly Group[] {
    const upstream = this.#parts.upstreams.get(id);
    const needsIt = (group: Group) => upstream === undefined || stateScopeOf(upstream, group.era) !== 'none';
    return [...this.#parts.groupsOf(principal)].filter(
      (group) => (view ?? group.view) === group.view && needsIt(group),
    );
  }

  /** Lets other processes have the connections that nobody uses here. @param nowMs monotonic. */
  sweep(nowMs: number): void {
    for (const held of this.#held.values()) {
      if (nowMs - held.usedMs < UNUSED_MS || this.#isInUse(held)) continue;
      this.#give(held);
    }
  }

  /** Returns whether a group of this process has a link, or hears changes. */
  #isInUse(held: Held): boolean {
    return this.#groupsOf(held).some((one) => one.linkPromises.has(held.upstream) || one.wantsListChanges);
  }

  /** Lets other processes have all connections from now on. Requests in flight end here. */
  handOver(): void {
    for (const held of this.#held.values()) this.#give(held);
  }

  #give(held: Held): void {
    this.#held.delete(held.name);
    this.#parts.owners.releaseConnection(held.ref);
  }
}
