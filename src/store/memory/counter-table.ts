import type { CounterTable } from '../counter-table.ts';

interface Leased {
  readonly units: number;
  /** Monotonic ms. */
  readonly untilMs: number;
}

interface Counter {
  /** By process. */
  readonly leases: Map<string, Leased>;
  /** The end of its latest lease; monotonic ms. */
  untilMs: number;
}

/** Counts in memory, for processes that reach one process in which they are. */
export class MemoryCounterTable implements CounterTable {
  readonly leaseMs: number;
  /** Those with leases, in the order of their ends. */
  readonly #counters = new Map<string, Counter>();

  constructor(leaseMs: number) {
    this.leaseMs = leaseMs;
  }

  get size(): number {
    return this.#counters.size;
  }

  async lease(counter: string, process: string, wanted: number, limit: number): Promise<number> {
    const nowMs = performance.now();
    this.#removeLapsed(nowMs);
    const entry = this.#counters.get(counter) ?? { leases: new Map<string, Leased>(), untilMs: nowMs };
    const { leases } = entry;
    let others = 0;
    for (const [other, { units, untilMs }] of leases) {
      if (untilMs <= nowMs) leases.delete(other);
      else if (other !== process) others += units;
    }
    const units = Math.max(0, Math.min(wanted, limit - others));
    if (units > 0) {
      entry.untilMs = nowMs + this.leaseMs;
      leases.set(process, { units, untilMs: entry.untilMs });
      this.#counters.delete(counter);
      this.#counters.set(counter, entry);
    } else {
      leases.delete(process);
      if (leases.size === 0) this.#counters.delete(counter);
    }
    return units;
  }

  /** Removes the counters whose processes have all died. */
  #removeLapsed(nowMs: number): void {
    for (const [counter, { untilMs }] of this.#counters) {
      if (nowMs < untilMs) return;
      this.#counters.delete(counter);
    }
  }
}
