import { hash } from 'node:crypto';
import type { SessionRef } from './session-store.ts';

/** A process that serves clients, while its lease lasts. A lease that has lapsed never comes back. */
export interface Member {
  /** Never used again. A process whose lease has lapsed joins again with another id. */
  readonly id: string;
  /** The name of the process, the same for all its members; see `Owners.name`. */
  readonly process: string;
  /** `host:port` where other members connect. */
  readonly address: string;
  readonly version: string;
  /** True if the others give it nothing: it does not serve clients yet, or leaves and gives its placements away. */
  readonly isLeaving?: boolean;
}

/** Returns the id of the `nth` member that a process is. */
export function memberId(process: string, nth: number): string {
  return `${process}.${nth}`;
}

/** Returns a member of which only the id can be read, such as one with another wrapping key. It is alive, and nothing can be passed on to it. */
export function unreadableMember(id: string): Member {
  return { id, process: id.slice(0, id.lastIndexOf('.')), address: '', version: '', isLeaving: true };
}

/** Returns whether a member is one of {@link unreadableMember}. */
export function isUnreadable({ address }: Member): boolean {
  return address === '';
}

/** Names something that exactly one member has, such as a session. */
export interface PlacementKey {
  /** The key of the principal that it belongs to. */
  readonly principal: string;
  /** The name of what is placed, unique for the principal. */
  readonly name: string;
}

export function sessionKey({ principal, serial }: Pick<SessionRef, 'principal' | 'serial'>): PlacementKey {
  return { principal, name: `s.${serial}` };
}

/** Returns a text that is equal only for equal keys. */
export function keyText({ principal, name }: PlacementKey): string {
  return JSON.stringify([principal, name]);
}

export function connectionName(name: string): string {
  return `g.${hashOf([name])}`;
}

/** Returns a short name for these texts, which reveals none of them. */
export function hashOf(texts: readonly string[]): string {
  return hash('sha256', JSON.stringify(texts), 'base64url').slice(0, 22);
}

/** The owner of a placement. */
export interface Placement {
  readonly member: string;
  /** Replaced with every change of owner. A write of an owner carries it, and is refused if it is not the current one. */
  readonly token: string;
}

/** Returns a placement as text, as writes of the state of its owner carry it. */
export function placementText({ member, token }: Placement): string {
  return `${member}/${token}`;
}

/**
 * The table of members and of their placements, which all processes of a gateway share. It does not know which process asks.
 *
 * Every method rejects with `store-unavailable` if the table cannot be reached.
 */
export interface PlacementTable {
  /** The time that a lease lasts, in ms. */
  readonly leaseMs: number;
  /** Adds a member, or replaces its description. Its lease begins. */
  join(member: Member): Promise<void>;
  /** Renews the lease of a member. Returns all members, or undefined if the lease has lapsed. */
  renew(id: string): Promise<readonly Member[] | undefined>;
  /** Removes a member, whose lease lapses at once. */
  leave(id: string): Promise<void>;
  /** Returns the members whose lease has not lapsed. */
  members(): Promise<readonly Member[]>;
  /**
   * Gives a placement to a member if it is free, or if `from` has it. Returns the placement, whoever has it then. A claim by its owner changes nothing
   * unless the owner is `from`.
   *
   * @param from a member whose lease has lapsed, or the claiming one, which then gets a new token.
   */
  claim(key: PlacementKey, member: string, from: string | undefined): Promise<Placement>;
  /** Keeps a placement from expiring. Returns false if another member has it, or nobody. */
  confirm(key: PlacementKey, placement: Placement): Promise<boolean>;
  /**
   * Frees a placement. Does nothing if its owner is another one.
   *
   * @param formerMs the time for which {@link former} names the owner, in ms. Default: 0.
   */
  release(key: PlacementKey, placement: Placement, formerMs?: number): Promise<void>;
  /** Returns the last member that has freed the placement and still works on something of it. */
  former(key: PlacementKey): Promise<string | undefined>;
  /** Frees a placement, and tells its owner. */
  revoke(key: PlacementKey): Promise<void>;
  /**
   * Calls a function with each placement of a member that is revoked.
   *
   * @param onMissed called when the table was out of reach, so that placements may have been revoked without notice.
   */
  watch(member: string, onRevoked: (key: PlacementKey) => void, onMissed: () => void): Promise<void>;
  /** Ends {@link watch}. */
  unwatch(member: string): Promise<void>;
}
