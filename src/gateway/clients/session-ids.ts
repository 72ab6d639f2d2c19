import { randomUUID } from 'node:crypto';
import type { LimitName } from '../../limits.ts';
import type { Principal } from '../../policy/principal.ts';
import { featuresOf, isLegacyRevision, type LegacyRevision } from '../../protocol/revisions.ts';
import type { SessionRef } from '../../store/session-store.ts';
import { forwardableCapabilities } from '../exchange/client-capabilities.ts';
import type { Caller } from '../front/caller.ts';
import type { Sealer } from '../handles/sealer.ts';
import { KnownRefs } from './known-refs.ts';

/** The content of a session id. */
export interface UnsealedSession {
  readonly key: string;
  readonly ref: SessionRef;
  readonly revision: LegacyRevision;
  /** As text. */
  readonly capabilities: string;
}

/** Makes and opens the ids of sessions. An id contains, sealed, everything about its session that never changes. */
export class SessionIds {
  readonly #sealer: Sealer;
  /** The ids of sessions that other processes have. Empty if there are none. */
  readonly known: KnownRefs;

  constructor(sealer: Sealer, onLimit: (limit: LimitName) => void) {
    this.#sealer = sealer;
    this.known = new KnownRefs(onLimit);
  }

  async seal(
    { principal, view, revision, capabilities }: Caller,
    serial: number,
    maxAgeMs: number,
  ): Promise<Pick<UnsealedSession, 'key' | 'ref'> & { readonly id: string }> {
    const ref = { principal: principal.key, serial, expiresMs: Date.now() + maxAgeMs };
    const payload = {
      key: randomUUID(),
      serial,
      expires: ref.expiresMs,
      principal: principal.key,
      view,
      revision,
      capabilities: forwardableCapabilities(capabilities, featuresOf(revision)).toString(),
    };
    return { id: await this.#sealer.seal('session', payload, ref.expiresMs), key: payload.key, ref };
  }

  /** Opens an id. Returns undefined if it is invalid, or belongs to another principal or view. */
  async unseal(id: string, principal: Principal, view: string): Promise<UnsealedSession | undefined> {
    const payload = await this.#sealer.unseal('session', id, Date.now());
    if (payload === undefined || payload['principal'] !== principal.key || payload['view'] !== view) return undefined;
    const { key, serial, expires, revision, capabilities } = payload;
    if (typeof serial !== 'number' || typeof expires !== 'number') return undefined;
    if (typeof key !== 'string' || typeof revision !== 'string' || !isLegacyRevision(revision)) return undefined;
    if (typeof capabilities !== 'string') return undefined;
    return { key, ref: { principal: principal.key, serial, expiresMs: expires }, revision, capabilities };
  }

  /** Returns the reference in an id; undefined if it is invalid, or belongs to another principal or view. */
  async refOf(id: string, principal: Principal, view: string): Promise<SessionRef | undefined> {
    const known = this.known.find(id, principal, view);
    if (known !== undefined) return known;
    const unsealed = await this.unseal(id, principal, view);
    if (unsealed === undefined) return undefined;
    this.known.add(id, unsealed.ref, view);
    return unsealed.ref;
  }
}
