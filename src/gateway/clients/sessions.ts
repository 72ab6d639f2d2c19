import { randomUUID } from 'node:crypto';
import type { Logger } from 'pino';
import { commonKey } from '../../catalog/offer.ts';
import { GatewayError } from '../../errors.ts';
import type { Principal } from '../../policy/principal.ts';
import { RawObject } from '../../json/json.ts';
import { detach } from '../../json/kept-text.ts';
import { isLegacyRevision, featuresOf } from '../../protocol/revisions.ts';
import type { Level } from '../../telemetry/metrics.ts';
import { LIMITS, type LimitName } from '../../limits.ts';
import type { SessionChange, SessionRecord, SessionRef, SessionStore } from '../../store/session-store.ts';
import type { Caller } from '../exchange/caller.ts';
import { assertClaimed, HERE, type Owners } from '../exchange/owners.ts';
import type { Ownership } from '../front.ts';
import { forwardableCapabilities } from '../exchange/client-capabilities.ts';
import { isSeverity } from '../../protocol/severity.ts';
import type { Offers } from '../lists/offers.ts';
import type { Sealer } from '../handles/sealer.ts';
import { resolveUri } from '../exchange/route.ts';
import { Session } from './session.ts';

export interface SessionLimits {
  readonly idleMs: number;
  readonly maxAgeMs: number;
  readonly perPrincipal: number;
}

export interface SessionsParts {
  readonly sealer: Sealer;
  readonly owners: Owners;
  readonly store: SessionStore;
  readonly offers: Offers;
  readonly limits: SessionLimits;
  readonly log: Logger;
  /** The gauge of sessions in memory. */
  readonly gauge: Level;
  /** Runs when a released session is in memory again. */
  onRestored(session: Session, record: SessionRecord | undefined): void;
  /** Runs before a session is released or ended. */
  onRelease(session: Session): void;
}

/**
 * The sessions in memory, by id.
 *
 * An id contains, sealed, everything about its session that never changes. So a session that was released because it
 * was idle, or that an earlier process opened, is restored when a request has its id.
 */
export class Sessions {
  readonly #parts: SessionsParts;
  /** By the tag of the id. */
  readonly #active = new Map<string, Session>();
  readonly #restoring = new Map<string, Promise<Session | undefined>>();
  /** The number of sessions that are being opened or restored, by principal. They count as open. */
  readonly #opening = new Map<string, number>();

  constructor(parts: SessionsParts) {
    this.#parts = parts;
  }

  [Symbol.iterator](): Iterator<Session> {
    return this.#active.values();
  }

  /** The number of sessions in memory. */
  get size(): number {
    return this.#active.size;
  }

  /** Returns whether the session of this id is in memory. */
  has(id: string): boolean {
    return this.#active.get(tagOf(id))?.id === id;
  }

  /** Returns where the session of this id is, which may belong to anybody. */
  ownerOf(id: string): Ownership | Promise<Ownership> {
    return this.has(id) ? HERE : this.#parts.owners.ownerOf({ kind: 'session', id });
  }

  /**
   * Opens a session. @throws {GatewayError} `overloaded` if the principal has too many sessions, none of which can be
   * released without loss.
   */
  async open(caller: Caller): Promise<Session> {
    return await this.#withReservation(caller.principal, () => this.#open(caller));
  }

  async #open(caller: Caller): Promise<Session> {
    const key = randomUUID();
    const ref: SessionRef = {
      principal: caller.principal.key,
      serial: await this.#parts.store.nextSerial(caller.principal.key),
      expiresMs: Date.now() + this.#parts.limits.maxAgeMs,
    };
    const payload = {
      key,
      serial: ref.serial,
      expires: ref.expiresMs,
      principal: caller.principal.key,
      view: caller.view,
      revision: caller.revision,
      capabilities: forwardableCapabilities(caller.capabilities, featuresOf(caller.revision)).toString(),
    };
    const id = await this.#parts.sealer.seal('session', payload, ref.expiresMs);
    // The id has no owner yet, so it becomes that of this process.
    assertClaimed(await this.#parts.owners.ownerOf({ kind: 'session', id }));
    const session = await this.#make(id, key, ref, caller);
    this.#active.set(tagOf(id), session);
    this.#parts.gauge.add();
    return session;
  }

  /**
   * Returns the session of this id, and restores it if it is not in memory. Returns undefined if the id is invalid, or
   * belongs to another principal or view.
   */
  find(id: string, principal: Principal, view: string): Session | undefined | Promise<Session | undefined> {
    const session = this.#active.get(tagOf(id));
    if (session?.id !== id) return this.#findRestored(id, principal, view);
    return session.isExpired(Date.now()) ? undefined : touchIfOwned(session, principal, view);
  }

  async #findRestored(id: string, principal: Principal, view: string): Promise<Session | undefined> {
    // Another principal with the same id must not get the same result.
    const claim = JSON.stringify([id, principal.key, view]);
    let restoring = this.#restoring.get(claim);
    if (restoring === undefined) {
      restoring = this.#restore(id, principal, view).finally(() => this.#restoring.delete(claim));
      this.#restoring.set(claim, restoring);
    }
    const session = await restoring;
    return session && touchIfOwned(session, principal, view);
  }

  async #restore(id: string, principal: Principal, view: string): Promise<Session | undefined> {
    const payload = await this.#parts.sealer.unseal('session', id, Date.now());
    if (payload === undefined || payload['principal'] !== principal.key || payload['view'] !== view) return undefined;
    const { key, serial, expires, revision, capabilities } = payload;
    if (typeof serial !== 'number' || typeof expires !== 'number') return undefined;
    if (typeof key !== 'string' || typeof revision !== 'string' || !isLegacyRevision(revision)) return undefined;
    if (typeof capabilities !== 'string') return undefined;
    const ref: SessionRef = { principal: principal.key, serial, expiresMs: expires };
    if (await this.#parts.store.isEnded(ref)) return undefined;
    const record = await this.#parts.store.load(ref);

    const caller: Caller = {
      principal,
      view,
      revision,
      capabilities: RawObject.parse(capabilities),
    };
    const session = await this.#withReservation(principal, () => this.#make(id, key, ref, caller));
    session.isInitialized = true;
    if (isSeverity(record?.logLevel)) session.logLevel = record.logLevel;
    for (const uri of record?.subscriptions ?? []) {
      const resource = resolveUri(session.catalog, uri);
      if (!(resource instanceof GatewayError))
        session.subscriptions.set(detach(uri), { upstream: resource.upstream, uri: detach(resource.uri) });
    }
    this.#active.set(tagOf(id), session);
    this.#parts.gauge.add();
    this.#parts.onRestored(session, record);
    return session;
  }

  /** Makes a session with the catalog for its capabilities, which may be read from disk. */
  async #make(id: string, key: string, ref: SessionRef, caller: Caller): Promise<Session> {
    const { offers } = this.#parts;
    const session = new Session(
      id,
      key,
      ref,
      caller,
      offers.catalog(caller.view, commonKey('legacy')),
      this.#onStateKept,
    );
    session.catalog = await offers.loadCatalog(session);
    return session;
  }

  /** Stores the name of the upstream, so that the gateway can report the loss of the state after a restart. */
  readonly #onStateKept = (session: Session, upstream: string): void => {
    this.save(session, { kind: 'use', upstream }).catch((thrown: unknown) => {
      this.#parts.log.debug({ err: thrown, upstream }, 'a restart will not report the loss of state');
    });
  };

  /**
   * Stores a change of a session, so that it is known when the session is restored.
   *
   * @throws {GatewayError} `overloaded` or `invalid-params` if a limit forbids the change. Then nothing is stored.
   */
  async save(session: Session, change: SessionChange): Promise<void> {
    const limit = await this.#parts.store.change(session.ref, change);
    if (limit !== undefined) throw refusal(limit);
  }

  /**
   * Ends a session for good.
   *
   * @throws {GatewayError} `internal-error` if the session has ended but the end could not be written, so that a
   *   restart could restore it.
   */
  async end(session: Session): Promise<void> {
    this.#release(session);
    if (await this.#parts.store.end(session.ref)) return;
    const { failure = 'state directory cannot be written' } = this.#parts.store;
    const message = `the session has ended, but a restart of the gateway before this is saved would revive it (${failure})`;
    throw new GatewayError('internal-error', { message });
  }

  /**
   * Releases sessions that have been idle for too long, and sessions with an expired id when their calls are answered.
   */
  sweep(nowMs: number): void {
    const dateMs = Date.now();
    for (const session of this.#active.values()) {
      if (session.isExpired(dateMs) && session.inFlight.size === 0) this.#release(session);
      else if (session.isQuiet && nowMs - session.usedMs > this.#parts.limits.idleMs) this.#release(session);
    }
  }

  /** Ends the sessions of an endpoint that was removed, for good. */
  async endAt(view: string): Promise<void> {
    const ending = [...this.#active.values()].filter(({ caller }) => caller.view === view);
    await Promise.all(ending.map((session) => this.end(session)));
  }

  /** Releases all sessions. */
  releaseAll(): void {
    for (const session of this.#active.values()) this.#release(session);
  }

  #release(session: Session): void {
    if (!this.#active.delete(tagOf(session.id))) return;
    this.#parts.gauge.remove();
    this.#parts.onRelease(session);
    session.close();
  }

  async #withReservation(principal: Principal, make: () => Promise<Session>): Promise<Session> {
    this.#makeRoom(principal);
    const { key } = principal;
    this.#opening.set(key, (this.#opening.get(key) ?? 0) + 1);
    try {
      return await make();
    } finally {
      const left = (this.#opening.get(key) ?? 1) - 1;
      if (left === 0) this.#opening.delete(key);
      else this.#opening.set(key, left);
    }
  }

  /**
   * Releases the least recently used session of a principal without loss, if the principal has as many as allowed. A
   * released session is restored from its id.
   */
  #makeRoom(principal: Principal): void {
    let count = this.#opening.get(principal.key) ?? 0;
    if (this.#active.size + count < this.#parts.limits.perPrincipal) return;
    let oldest: Session | undefined;
    for (const session of this.#active.values()) {
      if (session.principal !== principal.key) continue;
      count++;
      if (session.isReleasable && (oldest === undefined || session.usedMs < oldest.usedMs)) oldest = session;
    }
    if (count < this.#parts.limits.perPrincipal) return;
    if (oldest === undefined) {
      const message =
        `you have ${count} sessions that are in use, as many as gateway.limits.sessionsPerPrincipal allows; ` +
        'end one with DELETE, or try again later';
      throw new GatewayError('overloaded', { message });
    }
    this.#release(oldest);
  }
}

/** Returns the authentication tag that ends a sealed id. Each id has its own; hashing a whole id would take 2 % of a call. */
function tagOf(id: string): string {
  return id.slice(id.lastIndexOf('.') + 1);
}

/** Returns the error that names the limit that forbids a change, and the client's remedy. */
function refusal(limit: LimitName): GatewayError {
  if (limit === 'subscriptionUriBytes') {
    return new GatewayError('invalid-params', { message: `"uri" is longer than ${LIMITS.subscriptionUriBytes} bytes` });
  }
  const message =
    limit === 'subscriptionsPerSession'
      ? `this session has ${LIMITS.subscriptionsPerSession} subscriptions already; unsubscribe from some first`
      : `the subscriptions of ${limit === 'sessionRecordBytes' ? 'all' : 'your'} sessions take ${LIMITS[limit]} bytes already; end sessions that are not used any more`;
  return new GatewayError('overloaded', { message, data: { limit } });
}

/** Returns the session and marks it as used. Undefined when it belongs to another principal or view. */
function touchIfOwned(session: Session, principal: Principal, view: string): Session | undefined {
  if (session.principal !== principal.key || session.caller.view !== view) return undefined;
  session.usedMs = performance.now();
  return session;
}
