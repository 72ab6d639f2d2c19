import { LIMITS, type LimitName } from '../limits.ts';
import type { Principal } from './principal.ts';

/** The credentials that have proved a principal. It stays the same object while its token is remembered. */
export interface Proof {
  /** The verified bearer token; empty once it is forgotten, undefined for an API key. */
  readonly token: string | undefined;
  /** The time when the token ends, in ms since the epoch; Infinity if nobody says. A verification may move it. */
  readonly endMs: number;
  /** The number of its last verification, which grows with each of any principal. */
  readonly verification: number;
}

/** A principal that was authenticated, with what has proved it. */
export interface AuthenticatedPrincipal {
  readonly principal: Principal;
  /** At least one. The newest comes first, whichever is verified again. */
  readonly proofs: readonly Proof[];
}

interface RememberedProof extends Proof {
  token: string | undefined;
  /** The time when it was issued, or was seen first if nobody says, in ms since the epoch. */
  readonly issuedMs: number;
  /** The time until which it is valid without another verification, in ms since the epoch. */
  boundMs: number;
  endMs: number;
  verification: number;
}

interface Remembered {
  principal: Principal;
  readonly proofs: RememberedProof[];
}

/**
 * The principals that were authenticated last, for upstreams whose credentials depend on the caller. Remembers nothing unless there is such an upstream. A
 * token goes from here to the token endpoint of an upstream's authorization server, or to another replica, and nowhere else.
 */
export class Callers {
  readonly #byKey = new Map<string, Remembered>();
  readonly #tokens = new WeakMap<Principal, string>();
  readonly #onLimit: (limit: LimitName) => void;
  /** Returns ms since the epoch. */
  readonly now: () => number;
  #isNeeded = false;
  #tokenChars = 0;
  #verifications = 0;

  constructor(onLimit: (limit: LimitName) => void, now: () => number = Date.now) {
    this.#onLimit = onLimit;
    this.now = now;
  }

  /** Remembers callers from now on. */
  begin(): void {
    this.#isNeeded = true;
  }

  /** Remembers a principal that was just verified. */
  remember(principal: Principal, token: string | undefined): void {
    if (!this.#isNeeded) return;
    // Another process has verified it before it began to remember tokens, and will do so again.
    if (token === undefined && principal.issuer !== undefined) return;
    if (token !== undefined) this.#tokens.set(principal, token);
    const { key, expiresAtMs = Infinity } = principal;
    const caller = this.#byKey.get(key) ?? { principal, proofs: [] };
    this.#removeEnded(caller);
    const { proofs } = caller;
    const nowMs = this.now();
    let proof = proofs.find((known) => known.token === token && nowMs < known.endMs);
    if (proof === undefined) {
      const saidMs = claimMs(principal, 'iat');
      const issuedMs = Math.min(nowMs, saidMs);
      proof = { token, issuedMs, boundMs: 0, endMs: 0, verification: 0 };
      // Beyond the limit, a token of unknown age may be one that was forgotten: as the newest, it would drop one that comes back as well.
      const isUnknown = saidMs === Infinity && proofs.length >= LIMITS.tokensPerCaller;
      const older = isUnknown ? -1 : proofs.findIndex((known) => known.issuedMs <= issuedMs);
      proofs.splice(older < 0 ? proofs.length : older, 0, proof);
      this.#tokenChars += token?.length ?? 0;
    }
    proof.boundMs = expiresAtMs;
    // A token that is accepted here has not ended.
    proof.endMs = Math.max(claimMs(principal, 'exp'), principal.expiresAtMs ?? 0);
    proof.verification = ++this.#verifications;
    caller.principal = principal;
    this.#byKey.delete(key);
    this.#byKey.set(key, caller);
    if (proofs.length > LIMITS.tokensPerCaller) {
      this.#onLimit('tokensPerCaller');
      this.#remove(proofs, LIMITS.tokensPerCaller);
    }
    while (this.#byKey.size > LIMITS.callers || this.#tokenChars > LIMITS.callerTokenChars) {
      const [oldest = caller] = this.#byKey.values();
      this.#onLimit(this.#byKey.size > LIMITS.callers ? 'callers' : 'callerTokenChars');
      this.#byKey.delete(oldest.principal.key);
      this.#remove(oldest.proofs, 0, Infinity);
    }
  }

  /** Returns the caller with this key of a principal; undefined if it was not seen for long. */
  find(key: string): AuthenticatedPrincipal | undefined {
    const caller = this.#byKey.get(key);
    if (caller !== undefined) this.#removeEnded(caller);
    return caller;
  }

  /** Returns the token that proved this principal; undefined if none was remembered. */
  tokenOf(principal: Principal): string | undefined {
    return this.#tokens.get(principal);
  }

  /** Removes the proofs that have ended, or were not verified for long, as long as there is another one. */
  #removeEnded({ proofs }: Remembered): void {
    if (proofs.length < 2) return;
    const nowMs = this.now();
    for (let at = proofs.length - 1; at >= 0 && proofs.length > 1; at--) {
      if (nowMs >= (proofs[at]?.boundMs ?? 0)) this.#remove(proofs, at);
    }
  }

  #remove(proofs: RememberedProof[], at: number, count = 1): void {
    for (const proof of proofs.splice(at, count)) {
      this.#tokenChars -= proof.token?.length ?? 0;
      // Others may know the proof for longer.
      proof.token &&= '';
    }
  }
}

/** Returns a time that a token has, in ms since the epoch; Infinity if it has none. */
function claimMs({ claims }: Principal, name: 'exp' | 'iat'): number {
  const seconds = claims?.[name];
  return typeof seconds === 'number' ? seconds * 1_000 : Infinity;
}
