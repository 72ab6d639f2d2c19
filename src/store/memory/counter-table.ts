import type { CounterTable } from '../counter-table.ts';

interface Leased {
  readonly units: number;
  /** Monotonic ms. */
  readonly untilMs: number;
}

/** Counts in memory, for processes that reach one process in which they are. */
export class MemoryCounterTable implements CounterTable {
  readonly leaseMs: number;
  readonly #counters = new Map<string, Map<string, Leased>>();

  constructor(leaseMs: number) {
    this.leaseMs = leaseMs;
  }

  async lease(counter: string, process: string, wanted: number, limit: number): Promise<number> {
    const leases = this.#counters.get(counter) ?? new Map<string, Leased>();
    const nowMs = performance.now();
    let others = 0;
    for (const [other, { units, untilMs }] of leases) {
      if (untilMs <= nowMs) leases.delete(other);
      else if (other !== process) others += units;
    }
    const units = Math.max(0, Math.min(wanted, limit - others));
    if (units > 0) leases.set(process, { units, untilMs: nowMs + this.leaseMs });
    else leases.delete(process);
    if (leases.size > 0) this.#counters.set(counter, leases);
    else this.#counters.delete(counter);
    return units;
  }
}
