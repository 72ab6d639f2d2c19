import { hash } from 'node:crypto';
import { LIMITS, type LimitName } from '../limits.ts';
import type { Principal } from './principal.ts';

/** A principal that was authenticated, with the token that proved it. */
export interface AuthenticatedPrincipal {
  readonly principal: Principal;
  /** The verified bearer token; undefined for an API key. */
  readonly token: string | undefined;
  /** The time when the token ends, in ms since the epoch; Infinity if nobody says. */
  readonly endMs: number;
}

interface Remembered extends AuthenticatedPrincipal {
  /** The hash of the token, once it was asked for. */
  digest: string | undefined;
  /** The hash of the token that a token endpoint has refused last; undefined if it has refused none. */
  refused: string | undefined;
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

  constructor(onLimit: (limit: LimitName) => void, now: () => number = Date.now) {
    this.#onLimit = onLimit;
    this.now = now;
  }

  /** Remembers callers from now on. */
  begin(): void {
    this.#isNeeded = true;
  }

  /** Remembers a principal that was just verified. A token replaces one that ends earlier, or that has not been verified for long, and any that was refused. */
  remember(principal: Principal, token: string | undefined): void {
    if (!this.#isNeeded) return;
    if (token !== undefined) this.#tokens.set(principal, token);
    const known = this.#byKey.get(principal.key);
    if (known !== undefined && known.token !== token && !isRefused(known, known.token)) {
      // Of two tokens that end together, each would else replace the other for ever.
      const isKept = this.now() < boundOf(known.principal) && expiryOf(known.principal) >= expiryOf(principal);
      if (isKept || isRefused(known, token)) return;
    }
    this.#remove(principal.key);
    // A token that is accepted here has not ended.
    const endMs = Math.max(expiryOf(principal), principal.expiresAtMs ?? 0);
    this.#byKey.set(principal.key, { principal, token, endMs, digest: undefined, refused: known?.refused });
    this.#tokenChars += token?.length ?? 0;
    while (this.#byKey.size > LIMITS.callers || this.#tokenChars > LIMITS.callerTokenChars) {
      const [oldest = principal.key] = this.#byKey.keys();
      this.#onLimit(this.#byKey.size > LIMITS.callers ? 'callers' : 'callerTokenChars');
      this.#remove(oldest);
    }
  }

  /** Gives a token up that a token endpoint has refused, as soon as there is another one of its caller. */
  refuse(key: string, token: string): void {
    const known = this.#byKey.get(key);
    if (known?.token === token) known.refused = hashOf(token);
  }

  /** Returns the caller with this key of a principal; undefined if it was not seen for long. */
  find(key: string): AuthenticatedPrincipal | undefined {
    return this.#byKey.get(key);
  }

  /** Returns the hash of the token of a caller; undefined if there is none, or it has ended. */
  digestOf(key: string): string | undefined {
    const known = this.#byKey.get(key);
    return known?.token === undefined || this.now() >= known.endMs ? undefined : (known.digest ??= hashOf(known.token));
  }

  /** Returns the token that proved this principal; undefined if none was remembered. */
  tokenOf(principal: Principal): string | undefined {
    return this.#tokens.get(principal);
  }

  #remove(key: string): void {
    const known = this.#byKey.get(key);
    if (known === undefined) return;
    this.#byKey.delete(key);
    this.#tokenChars -= known.token?.length ?? 0;
  }
}

/** Returns the time until which a principal is valid without another verification, in ms since the epoch. */
function boundOf({ expiresAtMs = Infinity }: Principal): number {
  return expiresAtMs;
}

/** Returns the end of a token as its issuer says it, in ms since the epoch; Infinity if it says none. */
function expiryOf({ claims }: Principal): number {
  const exp = claims?.['exp'];
  return typeof exp === 'number' ? exp * 1_000 : Infinity;
}

function isRefused({ refused }: Remembered, token: string | undefined): boolean {
  return refused !== undefined && token !== undefined && hashOf(token) === refused;
}

function hashOf(token: string): string {
  return hash('sha256', token, 'base64');
}
