import { GatewayError } from '../errors.ts';

/** A request in the queue. */
interface Waiter {
  readonly principal: string;
  readonly resolve: () => void;
  readonly reject: (error: GatewayError) => void;
  readonly timer: NodeJS.Timeout;
}

/** A request in the queue of a {@link ConcurrencyLimiter}. */
export interface QueueTicket {
  /** Resolves when the request may start. Rejects with `overloaded` if it waited too long or lost its place. */
  readonly admitted: Promise<void>;
  /** Leaves the queue, and rejects `admitted` with this error. Has no effect after the request was admitted. */
  giveUp(error: GatewayError): void;
}

/**
 * Limits the requests in flight at one upstream. Further requests wait in a queue, where principals take turns: a principal
 * with many waiting requests does not delay another, and cannot fill the queue for it.
 */
export class ConcurrencyLimiter {
  readonly #upstream: string;
  #limit = 0;
  #queueLimit = 0;
  #queueMs = 0;
  /** Waiting requests by principal, the next principal to be served first. */
  readonly #waiting = new Map<string, Waiter[]>();
  #waitingCount = 0;
  #active = 0;
  #idle: PromiseWithResolvers<void> | undefined;

  /**
   * @param limit highest number of requests in flight.
   * @param queueLimit highest number of requests in the queue.
   * @param queueMs longest wait, in milliseconds.
   */
  constructor(upstream: string, limit: number, queueLimit: number, queueMs: number) {
    this.#upstream = upstream;
    this.setLimits(limit, queueLimit, queueMs);
  }

  /**
   * Sets the limits of the constructor. A lower limit ends no request in flight. Requests that are in the queue keep their longest
   * wait.
   */
  setLimits(limit: number, queueLimit: number, queueMs: number): void {
    this.#limit = limit;
    this.#queueLimit = queueLimit;
    this.#queueMs = queueMs;
    // Each turn either admits a request or finds the queue empty.
    while (this.#waitingCount > 0 && this.hasRoom) {
      this.#active++;
      this.release();
    }
  }

  /** Resolves when no request is in flight or in the queue. */
  async whenIdle(): Promise<void> {
    while (this.#active > 0) {
      this.#idle ??= Promise.withResolvers<void>();
      await this.#idle.promise;
      this.#idle = undefined;
    }
  }

  /** Returns whether no request is in flight or in the queue. */
  get isIdle(): boolean {
    return this.#active === 0;
  }

  /** Number of requests in flight. */
  get activeCount(): number {
    return this.#active;
  }

  /** Number of requests in the queue. */
  get waitingCount(): number {
    return this.#waitingCount;
  }

  /** Returns whether a request can start without a wait. */
  get hasRoom(): boolean {
    return this.#active < this.#limit;
  }

  /**
   * Takes a slot, which the caller must {@link release}. Returns undefined if a slot was free, else a ticket of the queue.
   *
   * @throws {GatewayError} `overloaded` if the queue is full.
   */
  acquire(principal: string): QueueTicket | undefined {
    if (this.hasRoom) {
      this.#active++;
      return undefined;
    }
    if (this.#waitingCount >= this.#queueLimit) this.#makeRoom(principal);
    const { promise: admitted, resolve, reject } = Promise.withResolvers<void>();
    const onTimeout = () => {
      this.#remove(waiter);
      reject(this.#overloaded(`had no room for another request within ${this.#queueMs} ms`));
    };
    const waiter: Waiter = { principal, resolve, reject, timer: setTimeout(onTimeout, this.#queueMs) };
    const queue = this.#waiting.get(principal) ?? [];
    this.#waiting.set(principal, queue);
    queue.push(waiter);
    this.#waitingCount++;
    return {
      admitted,
      giveUp: (error) => {
        if (this.#remove(waiter)) reject(error);
      },
    };
  }

  /** Gives a slot back. The next request in the queue gets it. */
  release(): void {
    const [first] = this.#waiting;
    const next = first?.[1][0];
    // Above the limit after it was lowered, no request takes the place.
    if (first === undefined || next === undefined || this.#active > this.#limit) {
      this.#active--;
      if (this.#active === 0) this.#idle?.resolve();
      return;
    }
    const [principal, queue] = first;
    this.#remove(next);
    // Principals take turns, so this one moves to the end.
    if (queue.length > 0) {
      this.#waiting.delete(principal);
      this.#waiting.set(principal, queue);
    }
    next.resolve();
  }

  /**
   * Refuses the latest request of the principal with the most requests in the queue, unless that is the caller.
   *
   * @throws {GatewayError} `overloaded` if no other principal has more requests in the queue.
   */
  #makeRoom(principal: string): void {
    const own = this.#waiting.get(principal)?.length ?? 0;
    let largest: readonly Waiter[] = [];
    for (const queue of this.#waiting.values()) if (queue.length > largest.length) largest = queue;
    const last = largest.at(-1);
    const error = this.#overloaded(`has ${this.#limit} requests in flight and ${this.#queueLimit} waiting`);
    if (last === undefined || largest.length <= own + 1) throw error;
    this.#remove(last);
    last.reject(error);
  }

  #overloaded(why: string): GatewayError {
    const message = `upstream "${this.#upstream}" ${why}; try again later, or raise its concurrency in the config`;
    return new GatewayError('overloaded', { upstream: this.#upstream, message });
  }

  /** Removes a request from the queue. Returns whether it was there. */
  #remove(waiter: Waiter): boolean {
    const queue = this.#waiting.get(waiter.principal);
    const at = queue?.indexOf(waiter) ?? -1;
    if (queue === undefined || at < 0) return false;
    queue.splice(at, 1);
    if (queue.length === 0) this.#waiting.delete(waiter.principal);
    this.#waitingCount--;
    clearTimeout(waiter.timer);
    return true;
  }
}
