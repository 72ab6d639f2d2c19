import { KeyedSums } from './map-entries.ts';

export interface SlotLimits {
  /** Slots in all, and for one owner. */
  readonly slots: number;
  readonly slotsPerOwner: number;
  /** Callers that wait, in all and for one owner. */
  readonly waiting: number;
  readonly waitingPerOwner: number;
}

/**
 * Slots for expensive work that strangers can cause. Owners that wait take turns, so that one with many requests delays the others by
 * at most one piece of work for each slot.
 */
export class FairSlots {
  readonly #limits: SlotLimits;
  readonly #used = new KeyedSums();
  /** Waiting callers by owner. The first owner is served next. */
  readonly #waiting = new Map<string, (() => void)[]>();
  #waitingCount = 0;

  constructor(limits: SlotLimits) {
    this.#limits = limits;
  }

  /**
   * Runs work in a slot, after a wait if necessary. Returns undefined, and does not run it, if too many callers wait.
   *
   * @param signal ends the wait, which then rejects. Default: nothing does.
   */
  async run<T>(owner: string, work: () => Promise<T>, signal?: AbortSignal): Promise<T | undefined> {
    if (!this.#hasSlot(owner)) {
      const own = this.#waiting.get(owner) ?? [];
      const { waiting, waitingPerOwner } = this.#limits;
      if (this.#waitingCount >= waiting || own.length >= waitingPerOwner) return undefined;
      this.#waiting.set(owner, own);
      this.#waitingCount++;
      const { promise, resolve, reject } = Promise.withResolvers<void>();
      own.push(resolve);
      const leave = () => {
        if (this.#leave(owner, own, resolve)) reject(new Error('the wait was given up', { cause: signal?.reason }));
      };
      signal?.addEventListener('abort', leave, { once: true });
      await promise.finally(() => signal?.removeEventListener('abort', leave));
    } else this.#take(owner);
    try {
      return await work();
    } finally {
      this.#release(owner);
    }
  }

  #hasSlot(owner: string): boolean {
    return this.fullFor(owner) === undefined;
  }

  /** Returns the bound for which the next caller of an owner has to wait; undefined if there is a slot. */
  fullFor(owner: string): 'slots' | 'slotsPerOwner' | undefined {
    const { slots, slotsPerOwner } = this.#limits;
    if (this.#used.of(owner) >= slotsPerOwner) return 'slotsPerOwner';
    return this.#used.total >= slots ? 'slots' : undefined;
  }

  /** Returns the number of callers of an owner that wait. Default: of all owners. */
  waitingCallers(owner?: string): number {
    return owner === undefined ? this.#waitingCount : (this.#waiting.get(owner)?.length ?? 0);
  }

  #take(owner: string): void {
    this.#used.add(owner, 1);
  }

  /** Removes a waiting caller. Returns false if it waits no more. */
  #leave(owner: string, own: (() => void)[], caller: () => void): boolean {
    const at = own.indexOf(caller);
    if (at === -1) return false;
    own.splice(at, 1);
    this.#waitingCount--;
    if (own.length === 0) this.#waiting.delete(owner);
    return true;
  }

  #release(owner: string): void {
    this.#used.add(owner, -1);
    this.#serveNext();
  }

  #serveNext(): void {
    for (const [owner, callers] of this.#waiting) {
      if (!this.#hasSlot(owner)) continue;
      const next = callers.shift();
      this.#waiting.delete(owner);
      // The owner waits behind all others for its next slot.
      if (callers.length > 0) this.#waiting.set(owner, callers);
      if (next === undefined) continue;
      this.#waitingCount--;
      this.#take(owner);
      return next();
    }
  }
}
