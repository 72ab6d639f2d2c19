import { KeyedSums } from '../../map-entries.ts';
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
  readonly #sums = new KeyedSums();

  constructor(limits: BudgetLimits, events: BodyBudgetEvents) {
    this.#limits = limits;
    this.events = events;
  }

  get bytes(): number {
    return this.#sums.total;
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
    const { principalBytes, totalBytes } = this.#limits;
    if (this.#sums.of(principal) + bytes > principalBytes || this.#sums.total + bytes > totalBytes) {
      this.events.onRefused();
      return false;
    }
    this.#sums.add(principal, bytes);
    return true;
  }

  release(principal: string, bytes: number): void {
    this.#sums.add(principal, -bytes);
  }
}
