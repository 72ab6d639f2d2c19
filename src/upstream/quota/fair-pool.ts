import { getOrMake } from '../../map-entries.ts';

/** Pools whose units principals share. */
export type SharedPool = 'requests' | 'queue' | 'processes' | 'connections' | 'sessions' | 'parked';

export interface Shares {
  /** False if there is only one principal, so that no part of a pool is kept for others. */
  readonly isOn: boolean;
  /** Returns the weight of a principal by its key: at least 1. `''` is the gateway itself. */
  weightOf(principal: string): number;
  /** Counts a refusal of a principal above its share, for which other principals have or get the unit. */
  onRefused(pool: SharedPool): void;
}

/** Every principal has the same weight, and no part of a pool is kept. */
export const ONE_PRINCIPAL: Shares = { isOn: false, weightOf: () => 1, onRefused: () => undefined };

/** The last part of a pool, which is kept for principals below their share: one of this many units. */
const KEPT_FRACTION = 8;
/** Principals without units that stay known, so that a client that sends one request after another costs no insertions. */
const INACTIVE_LIMIT = 64;

export interface PoolWaiter {
  readonly principal: string;
}

/** The units and waiting requests of one principal. */
interface Part<Waiter> {
  weight: number;
  used: number;
  /** In the order of arrival. */
  readonly waiting: Waiter[];
  /** The turn of the principal: it grows by 1 / weight for each waiting request that is served. The smallest is next. */
  turn: number;
}

/**
 * Divides the units of a pool between principals, by their weights. A principal may use units that are free, but the last part of the pool
 * is for those below their share. A share is the capacity × weight / the weights of all principals that have units or wait, and of one
 * more. That one has weight 1, so that a newcomer finds units. No unit in use is taken away.
 */
export class FairPool<Waiter extends PoolWaiter = never> {
  readonly #shares: Shares;
  readonly #parts = new Map<string, Part<Waiter>>();
  #capacity: number;
  #used = 0;
  #waiting = 0;
  /** The weights of the principals that have units or wait. */
  #weights = 0;
  /** The turn of the principal that was served last. */
  #turn = 0;

  constructor(shares: Shares, capacity: number) {
    this.#shares = shares;
    this.#capacity = capacity;
  }

  /** Sets the capacity. A lower one takes no unit away. */
  setCapacity(capacity: number): void {
    this.#capacity = capacity;
  }

  get used(): number {
    return this.#used;
  }

  get waitingCount(): number {
    return this.#waiting;
  }

  get isUnused(): boolean {
    return this.#used === 0 && this.#waiting === 0;
  }

  /** True if a unit is free, perhaps only for principals below their share. */
  get hasFree(): boolean {
    return this.#used < this.#capacity;
  }

  usedBy(principal: string): number {
    return this.#parts.get(principal)?.used ?? 0;
  }

  hasRoomFor(principal: string): boolean {
    const free = this.#capacity - this.#used;
    if (free <= 0) return false;
    if (!this.#shares.isOn || free > Math.floor(this.#capacity / KEPT_FRACTION)) return true;
    const part = this.#parts.get(principal);
    if (part === undefined || part.used === 0) return true;
    return part.used + 1 <= (this.#capacity * part.weight) / (this.#weights + 1);
  }

  /** Takes a unit. The caller has asked {@link hasRoomFor}, or replaces a unit of the same principal. */
  take(principal: string): void {
    this.#used++;
    if (this.#shares.isOn) this.#partOf(principal).used++;
  }

  release(principal: string): void {
    this.#used--;
    const part = this.#parts.get(principal);
    // It was taken when there was one principal.
    if (part === undefined || part.used === 0) return;
    part.used--;
    this.#settle(principal, part);
  }

  move(from: string, to: string): void {
    this.take(to);
    this.release(from);
  }

  wait(waiter: Waiter): void {
    this.#waiting++;
    this.#partOf(waiter.principal).waiting.push(waiter);
  }

  /** Ends a wait. Returns false if it has ended already. */
  stopWaiting(waiter: Waiter): boolean {
    const part = this.#parts.get(waiter.principal);
    const at = part?.waiting.indexOf(waiter) ?? -1;
    if (part === undefined || at < 0) return false;
    this.#waiting--;
    part.waiting.splice(at, 1);
    this.#settle(waiter.principal, part);
    return true;
  }

  /**
   * Takes a unit for a waiting request, the first of its principal. Principals below their share come first; among equals they take
   * turns, by their weights. Returns the request, which waits no more; undefined if no waiting one may have a unit.
   */
  takeNext(): Waiter | undefined {
    const part = this.#next();
    const waiter = part?.waiting[0];
    if (part === undefined || waiter === undefined) return undefined;
    this.#turn = part.turn;
    part.turn += 1 / part.weight;
    this.take(waiter.principal);
    this.stopWaiting(waiter);
    return waiter;
  }

  #next(): Part<Waiter> | undefined {
    if (this.#waiting === 0 || !this.hasFree) return undefined;
    let best: Part<Waiter> | undefined;
    let isBestBelow = false;
    for (const [principal, part] of this.#parts) {
      if (part.waiting.length === 0) continue;
      const isBelow = part.used + 1 <= (this.#capacity * part.weight) / this.#weights;
      const isBetter = best === undefined || (isBelow === isBestBelow ? part.turn < best.turn : isBelow);
      if (!isBetter || !this.hasRoomFor(principal)) continue;
      best = part;
      isBestBelow = isBelow;
    }
    return best;
  }

  /**
   * Returns the latest waiting request of the principal with the most of them by its weight. Undefined unless it still has more than
   * `principal` with one more.
   */
  latestOfMostWaiting(principal: string): Waiter | undefined {
    let latest: Waiter | undefined;
    let mostByWeight = ((this.#parts.get(principal)?.waiting.length ?? 0) + 1) / this.#shares.weightOf(principal);
    for (const [other, { waiting, weight }] of this.#parts) {
      if (other === principal || waiting.length / weight <= mostByWeight) continue;
      latest = waiting.at(-1);
      mostByWeight = waiting.length / weight;
    }
    return latest;
  }

  /** Returns the part of a principal that gets a unit or begins to wait. */
  #partOf(principal: string): Part<Waiter> {
    const weight = this.#shares.weightOf(principal);
    const part = getOrMake(this.#parts, principal, () => ({ weight, used: 0, waiting: [], turn: this.#turn }));
    if (isActive(part)) {
      this.#weights += weight - part.weight;
    } else {
      this.#weights += weight;
      // Turns that it has not used are lost.
      if (part.turn < this.#turn) part.turn = this.#turn;
    }
    part.weight = weight;
    return part;
  }

  #settle(principal: string, part: Part<Waiter>): void {
    if (isActive(part)) return;
    this.#weights -= part.weight;
    if (this.#parts.size > INACTIVE_LIMIT) this.#parts.delete(principal);
  }
}

function isActive({ used, waiting }: Part<unknown>): boolean {
  return used > 0 || waiting.length > 0;
}
