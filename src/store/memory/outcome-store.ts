import { detach } from '../../json/kept-text.ts';
import { LIMITS } from '../../limits.ts';
import type { OnOutcomeLimit, OutcomeStore } from '../outcome-store.ts';

interface StoredOutcome {
  readonly outcome: string;
  readonly bytes: number;
  /** Monotonic ms. */
  readonly untilMs: number;
}

export class MemoryOutcomeStore implements OutcomeStore {
  readonly #onLimit: OnOutcomeLimit;
  readonly #outcomes = new Map<string, StoredOutcome>();
  #bytes = 0;

  constructor(onLimit: OnOutcomeLimit) {
    this.#onLimit = onLimit;
  }

  async settle(id: string, outcome: string, ttlMs: number): Promise<boolean> {
    const bytes = 2 * (id.length + outcome.length);
    if (Buffer.byteLength(outcome) > LIMITS.outcomeBytes) {
      this.#onLimit('outcomeBytes');
      return false;
    }
    if (this.#live(id) !== undefined) return false;
    for (const [each, { untilMs }] of this.#outcomes) if (untilMs <= performance.now()) this.#remove(each);
    while (this.#bytes + bytes > LIMITS.outcomesBytes) {
      const [first] = [...this.#outcomes].toSorted(([, a], [, b]) => a.untilMs - b.untilMs);
      if (first === undefined) break;
      this.#onLimit('outcomesBytes');
      this.#remove(first[0]);
    }
    this.#outcomes.set(detach(id), { outcome: detach(outcome), bytes, untilMs: performance.now() + ttlMs });
    this.#bytes += bytes;
    return true;
  }

  async find(id: string): Promise<string | undefined> {
    return this.#live(id);
  }

  #live(id: string): string | undefined {
    const stored = this.#outcomes.get(id);
    if (stored !== undefined && stored.untilMs <= performance.now()) this.#remove(id);
    return this.#outcomes.get(id)?.outcome;
  }

  #remove(id: string): void {
    this.#bytes -= this.#outcomes.get(id)?.bytes ?? 0;
    this.#outcomes.delete(id);
  }
}
