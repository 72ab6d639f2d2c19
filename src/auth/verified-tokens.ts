import type { Principal } from '../policy/principal.ts';

/** At most how long a revoked token, or one whose key was withdrawn, still works after it was last verified. */
const MAX_AGE_MS = 60_000;
const LIMIT = 10_000;

interface Entry {
  readonly principal: Principal;
  readonly sinceMs: number;
  readonly untilMs: number;
}

/**
 * Tokens that were verified a moment ago, by a key that must stand for the whole token and for what it was presented to. When it
 * is full the oldest entry goes, which is about the one that would have ended first.
 */
export class VerifiedTokens {
  readonly #entries = new Map<string, Entry>();

  find(key: string, nowMs: number): Principal | undefined {
    const entry = this.#entries.get(key);
    if (entry === undefined) return undefined;
    // A clock that was set back must not lengthen anything.
    if (nowMs >= entry.sinceMs && nowMs < entry.untilMs) return entry.principal;
    this.#entries.delete(key);
    return undefined;
  }

  add(key: string, principal: Principal, nowMs: number, expiresAtMs: number): void {
    const untilMs = Math.min(expiresAtMs, nowMs + MAX_AGE_MS);
    if (untilMs <= nowMs) return;
    if (this.#entries.size >= LIMIT) {
      const [oldest = key] = this.#entries.keys();
      this.#entries.delete(oldest);
    }
    this.#entries.set(key, { principal, sinceMs: nowMs, untilMs });
  }
}
