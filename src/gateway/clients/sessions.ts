import { isShown } from '../../catalog/catalog.ts';
import { commonKey } from '../../catalog/offer.ts';
import { upstreamIn } from '../../catalog/view.ts';
import type { Settings } from '../../config/values/config.ts';
import { GatewayError } from '../../errors.ts';
import type { Principal } from '../../policy/principal.ts';
import { resultWithin } from '../../deadline.ts';
import { RawObject } from '../../json/json.ts';
import type { Level } from '../../telemetry/metrics.ts';
import type { SessionChange, SessionRecord, SessionRef, SessionStore } from '../../store/session-store.ts';
import type { Attachment } from '../../upstream/link/attachment.ts';
import type { Caller } from '../front/caller.ts';
import { assertClaimed, HERE, SESSION_ENDED } from '../exchange/owners.ts';
import type { Owner, Ownership } from '../front/front.ts';
import type { Link } from '../exchange/connection-holder.ts';
import { isSeverity } from '../../protocol/severity.ts';
import type { Offers } from '../lists/offers.ts';
import { Attachments } from '../handles/attachments.ts';
import type { Sealer } from '../handles/sealer.ts';
import type { SharedParts } from '../records/shared-parts.ts';
import { addStored } from '../connections/stored-subscriptions.ts';
import { tagOf } from './known-refs.ts';
import { type LeavingEvents, LeavingSessions } from './leaving-sessions.ts';
import { Session, type SessionEvents } from './session.ts';
import { SessionIds, type UnsealedSession } from './session-ids.ts';
import { refusal } from './session-refusals.ts';
import { SessionRoom } from './session-room.ts';
import { recordState } from './state-record.ts';
import { getOrMake } from '../../map-entries.ts';

/** The longest wait for the process that had a session before, when the session ends. */
const FORMER_MS = 2_000;

export interface SessionsParts
  extends
    LeavingEvents,
    Pick<SessionEvents, 'onPrincipalChange' | 'hasFurtherScopes' | 'onLimit' | 'onDropped'>,
    Pick<SharedParts, 'owners' | 'upstreams' | 'shares' | 'counters' | 'log'> {
  readonly sealer: Sealer;
  readonly store: SessionStore;
  readonly offers: Offers;
  readonly settings: Settings<'sessions' | 'limits'>;
  readonly gauge: Level;
  /** Runs when a released session is in memory again. @param used the upstreams that may have kept state for it. */
  onRestored(session: Session, used: readonly string[]): void;
  /** Runs before a session is released because it was idle. */
  onUnused(session: Session): void;
  /** Runs when a session has ended for good. */
  onEnd(session: Session): void;
}

/** Everything that is stored about a session. */
interface StoredSession {
  readonly isEnded: boolean;
  readonly record: SessionRecord | undefined;
  /** The process that had it before; see {@link Owners.formerOf}. */
  readonly former: Owner | undefined;
}

/**
 * The sessions in memory, by id. A session that was released because it was idle, or that an earlier process opened, is restored when a request
 * has its id.
 */
export class Sessions {
  readonly leaving: LeavingSessions;
  readonly #parts: SessionsParts;
  readonly #attachments: Attachments;
  /** By the tag of the id. */
  readonly #active = new Map<string, Session>();
  readonly #restoring = new Map<string, Promise<Session | undefined>>();
  readonly #ending = new WeakMap<Session, Promise<void>>();
  readonly #ids: SessionIds;
  readonly #room: SessionRoom;
  readonly #events: SessionEvents;

  constructor(parts: SessionsParts) {
    this.#parts = parts;
    this.leaving = new LeavingSessions(parts);
    this.#attachments = new Attachments(parts.sealer, parts.upstreams);
    this.#ids = new SessionIds(parts.sealer, parts.onLimit);
    const { offers, settings, shares, counters, log } = parts;
    this.#events = {
      ...parts,
      onStateKept: (session, upstream) => this.#onStateKept(session, upstream),
      onLinkOpen: (session, link) => {
        const { upstream } = link;
        this.#saveAttachment(session, link).catch((thrown: unknown) => {
          log.debug({ err: thrown, upstream }, 'a restart will not continue the session there');
        });
      },
      catalogOf: (session, principal) => offers.catalogOf(session, principal),
    };
    const release = (session: Session) => this.#release(session, true);
    this.#room = new SessionRoom({ settings, shares, counters, active: this.#active, release });
  }

  [Symbol.iterator](): Iterator<Session> {
    return this.#active.values();
  }

  /** Yields the sessions in memory, and those that were given away and may have requests in flight here. */
  *all(): Iterable<Session> {
    yield* this.#active.values();
    yield* this.leaving;
  }

  get size(): number {
    return this.#active.size;
  }

  /** Returns whether the session of this id is in memory, and no other process can have claimed it. */
  isCertainlyHere(id: string): boolean {
    return this.#active.get(tagOf(id))?.id === id && this.#parts.owners.isCurrent;
  }

  /** Returns where the session of this id is. {@link find} refuses one that does not belong to this principal and view. */
  ownerOf(id: string, principal: Principal, view: string, isForwarded = false): Ownership | Promise<Ownership> {
    const { owners } = this.#parts;
    if (owners.isAlone || this.isCertainlyHere(id)) return HERE;
    const session = this.#ids.known.find(id, principal, view);
    const isLookedUp = session === undefined || this.#active.has(tagOf(id));
    if (isLookedUp) return this.#lookUpOwner(id, principal, view, isForwarded);
    return owners.ownerOf({ kind: 'session', session, isForwarded });
  }

  /** Opens the id before it asks, so that an invented id costs nobody a place in the table of owners. */
  async #lookUpOwner(id: string, principal: Principal, view: string, isForwarded: boolean): Promise<Ownership> {
    const { owners } = this.#parts;
    const session = await this.#ids.refOf(id, principal, view);
    if (session === undefined) return HERE;
    if (this.#active.get(tagOf(id))?.id === id && (await owners.stillOwns(session))) return HERE;
    return await owners.ownerOf({ kind: 'session', session, isForwarded });
  }

  /**
   * Opens a session. @throws {GatewayError} `overloaded` if the principal has too many sessions, none of which can be
   * released without loss.
   *
   * @param prepare runs first, if there is room for the session.
   */
  async open(caller: Caller, prepare?: () => Promise<void>): Promise<Session> {
    const { principal } = caller;
    const nextSerial = () => this.#parts.store.nextSerial(principal.key);
    const session = await this.#room.reserve(principal, nextSerial, async (serial) => {
      await prepare?.();
      return await this.#open(caller, serial);
    });
    return this.#assertHere(session);
  }

  async #open(caller: Caller, serial: number): Promise<Session> {
    const { id, key, ref } = await this.#ids.seal(caller, serial, this.#parts.settings().sessions.maxAgeMs);
    const { owners, offers } = this.#parts;
    // At once, since each answer of a store may take a while.
    const claiming = Promise.resolve(owners.ownerOf({ kind: 'session', session: ref, isNew: true }));
    const making = this.#make(id, key, ref, caller);
    try {
      await Promise.allSettled([claiming, making]);
      assertClaimed(await claiming);
      const session = await making;
      // The lists may have changed while it was claimed.
      session.catalog = offers.catalogFor(session);
      return this.#add(session);
    } catch (thrown) {
      owners.release(ref);
      throw thrown;
    }
  }

  /** Returns the session. @throws {GatewayError} `store-unavailable` if another process has got it meanwhile. */
  #assertHere(session: Session): Session {
    if (this.#active.get(tagOf(session.id)) === session) return session;
    const message = 'the session moved to another process at this moment; send the request again';
    throw new GatewayError('store-unavailable', { message });
  }

  #add(session: Session): Session {
    this.#active.set(tagOf(session.id), session);
    this.#parts.gauge.add();
    this.#parts.owners.onLost(session.ref, () => this.#release(session, true));
    return session;
  }

  /**
   * Returns the session of this id, and restores it if it is not in memory. Returns undefined if the id is invalid, or
   * belongs to another principal or view.
   */
  find(id: string, principal: Principal, view: string): Session | undefined | Promise<Session | undefined> {
    const session = this.#active.get(tagOf(id));
    if (session?.id !== id) return this.#findRestored(id, principal, view);
    return session.isExpired(Date.now()) ? undefined : this.#touchIfOwned(session, principal, view);
  }

  /**
   * Returns the session and marks it as used by this principal, whose claims may have changed. Undefined when it belongs to another principal
   * or view, or is ending.
   */
  #touchIfOwned(session: Session, principal: Principal, view: string): Session | undefined {
    if (session.principal !== principal.key || session.caller.view !== view) return undefined;
    // The end of one takes a while if requests of it are left elsewhere.
    if (this.#ending.has(session)) return undefined;
    session.usedMs = performance.now();
    session.onRequestOf(principal);
    return session;
  }

  async #findRestored(id: string, principal: Principal, view: string): Promise<Session | undefined> {
    // Another principal with the same id must not get the same result.
    const key = JSON.stringify([id, principal.key, view]);
    const restoring = getOrMake(this.#restoring, key, () =>
      this.#restore(id, principal, view).finally(() => this.#restoring.delete(key)),
    );
    const session = await restoring;
    return session && this.#touchIfOwned(session, principal, view);
  }

  async #restore(id: string, principal: Principal, view: string): Promise<Session | undefined> {
    const unsealed = await this.#ids.unseal(id, principal, view);
    if (unsealed === undefined) return undefined;
    const { ref } = unsealed;
    const { owners, upstreams } = this.#parts;
    const loading = this.#load(ref);
    try {
      const session = await this.#room.reserve(
        principal,
        () => loading,
        async (stored) =>
          stored.isEnded ? undefined : this.#add(await this.#makeRestored(id, unsealed, principal, view, stored)),
      );
      if (session === undefined) {
        owners.release(ref);
        return undefined;
      }
      const { record } = await loading;
      const used = (record?.upstreams ?? []).filter((one) => upstreams.has(one) && isShown(session.catalog, one));
      this.#parts.onRestored(this.#assertHere(session), used);
      return session;
    } catch (thrown) {
      owners.release(ref);
      // The client learns that, whatever else has failed.
      if ((await loading.catch(() => undefined))?.isEnded === true) return undefined;
      throw thrown;
    }
  }

  /** Reads all that is stored about a session at once, since each answer may take a while. */
  async #load(ref: SessionRef): Promise<StoredSession> {
    const { store, owners } = this.#parts;
    const finding = owners.isAlone ? undefined : owners.formerOf(ref);
    const [isEnded, record, former] = await Promise.all([store.isEnded(ref), store.load(ref), finding]);
    return { isEnded, record, former };
  }

  async #makeRestored(
    id: string,
    { key, ref, revision, capabilities }: UnsealedSession,
    principal: Principal,
    view: string,
    { record, former }: StoredSession,
  ): Promise<Session> {
    const caller: Caller = { principal, view, revision, capabilities: RawObject.parse(capabilities) };
    const session = await this.#make(id, key, ref, caller);
    session.isInitialized = true;
    session.hadStream = true;
    session.attachments = await this.#attachmentsOf(session, record);
    // A reload meanwhile did not reach it.
    session.catalog = this.#parts.offers.catalogFor(session);
    if (isSeverity(record?.logLevel)) session.logLevel = record.logLevel;
    session.unresolved = new Map(record?.subscriptions?.map((uri) => [uri, undefined]));
    addStored(session);
    session.former = former;
    return session;
  }

  /** Returns the sessions at upstreams that an earlier process has stored, of those that the session may still use. */
  async #attachmentsOf(
    { catalog }: Session,
    record: SessionRecord | undefined,
  ): Promise<Map<string, Attachment> | undefined> {
    const found = new Map<string, Attachment>();
    const { view } = catalog.whole ?? catalog;
    for (const { upstream, text } of record?.attachments ?? []) {
      if (!isShown(catalog, upstream) || upstreamIn(view, upstream) === undefined) continue;
      const attachment = await this.#attachments.unseal(upstream, text);
      if (attachment !== undefined) found.set(upstream, attachment);
    }
    return found.size === 0 ? undefined : found;
  }

  /** Makes a session with the catalog for its capabilities, which may be read from disk. */
  async #make(id: string, key: string, ref: SessionRef, caller: Caller): Promise<Session> {
    const { offers } = this.#parts;
    const session = new Session(id, key, ref, caller, offers.catalog(caller.view, commonKey('legacy')), this.#events);
    session.catalog = await offers.loadCatalog(session);
    return session;
  }

  /** Stores the name of the upstream, so that the gateway can report the loss of the state after a restart. */
  #onStateKept(session: Session, upstream: string): Promise<void> | undefined {
    if (this.leaving.has(session)) {
      this.leaving.onStateKept(session, upstream);
      return undefined;
    }
    return recordState(this.#parts, session, upstream).then((outcome) => {
      // The answer that began the state reports its loss.
      if (outcome === 'moved') this.leaving.onStateKept(session, upstream);
    });
  }

  /** Stores the session that a link has at its upstream, so that a later process continues it. */
  async #saveAttachment(session: Session, link: Link): Promise<void> {
    const { upstream } = link;
    // The store has no attachment of this session yet, unless the link continues a stored one.
    if (!link.isReattached) session.attachable?.delete(upstream);
    const text = await this.#attachments.seal(link, session.ref.expiresMs);
    if (text === undefined) return;
    await this.save(session, { kind: 'attach', upstream, text });
    if (!link.connection.isClosed) (session.attachable ??= new Set()).add(upstream);
  }

  /**
   * Stores a change of a session, so that it is known when the session is restored.
   *
   * @throws {GatewayError} `overloaded` or `invalid-params` if a limit forbids the change, `store-unavailable` if the session has moved. Then nothing
   *   is stored.
   */
  async save(session: Session, change: SessionChange): Promise<void> {
    const refused = await this.#parts.store.change(session.ref, change);
    if (refused !== undefined) throw refusal(refused);
  }

  /**
   * Ends a session for good.
   *
   * @throws {GatewayError} `internal-error` if the session has ended but the end could not be written, so that a
   *   restart could restore it.
   */
  end(session: Session): Promise<void> {
    const ending = this.#ending.get(session) ?? this.#end(session);
    this.#ending.set(session, ending);
    return ending;
  }

  async #end(session: Session): Promise<void> {
    const { store, owners } = this.#parts;
    // At once, so that no process restores it meanwhile.
    const storing = store.end(session.ref);
    storing.catch(() => undefined);
    // The store tells the owner that it has lost the session, and the sessions of a lost one stay open at upstreams.
    owners.release(session.ref);
    // Its requests in flight there are cancelled before its sessions at upstreams end: some servers go on with those of an ended session.
    const ends = [...this.formersOf(session)].map((former) => former.handleMessage(session, SESSION_ENDED));
    for (const left of this.leaving.of(session.id)) if (left !== session) ends.push(this.leaving.end(left));
    if (ends.length > 0) await resultWithin(Promise.all(ends), FORMER_MS);
    this.leaving.release(session);
    this.#release(session, false);
    this.#parts.onEnd(session);
    if (await storing) return;
    const { failure = 'state directory cannot be written' } = store;
    const message = `the session has ended, but a restart of the gateway before this is saved would revive it (${failure})`;
    throw new GatewayError('internal-error', { message });
  }

  /**
   * Releases sessions that have been idle for too long, and those beyond the share of this process. Those with an expired id are released
   * when their calls are answered.
   */
  sweep(nowMs: number): void {
    const dateMs = Date.now();
    for (const session of this.#active.values()) {
      const isIdle = session.isQuiet && nowMs - session.usedMs > this.#parts.settings().sessions.idleMs;
      // While the lease may have lapsed, another process may have the session.
      const isLeft = !this.#parts.owners.isCurrent;
      if (isIdle) this.#parts.onUnused(session);
      if (isIdle || (session.isExpired(dateMs) && session.inFlight.size === 0)) this.#release(session, isLeft);
    }
    this.#room.shrink();
  }

  /**
   * Ends these sessions in this process for good, because their endpoint or their principal is gone. Of those that were given away it ends
   * the requests in flight.
   */
  async endWhere(isConcerned: (session: Session) => boolean): Promise<void> {
    for (const session of this.leaving) if (isConcerned(session)) this.leaving.release(session);
    await Promise.all([...this.#active.values()].filter(isConcerned).map((session) => this.end(session)));
  }

  /**
   * Judges what runs without a request of sessions by the rights that their credentials have now.
   *
   * @param current returns the principal object with the rights of now; the same one if they have not changed.
   */
  updatePrincipals(current: (principal: Principal) => Principal): void {
    for (const session of this.all()) session.setPrincipal(current(session.caller.principal));
  }

  /**
   * Lets other processes have all sessions from now on that are not ending. Requests in flight end here, and streams are open until
   * {@link releaseAll}, since answers may not have been read yet.
   */
  handOver(): void {
    for (const session of this.#active.values()) {
      if (this.#ending.has(session)) continue;
      this.#remove(session, session.inFlight.size > 0);
      this.leaving.add(session);
    }
  }

  /** Returns the sessions of this id that were given away and may have requests in flight here: several if it has come back meanwhile. */
  findLeaving(id: string, principal: Principal, view: string): readonly Session[] {
    return this.leaving.of(id).filter((session) => this.#touchIfOwned(session, principal, view) !== undefined);
  }

  /** Returns the processes that had a session before, and may have requests of it in flight. It may have come back here from several. */
  formersOf(session: Session): ReadonlySet<Owner> {
    const formers = [session, ...this.leaving.of(session.id)].map(({ former }) => former);
    return new Set(formers.filter((former) => former !== undefined));
  }

  /** Releases the sessions in memory whose ids are not valid any more. */
  releaseInvalid(isValid: (id: string) => boolean): void {
    this.#ids.known.clear();
    for (const session of this.#active.values()) if (!isValid(session.id)) this.#release(session, false);
  }

  /** Releases all sessions. @param areLeft true if other processes may continue them, with those that they have at upstreams. */
  releaseAll(areLeft: boolean): void {
    this.#ids.known.clear();
    for (const session of this.#active.values()) this.#release(session, areLeft);
    for (const session of this.leaving) this.leaving.release(session);
  }

  #release(session: Session, isLeft: boolean): void {
    if (!this.#remove(session, false)) return;
    // One that is ending is continued by nobody, so that it ends at its upstreams too.
    this.#parts.onRelease(session, isLeft && !this.#ending.has(session));
    session.close();
  }

  /** Gives back what a session in memory takes. Returns false if it is not in memory. */
  #remove(session: Session, hasRequests: boolean): boolean {
    if (!this.#active.delete(tagOf(session.id))) return false;
    this.#parts.gauge.remove();
    this.#room.leave(session.principal);
    this.#parts.owners.release(session.ref, hasRequests);
    return true;
  }
}
