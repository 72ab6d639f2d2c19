import { GatewayError } from '../errors.ts';
import { isFulfilled } from '../thrown.ts';
import type { CounterTable } from './counter-table.ts';
import { inGroups } from './in-groups.ts';
import { within } from './within.ts';

/** A block is this part of its limit. */
const BLOCKS = 64;
const RENEWALS_PER_LEASE = 3;
/** The longest time that a caller waits for units. */
const WAIT_MS = 250;

interface Counter {
  readonly name: string;
  limit: number;
  used: number;
  /** Units that the table has granted to this process. */
  granted: number;
  /** The time at which the lease of these units began; monotonic ms. */
  leasedMs: number;
  /** Units that this process had asked for when these were granted. */
  wanted: number;
  /** Callers that wait for a unit. */
  waiting: number;
  leasing: Promise<void> | undefined;
}

/** Counts that bound something over all processes of a gateway. */
export interface Counters {
  /** The number of processes that share the limits. */
  readonly processes: number;
  /** Takes one unit. Returns false if the limit is reached; a promise only if other processes must be asked. Never rejects. */
  acquire(name: string, limit: number): boolean | Promise<boolean>;
  /** Gives back one unit. */
  release(name: string): void;
}

export interface SharedCountersParts {
  readonly table: CounterTable;
  readonly process: string;
  /** Returns the number of processes, for their share of a limit while the table cannot be reached. */
  readonly processes: () => number;
  /** The longest time that a caller waits for the table, in ms. Default: 250. */
  readonly waitMs?: number;
}

/**
 * Counts that all processes of a gateway share. Each process leases blocks of units, and counts inside them without asking.
 *
 * All processes together do not exceed a limit. Up to (n − 1) × (block − 1) units may be refused though nobody uses them, for n processes.
 * While the table cannot be reached, or takes too long, a process may use what it has been granted. It may use its equal share of the limit
 * if that is more. So processes may exceed the limit together until the table is back. Units in use are never taken away.
 */
export class SharedCounters implements Counters {
  readonly #parts: SharedCountersParts;
  readonly #counters = new Map<string, Counter>();
  readonly #timer: NodeJS.Timeout;
  #isClosed = false;

  constructor(parts: SharedCountersParts) {
    this.#parts = parts;
    this.#timer = setInterval(() => void this.renew(), parts.table.leaseMs / RENEWALS_PER_LEASE).unref();
  }

  get processes(): number {
    return Math.max(1, this.#parts.processes());
  }

  acquire(name: string, limit: number): boolean | Promise<boolean> {
    const counter = this.#counter(name, limit);
    // A process that was stopped for a while may have lost its units to others.
    const isLeased = performance.now() - counter.leasedMs < this.#parts.table.leaseMs;
    if (isLeased && counter.used < Math.min(counter.granted, limit)) {
      counter.used++;
      return true;
    }
    return this.#acquireMore(counter);
  }

  async #acquireMore(counter: Counter): Promise<boolean> {
    const lateMs = performance.now() + (this.#parts.waitMs ?? WAIT_MS);
    counter.waiting++;
    try {
      for (;;) {
        const wanted = counter.used + counter.waiting + blockOf(counter.limit) - 1;
        const share = await this.#leaseInTime(counter, wanted, lateMs);
        if (counter.used < Math.max(Math.min(counter.granted, counter.limit), share)) {
          counter.used++;
          return true;
        }
        // The table has no more. Otherwise others have taken the units that this caller has waited for.
        if (share > 0 || counter.granted < counter.wanted) return false;
      }
    } finally {
      counter.waiting--;
    }
  }

  /** Leases units. Returns the share of this process if the table cannot be reached until then, else 0. */
  async #leaseInTime(counter: Counter, wanted: number, lateMs: number): Promise<number> {
    try {
      await within(this.#lease(counter, wanted), lateMs - performance.now());
      return 0;
    } catch (thrown) {
      if (!(thrown instanceof GatewayError)) throw thrown;
      return Math.max(1, Math.floor(counter.limit / this.processes));
    }
  }

  /** Leases units, or waits for the lease under way. @throws {GatewayError} `store-unavailable` */
  async #lease(counter: Counter, wanted: number): Promise<void> {
    counter.leasing ??= this.#leaseUnits(counter, wanted).finally(() => {
      counter.leasing = undefined;
    });
    await counter.leasing;
  }

  async #leaseUnits(counter: Counter, wanted: number): Promise<void> {
    const { table, process } = this.#parts;
    // The others may have the units that are returned as soon as the table gets this.
    counter.granted = Math.min(counter.granted, wanted);
    const leasedMs = performance.now();
    counter.granted = await table.lease(counter.name, process, wanted, counter.limit);
    counter.wanted = wanted;
    counter.leasedMs = leasedMs;
  }

  release(name: string): void {
    const counter = this.#counters.get(name);
    if (counter !== undefined && counter.used > 0) counter.used--;
  }

  /** Returns the units that this process uses. */
  used(name: string): number {
    return this.#counters.get(name)?.used ?? 0;
  }

  #counter(name: string, limit: number): Counter {
    let counter = this.#counters.get(name);
    if (counter === undefined) {
      counter = { name, limit, used: 0, granted: 0, leasedMs: 0, wanted: 0, waiting: 0, leasing: undefined };
      this.#counters.set(name, counter);
    }
    counter.limit = limit;
    return counter;
  }

  /** Renews all leases, and returns the units that are not used. Never rejects. */
  async renew(): Promise<void> {
    await inGroups([...this.#counters.values()], (counter) => this.#renew(counter));
  }

  async #renew(counter: Counter): Promise<void> {
    // That lease may be one of more units.
    await counter.leasing?.catch(() => undefined);
    // A caller that waits for units may have been granted some, and not have taken them yet.
    const needed = this.#isClosed ? 0 : counter.used + counter.waiting;
    const wanted = needed === 0 ? 0 : needed + blockOf(counter.limit) - 1;
    const isRenewed = await isFulfilled(this.#lease(counter, wanted));
    const isUnused = counter.used === 0 && counter.waiting === 0 && counter.granted === 0;
    if (isRenewed && isUnused) this.#counters.delete(counter.name);
  }

  /** Returns all units. Never rejects. */
  async close(): Promise<void> {
    clearInterval(this.#timer);
    this.#isClosed = true;
    for (const counter of this.#counters.values()) counter.used = 0;
    await this.renew();
  }
}

function blockOf(limit: number): number {
  return Math.max(1, Math.floor(limit / BLOCKS));
}
