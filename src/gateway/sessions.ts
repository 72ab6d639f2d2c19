import { randomUUID } from 'node:crypto';
import { GatewayError } from '../errors.ts';
import type { Principal } from '../policy/principal.ts';
import { RawObject } from '../json/json.ts';
import { isLegacyRevision, quirksOf } from '../protocol/revisions.ts';
import type { Level } from '../telemetry/metrics.ts';
import type { SessionStore } from '../store/session-store.ts';
import type { Caller } from './caller.ts';
import { mirrored } from './features.ts';
import { isSeverity } from '../protocol/severity.ts';
import type { Offers } from './offers.ts';
import type { Sealer } from './seal.ts';
import { ownerOf } from './route.ts';
import { Session } from './session.ts';

export interface SessionLimits {
  readonly idleMs: number;
  readonly maxAgeMs: number;
  readonly perPrincipal: number;
}

export interface SessionsParts {
  readonly sealer: Sealer;
  readonly store: SessionStore;
  readonly offers: Offers;
  readonly limits: SessionLimits;
  /** Counts those awake. */
  readonly level: Level;
  /** Told when a session that was let go has come back. */
  woken(session: Session): void;
  /** Told before a session is let go or ended. */
  leaving(session: Session): void;
}

/**
 * The sessions that are awake. A session's id says all about it that never changes, sealed; so one that was let go for
 * idleness, or lived before a restart, wakes up when its id comes.
 */
export class Sessions {
  readonly #parts: SessionsParts;
  readonly #awake = new Map<string, Session>();
  readonly #waking = new Map<string, Promise<Session | undefined>>();
  /** Sessions on their way, by principal: they count already. */
  readonly #coming = new Map<string, number>();

  constructor(parts: SessionsParts) {
    this.#parts = parts;
  }

  [Symbol.iterator](): Iterator<Session> {
    return this.#awake.values();
  }

  /** @throws {GatewayError} `overloaded` when the principal has too many that are all in use. */
  async open(caller: Caller): Promise<Session> {
    return await this.#reserved(caller.principal, () => this.#open(caller));
  }

  async #open(caller: Caller): Promise<Session> {
    const key = randomUUID();
    const payload = {
      key,
      principal: caller.principal.key,
      view: caller.view,
      revision: caller.revision,
      capabilities: mirrored(caller.capabilities, quirksOf(caller.revision)).toString(),
    };
    const id = await this.#parts.sealer.seal('session', payload, Date.now() + this.#parts.limits.maxAgeMs);
    const session = await this.#make(id, key, caller);
    this.#awake.set(id, session);
    this.#parts.level.add();
    return session;
  }

  /** The session of this id, woken if need be; undefined unless it is this principal's, at this view, and not over. */
  find(id: string, principal: Principal, view: string): Session | undefined | Promise<Session | undefined> {
    const session = this.#awake.get(id);
    return session === undefined ? this.#woken(id, principal, view) : ofCaller(session, principal, view);
  }

  async #woken(id: string, principal: Principal, view: string): Promise<Session | undefined> {
    // A stranger who brings the same id must not be the one whose claim is judged.
    const claim = JSON.stringify([id, principal.key, view]);
    let waking = this.#waking.get(claim);
    if (waking === undefined) {
      waking = this.#wake(id, principal, view).finally(() => this.#waking.delete(claim));
      this.#waking.set(claim, waking);
    }
    const session = await waking;
    return session && ofCaller(session, principal, view);
  }

  async #wake(id: string, principal: Principal, view: string): Promise<Session | undefined> {
    const payload = await this.#parts.sealer.unseal('session', id, Date.now());
    if (payload === undefined || payload['principal'] !== principal.key || payload['view'] !== view) return undefined;
    const { key, revision, capabilities } = payload;
    if (typeof key !== 'string' || typeof revision !== 'string' || !isLegacyRevision(revision)) return undefined;
    if (typeof capabilities !== 'string') return undefined;
    if (await this.#parts.store.isEnded(key)) return undefined;
    const record = await this.#parts.store.load(key);

    const caller: Caller = {
      principal,
      view,
      revision,
      capabilities: RawObject.parse(capabilities),
    };
    const session = await this.#reserved(principal, () => this.#make(id, key, caller));
    session.isInitialized = true;
    if (isSeverity(record?.logLevel)) session.logLevel = record.logLevel;
    for (const uri of record?.subscriptions ?? []) {
      const owner = ownerOf(session.catalog, uri);
      if (!(owner instanceof GatewayError))
        session.subscriptions.set(uri, { upstream: owner.upstream, uri: owner.uri });
    }
    this.#awake.set(id, session);
    this.#parts.level.add();
    this.#parts.woken(session);
    return session;
  }

  /** Sees at once what is known of lists for its features, be it from disk. */
  async #make(id: string, key: string, caller: Caller): Promise<Session> {
    const { offers } = this.#parts;
    const session = new Session(id, key, caller, offers.catalog(caller.view, ''));
    session.catalog = await offers.catalogOnceRead(session);
    return session;
  }

  /** Keeps what has changed in a session since it began. */
  save(session: Session): Promise<void> {
    const { logLevel } = session;
    return this.#parts.store.save(session.key, {
      ...(logLevel === undefined ? {} : { logLevel }),
      subscriptions: [...session.subscriptions.keys()],
    });
  }

  /** Its id will never work again. */
  async end(session: Session): Promise<void> {
    this.#letGo(session);
    await this.#parts.store.end(session.key, Date.now() + this.#parts.limits.maxAgeMs);
  }

  /** Lets go of the sessions nobody has used for long. */
  sweep(nowMs: number): void {
    for (const session of this.#awake.values()) {
      if (session.isQuiet && nowMs - session.usedMs > this.#parts.limits.idleMs) this.#letGo(session);
    }
  }

  letAllGo(): void {
    for (const session of this.#awake.values()) this.#letGo(session);
  }

  #letGo(session: Session): void {
    if (!this.#awake.delete(session.id)) return;
    this.#parts.level.remove();
    this.#parts.leaving(session);
    session.close();
  }

  async #reserved(principal: Principal, make: () => Promise<Session>): Promise<Session> {
    this.#makeRoom(principal);
    const { key } = principal;
    this.#coming.set(key, (this.#coming.get(key) ?? 0) + 1);
    try {
      return await make();
    } finally {
      const left = (this.#coming.get(key) ?? 1) - 1;
      if (left === 0) this.#coming.delete(key);
      else this.#coming.set(key, left);
    }
  }

  #makeRoom(principal: Principal): void {
    let count = this.#coming.get(principal.key) ?? 0;
    if (this.#awake.size + count < this.#parts.limits.perPrincipal) return;
    let oldest: Session | undefined;
    for (const session of this.#awake.values()) {
      if (session.principal !== principal.key) continue;
      count++;
      if (session.isQuiet && (oldest === undefined || session.usedMs < oldest.usedMs)) oldest = session;
    }
    if (count < this.#parts.limits.perPrincipal) return;
    if (oldest === undefined) {
      throw new GatewayError('overloaded', { say: `${count} sessions of yours are in use` });
    }
    this.#letGo(oldest);
  }
}

/** The session, used from now on, unless it is somebody else's or belongs to another endpoint. */
function ofCaller(session: Session, principal: Principal, view: string): Session | undefined {
  if (session.principal !== principal.key || session.caller.view !== view) return undefined;
  session.usedMs = performance.now();
  return session;
}
