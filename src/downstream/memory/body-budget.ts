import type { BudgetLimits } from './byte-budget.ts';

export interface BodyBudgetEvents {
  /** A body found no room. */
  onRefused(): void;
  /** A body stopped coming. */
  onStalled(): void;
}

/** Bounds the bytes of request bodies that have begun and not ended, for each principal and for all together. */
export class BodyBudget {
  readonly #limits: BudgetLimits;
  readonly events: BodyBudgetEvents;
  readonly #byPrincipal = new Map<string, number>();
  #bytes = 0;

  constructor(limits: BudgetLimits, events: BodyBudgetEvents) {
    this.#limits = limits;
    this.events = events;
  }

  get bytes(): number {
    return this.#bytes;
  }

  /** Reserves bytes. Returns false, and reserves nothing, where that is too much. */
  reserve(principal: string, bytes: number): boolean {
    const own = (this.#byPrincipal.get(principal) ?? 0) + bytes;
    if (own > this.#limits.principalBytes || this.#bytes + bytes > this.#limits.totalBytes) {
      this.events.onRefused();
      return false;
    }
    this.#byPrincipal.set(principal, own);
    this.#bytes += bytes;
    return true;
  }

  release(principal: string, bytes: number): void {
    const own = (this.#byPrincipal.get(principal) ?? 0) - bytes;
    if (own > 0) this.#byPrincipal.set(principal, own);
    else this.#byPrincipal.delete(principal);
    this.#bytes -= bytes;
  }
}
