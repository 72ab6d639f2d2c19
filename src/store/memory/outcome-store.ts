import { detach } from '../../json/kept-text.ts';
import { LIMITS } from '../../limits.ts';
import { ExpirySteps } from './expiry-steps.ts';
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
  readonly #expiries = new ExpirySteps(performance.now());
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
    const nowMs = performance.now();
    for (const expired of this.#expiries.takeExpired(nowMs)) this.#remove(expired);
    while (this.#bytes + bytes > LIMITS.outcomesBytes) {
      const first = this.#expiries.first();
      if (first === undefined) break;
      this.#onLimit('outcomesBytes');
      this.#remove(first);
    }
    const [name, untilMs] = [detach(id), nowMs + ttlMs];
    this.#outcomes.set(name, { outcome: detach(outcome), bytes, untilMs });
    this.#expiries.add(name, untilMs);
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
    const stored = this.#outcomes.get(id);
    if (stored === undefined) return;
    this.#bytes -= stored.bytes;
    this.#outcomes.delete(id);
    this.#expiries.remove(id, stored.untilMs);
  }
}
