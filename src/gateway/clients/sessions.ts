import { randomUUID } from 'node:crypto';
import { GatewayError } from '../../errors.ts';
import type { Principal } from '../../policy/principal.ts';
import { RawObject } from '../../json/json.ts';
import { isLegacyRevision, featuresOf } from '../../protocol/revisions.ts';
import type { Level } from '../../telemetry/metrics.ts';
import type { SessionStore } from '../../store/session-store.ts';
import type { Caller } from '../exchange/caller.ts';
import { forwardableCapabilities } from '../exchange/client-capabilities.ts';
import { isSeverity } from '../../protocol/severity.ts';
import type { Offers } from '../lists/offers.ts';
import type { Sealer } from '../handles/sealer.ts';
import { ownerOf } from '../exchange/route.ts';
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
  readonly gauge: Level;
  /** Told when a session that was let go has come back. */
  onRestored(session: Session): void;
  /** Told before a session is let go or ended. */
  onRelease(session: Session): void;
}

/**
 * The sessions that are awake. A session's id says all about it that never changes, sealed; so one that was let go for
 * idleness, or lived before a restart, wakes up when its id comes.
 */
export class Sessions {
  readonly #parts: SessionsParts;
  readonly #active = new Map<string, Session>();
  readonly #restoring = new Map<string, Promise<Session | undefined>>();
  /** Sessions on their way, by principal: they count already. */
  readonly #opening = new Map<string, number>();

  constructor(parts: SessionsParts) {
    this.#parts = parts;
  }

  [Symbol.iterator](): Iterator<Session> {
    return this.#active.values();
  }

  /** @throws {GatewayError} `overloaded` when the principal has too many, none of which can be released without loss. */
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
      capabilities: forwardableCapabilities(caller.capabilities, featuresOf(caller.revision)).toString(),
    };
    const id = await this.#parts.sealer.seal('session', payload, Date.now() + this.#parts.limits.maxAgeMs);
    const session = await this.#make(id, key, caller);
    this.#active.set(id, session);
    this.#parts.gauge.add();
    return session;
  }

  /** The session of this id, woken if need be; undefined unless it is this principal's, at this view, and not over. */
  find(id: string, principal: Principal, view: string): Session | undefined | Promise<Session | undefined> {
    const session = this.#active.get(id);
    return session === undefined ? this.#restored(id, principal, view) : ofCaller(session, principal, view);
  }

  async #restored(id: string, principal: Principal, view: string): Promise<Session | undefined> {
    // A stranger who brings the same id must not be the one whose claim is judged.
    const claim = JSON.stringify([id, principal.key, view]);
    let waking = this.#restoring.get(claim);
    if (waking === undefined) {
      waking = this.#restore(id, principal, view).finally(() => this.#restoring.delete(claim));
      this.#restoring.set(claim, waking);
    }
    const session = await waking;
    return session && ofCaller(session, principal, view);
  }

  async #restore(id: string, principal: Principal, view: string): Promise<Session | undefined> {
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
    this.#active.set(id, session);
    this.#parts.gauge.add();
    this.#parts.onRestored(session);
    return session;
  }

  /** Sees at once what is known of lists for its features, be it from disk. */
  async #make(id: string, key: string, caller: Caller): Promise<Session> {
    const { offers } = this.#parts;
    const session = new Session(id, key, caller, offers.catalog(caller.view, 'legacy', ''));
    session.catalog = await offers.loadCatalog(session);
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
    this.#release(session);
    await this.#parts.store.end(session.key, Date.now() + this.#parts.limits.maxAgeMs);
  }

  /** Lets go of the sessions nobody has used for long. */
  sweep(nowMs: number): void {
    for (const session of this.#active.values()) {
      if (session.isQuiet && nowMs - session.usedMs > this.#parts.limits.idleMs) this.#release(session);
    }
  }

  releaseAll(): void {
    for (const session of this.#active.values()) this.#release(session);
  }

  #release(session: Session): void {
    if (!this.#active.delete(session.id)) return;
    this.#parts.gauge.remove();
    this.#parts.onRelease(session);
    session.close();
  }

  async #reserved(principal: Principal, make: () => Promise<Session>): Promise<Session> {
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

  /** Releases the session that was unused for longest, among those that lose nothing by it: each wakes up from its id. */
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

/** The session, used from now on, unless it is somebody else's or belongs to another endpoint. */
function ofCaller(session: Session, principal: Principal, view: string): Session | undefined {
  if (session.principal !== principal.key || session.caller.view !== view) return undefined;
  session.usedMs = performance.now();
  return session;
}
