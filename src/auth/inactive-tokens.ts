import { removeOver, setLatest } from '../map-entries.ts';
import { type LimitName, LIMITS } from '../limits.ts';

/** The time that an inactive token is not asked about again. */
const INACTIVE_MS = 30_000;

/** The tokens that one issuer has called inactive, by their hashes. A token may become active later. */
export class InactiveTokens {
  /** The time until which each one counts as inactive; the oldest first. */
  readonly #untilMs = new Map<string, number>();
  readonly #onLimit: ((limit: LimitName) => void) | undefined;

  /** @param onLimit called when the oldest token is forgotten. */
  constructor(onLimit?: (limit: LimitName) => void) {
    this.#onLimit = onLimit;
  }

  /** @param nowMs monotonic. */
  has(id: string, nowMs: number): boolean {
    return nowMs < (this.#untilMs.get(id) ?? -Infinity);
  }

  /** @param nowMs monotonic. */
  add(id: string, nowMs: number): void {
    removeOver(this.#untilMs, (untilMs) => nowMs >= untilMs);
    if (setLatest(this.#untilMs, id, nowMs + INACTIVE_MS, LIMITS.inactiveTokens)) this.#onLimit?.('inactiveTokens');
  }
}
