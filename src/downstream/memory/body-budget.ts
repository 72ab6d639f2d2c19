import type { BudgetLimits } from './byte-budget.ts';

export interface BodyBudgetEvents {
  /** Called when a body is refused for lack of room. */
  onRefused(): void;
  onStalled(): void;
}

/** Bounds the bytes of unfinished request bodies, per principal and in total. */
export class BodyBudget {
  #limits: BudgetLimits;
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

  /** The most bytes that one principal may have. */
  get principalBytes(): number {
    return this.#limits.principalBytes;
  }

  /** Sets other bounds. What is reserved stays. */
  setLimits(limits: BudgetLimits): void {
    this.#limits = limits;
  }

  /** Reserves bytes. Returns false, without reserving any, if a bound would be exceeded. */
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
