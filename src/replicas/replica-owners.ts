import { GatewayError } from '../errors.ts';
import { type ConnectionRef, GONE, HERE, type OwnedState, type Owners } from '../gateway/exchange/owners.ts';
import type { Owner, Ownership } from '../gateway/front/front.ts';
import type { Principal } from '../policy/principal.ts';
import {
  connectionName,
  isUnreadable,
  keyText,
  type Member,
  type PlacementKey,
  placementText,
  sessionKey,
} from '../store/placement-table.ts';
import { type ClaimedOwner, Placements, type PlacementsParts } from '../store/placements.ts';
import type { SessionRef } from '../store/session-store.ts';
import type { Metrics } from '../telemetry/metrics.ts';
import type { InternalKeys } from './internal-keys.ts';
import { RemoteOwner } from './remote-owner.ts';
import { expected } from '../thrown.ts';
import { getOrMake } from '../map-entries.ts';

/** An answer of the table is used again for this long. The owner checks it. */
const CACHED_MS = 1_000;
const MAX_CACHED = 10_000;

export interface ReplicaOwnersParts extends Omit<PlacementsParts, 'isUsed' | 'isEnded' | 'onLost' | 'onRejoined'> {
  readonly keys: InternalKeys;
  readonly metrics: Pick<Metrics, 'countForwarded' | 'countFencedSession'>;
  /** Returns the token of a principal, if other replicas need it. Default: they never do. */
  readonly tokenOf?: (principal: Principal) => string | undefined;
  /** Returns whether a session has ended at any process. @throws {GatewayError} `store-unavailable` */
  readonly isEnded: (session: SessionRef) => Promise<boolean>;
  /** Runs once for each process whose entry cannot be read. Default: there is none. */
  readonly onUnreadable?: (process: string) => void;
}

/** Another process of the gateway, as operators see it. */
export interface Colleague {
  readonly name: string;
  readonly ask: RemoteOwner['ask'];
}

/** Handles the loss of a session or of a connection. */
interface LossListener {
  /** Undefined for a connection. */
  readonly session?: SessionRef;
  readonly onLost: () => void;
}

/** The owners of a gateway of several processes: sessions by their placements, all else by the process that a handle names. */
export class ReplicaOwners implements Owners {
  readonly name: string;
  readonly isAlone = false;
  readonly #parts: ReplicaOwnersParts;
  readonly #placements: Placements;
  readonly #remotes: Map<string, RemoteOwner>;
  readonly #listeners: Map<string, LossListener>;
  /** Other owners of sessions, by the name of the session. */
  readonly #cached = new Map<string, { readonly member: Member; readonly untilMs: number }>();
  /** Keys of connections, which are looked up at each request. */
  readonly #connectionKeys = new WeakMap<ConnectionRef, PlacementKey>();
  /** Called when this process has joined again, after its lease has lapsed. */
  onRejoined: () => unknown = () => undefined;
  #isLeaving = false;
  #lastSuccessor = 0;

  private constructor(
    parts: ReplicaOwnersParts,
    placements: Placements,
    remotes: Map<string, RemoteOwner>,
    listeners: Map<string, LossListener>,
  ) {
    this.name = parts.process;
    this.#parts = parts;
    this.#placements = placements;
    this.#remotes = remotes;
    this.#listeners = listeners;
  }

  /** Joins the other processes, which give it no sessions until {@link announce}. @throws {GatewayError} `store-unavailable` */
  static async open(parts: ReplicaOwnersParts): Promise<ReplicaOwners> {
    const listeners = new Map<string, LossListener>();
    const remotes = new Map<string, RemoteOwner>();
    let unreadable: ReadonlySet<string> = new Set();
    const placements = await Placements.open({
      ...parts,
      isUsed: (key) => listeners.has(keyText(key)),
      isEnded: async (key) => {
        const session = listeners.get(keyText(key))?.session;
        return session !== undefined && (await parts.isEnded(session));
      },
      onLost: (key) => {
        const name = keyText(key);
        const listener = listeners.get(name);
        if (!listeners.delete(name)) return;
        parts.metrics.countFencedSession();
        listener?.onLost();
      },
      onMembers: (members) => {
        removeGone(remotes, members);
        parts.onMembers?.(members);
        const before = unreadable;
        unreadable = new Set(members.filter(isUnreadable).map(({ process }) => process));
        for (const process of unreadable) if (!before.has(process)) parts.onUnreadable?.(process);
      },
      onRejoined: () => owners.onRejoined(),
    });
    const owners = new ReplicaOwners(parts, placements, remotes, listeners);
    return owners;
  }

  get isCurrent(): boolean {
    return this.#placements.isCurrent;
  }

  get others(): readonly Member[] {
    return this.#placements.others;
  }

  /** Returns the other processes as they are now, to ask them for operators. Never rejects. */
  async colleagues(): Promise<readonly Colleague[]> {
    const members = await this.#placements.currentOthers();
    return members.map((member) => ({
      // Nothing but the id of a member with another wrapping key can be read.
      name: isUnreadable(member) ? member.process.slice(0, 8) : member.address,
      ask: (...question) => this.#ownerAt(member).ask(...question),
    }));
  }

  /** Returns whether a member id is that of this process now. */
  isSelf(member: string): boolean {
    return this.#placements.self.id === member;
  }

  /** Returns the placement of a session of this process, as writes of its state carry it; undefined if it has none. */
  fenceOf(session: SessionRef): string | undefined {
    const placement = this.#placements.held(sessionKey(session));
    return placement === undefined ? undefined : placementText(placement);
  }

  ownerOf(owned: OwnedState): Ownership | Promise<Ownership> {
    if (owned.kind !== 'session' && owned.kind !== 'connection') {
      return owned.process === this.name ? HERE : this.#ownerOfProcess(owned.process);
    }
    const key = owned.kind === 'session' ? sessionKey(owned.session) : this.#connectionKeyOf(owned.ref);
    const name = keyText(key);
    const cached = this.#cached.get(name);
    const known = cached !== undefined && this.#isMember(cached.member) ? cached : undefined;
    // While the owner cannot be reached, requests try it again until this has expired, and then ask the table.
    const isFresh = known !== undefined && performance.now() < known.untilMs && owned.isForwarded !== true;
    return isFresh ? this.#elsewhere(known.member) : this.#lookUp(owned, key, name, known?.member);
  }

  async #ownerOfProcess(process: string): Promise<Ownership> {
    const member = await this.#placements.memberOf(process);
    return member === undefined ? GONE : this.#elsewhere(member);
  }

  /** @param last the owner that the table has named before. */
  async #lookUp(
    owned: Extract<OwnedState, { readonly kind: 'session' | 'connection' }>,
    key: PlacementKey,
    name: string,
    last: Member | undefined,
  ): Promise<Ownership> {
    const claim = await this.#claim(key, owned.kind === 'session' && owned.isNew === true).catch(
      expected(GatewayError),
    );
    if (claim instanceof GatewayError) {
      // Without a table, requests go to the last known owner, which refuses what it does not have any more. Modern requests need no table.
      const isPassedOn = last !== undefined && !(owned.kind === 'session' && owned.isForwarded === true);
      if (isPassedOn) {
        this.#cached.set(name, { member: last, untilMs: performance.now() + CACHED_MS });
        return this.#elsewhere(last);
      }
      if (owned.kind === 'session') throw claim;
      return HERE;
    }
    this.#cached.delete(name);
    if (claim.kind === 'here') return HERE;
    if (this.#cached.size >= MAX_CACHED) this.#cached.clear();
    this.#cached.set(name, { member: claim.member, untilMs: performance.now() + CACHED_MS });
    return this.#elsewhere(claim.member);
  }

  /** Claims a session for this process; if it leaves, for another one, unless the session is new. */
  async #claim(key: PlacementKey, isNew: boolean): Promise<ClaimedOwner> {
    if (!this.#isLeaving || isNew) return await this.#placements.claim(key);
    return await this.#placements.claim(key, this.#nextSuccessor());
  }

  /** Returns the next of the members that serve and do not leave; undefined if there is none. */
  #nextSuccessor(): Member | undefined {
    const staying = this.#placements.others.filter(({ isLeaving = false }) => !isLeaving);
    return staying[this.#lastSuccessor++ % staying.length];
  }

  successor(): Owner | undefined {
    const member = this.#isLeaving ? this.#nextSuccessor() : undefined;
    return member === undefined ? undefined : this.#ownerAt(member);
  }

  async formerOf(session: SessionRef): Promise<Owner | undefined> {
    const member = await this.#placements.formerOf(sessionKey(session));
    return member === undefined ? undefined : this.#ownerAt(member);
  }

  /** Lets the others give it their sessions. Never rejects. */
  async announce(): Promise<void> {
    await this.#placements.announce();
  }

  /** Gives the sessions that are released from now on to other processes, and gets no new ones. @throws {GatewayError} `store-unavailable` */
  async leave(): Promise<void> {
    await this.#placements.leave();
    this.#isLeaving = true;
  }

  #isMember({ id }: Member): boolean {
    return this.#placements.others.some((other) => other.id === id);
  }

  #elsewhere(member: Member): Ownership {
    return { kind: 'elsewhere', owner: this.#ownerAt(member) };
  }

  #ownerAt(member: Member): RemoteOwner {
    return getOrMake(
      this.#remotes,
      member.id,
      () => new RemoteOwner(member, this.#parts.keys, this.#parts.metrics, this.#parts.tokenOf),
    );
  }

  stillOwns(session: SessionRef): boolean | Promise<boolean> {
    return this.isCurrent || this.#placements.isStillHeld(sessionKey(session));
  }

  /** Returns whether a process has a lease. @throws {GatewayError} `store-unavailable` */
  async isAlive(process: string): Promise<boolean> {
    return (await this.#placements.memberOf(process)) !== undefined;
  }

  /** Checks at once whether a session still belongs to this process, after a write of its state was refused. Never rejects. */
  async recheck(session: SessionRef): Promise<void> {
    await this.#placements.recheck(sessionKey(session));
  }

  onLost(session: SessionRef, listener: () => void): void {
    const key = sessionKey(session);
    this.#listeners.set(keyText(key), { session, onLost: listener });
    // It may have been lost while the session was made.
    if (this.#placements.held(key) !== undefined) return;
    this.#parts.metrics.countFencedSession();
    this.#listeners.delete(keyText(key));
    listener();
  }

  release(session: SessionRef, hasRequests = false): void {
    this.#release(sessionKey(session), hasRequests);
  }

  holds(ref: ConnectionRef): boolean {
    return this.isCurrent && this.#placements.held(this.#connectionKeyOf(ref)) !== undefined;
  }

  onConnectionLost(ref: ConnectionRef, listener: () => void): void {
    this.#listeners.set(keyText(this.#connectionKeyOf(ref)), { onLost: listener });
  }

  releaseConnection(ref: ConnectionRef): void {
    this.#release(this.#connectionKeyOf(ref), false);
  }

  #connectionKeyOf(ref: ConnectionRef): PlacementKey {
    return getOrMake(this.#connectionKeys, ref, () => ({ principal: ref.principal, name: connectionName(ref.name) }));
  }

  #release(key: PlacementKey, hasRequests: boolean): void {
    this.#listeners.delete(keyText(key));
    void this.#placements.release(key, hasRequests);
  }

  /** Ends the connections of a ring that is not valid any more. */
  closeConnections(): void {
    for (const remote of this.#remotes.values()) remote.destroy();
    this.#remotes.clear();
  }

  /** Leaves the other processes, which may have all sessions from then on. */
  async close(): Promise<void> {
    await this.#placements.close();
    this.closeConnections();
  }
}

/** Ends the connections to members that have gone. */
function removeGone(remotes: Map<string, RemoteOwner>, members: readonly Member[]): void {
  const ids = new Set(members.map(({ id }) => id));
  for (const [id, remote] of remotes) {
    if (ids.has(id)) continue;
    remotes.delete(id);
    remote.destroy();
  }
}
