import { type GatewayError, upstreamError } from '../../errors.ts';
import { FairPool, ONE_PRINCIPAL, type PoolWaiter, type Shares } from './fair-pool.ts';

interface Waiter extends PoolWaiter {
  readonly resolve: () => void;
  readonly reject: (error: GatewayError) => void;
  readonly timer: NodeJS.Timeout;
}

export interface QueueTicket {
  /** Resolves when the request may start. Rejects with `overloaded` if it waited too long or lost its place. */
  readonly ready: Promise<void>;
  /** Leaves the queue, and rejects `ready` with this error. Has no effect afterwards. */
  giveUp(error: GatewayError): void;
}

/**
 * Limits the requests in flight at one upstream, and shares them between principals. Further requests wait in a queue, where principals
 * take turns by their weights. A principal with many waiting requests does not delay another, and cannot fill the queue for it.
 */
export class ConcurrencyLimiter {
  readonly #upstream: string;
  readonly #shares: Shares;
  readonly #pool: FairPool<Waiter>;
  #limit = 0;
  #queueLimit = 0;
  #queueMs = 0;
  #idle: PromiseWithResolvers<void> | undefined;

  /**
   * @param limit highest number of requests in flight.
   * @param queueLimit highest number of requests in the queue.
   * @param queueMs longest wait, in milliseconds.
   */
  constructor(upstream: string, limit: number, queueLimit: number, queueMs: number, shares: Shares = ONE_PRINCIPAL) {
    this.#upstream = upstream;
    this.#shares = shares;
    this.#pool = new FairPool(shares, limit);
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
    this.#pool.setCapacity(limit);
    this.#serveWaiting();
  }

  /** Resolves when no request is in flight or in the queue. */
  async whenIdle(): Promise<void> {
    while (!this.isIdle) {
      this.#idle ??= Promise.withResolvers<void>();
      await this.#idle.promise;
      this.#idle = undefined;
    }
  }

  get isIdle(): boolean {
    return this.#pool.used === 0;
  }

  get activeCount(): number {
    return this.#pool.used;
  }

  get waitingCount(): number {
    return this.#pool.waitingCount;
  }

  /**
   * Takes a slot, which the caller must {@link release}. Returns undefined if a slot was free, else a ticket of the queue.
   *
   * @throws {GatewayError} `overloaded` if the queue is full.
   */
  acquire(principal: string): QueueTicket | undefined {
    if (this.#pool.hasRoomFor(principal)) {
      this.#pool.take(principal);
      return undefined;
    }
    if (this.#pool.waitingCount >= this.#queueLimit) this.#makeRoom(principal);
    const { promise: ready, resolve, reject } = Promise.withResolvers<void>();
    const onTimeout = () => {
      this.#remove(waiter);
      if (this.#pool.hasFree) this.#shares.onRefused('requests');
      reject(this.#overloadedError(this.#lateReason(principal)));
    };
    const waiter: Waiter = { principal, resolve, reject, timer: setTimeout(onTimeout, this.#queueMs) };
    this.#pool.wait(waiter);
    return {
      ready,
      giveUp: (error) => {
        if (this.#remove(waiter)) reject(error);
      },
    };
  }

  /** Gives the slot of a request of this principal back. The next request in the queue gets it. */
  release(principal: string): void {
    this.#pool.release(principal);
    this.#serveWaiting();
    if (this.isIdle) this.#idle?.resolve();
  }

  #serveWaiting(): void {
    for (let next = this.#pool.takeNext(); next !== undefined; next = this.#pool.takeNext()) {
      clearTimeout(next.timer);
      next.resolve();
    }
  }

  #lateReason(principal: string): string {
    const late = `had no room for another request within ${this.#queueMs} ms`;
    return this.#pool.hasFree
      ? `${late} (you have ${this.#pool.usedBy(principal)} of ${this.#limit} in flight, and the rest is kept for other clients)`
      : late;
  }

  /**
   * Refuses the latest request of the principal with the most requests in the queue by its weight, unless that is the caller.
   *
   * @throws {GatewayError} `overloaded` if no other principal has more requests in the queue.
   */
  #makeRoom(principal: string): void {
    const last = this.#pool.latestOfMostWaiting(principal);
    const error = this.#overloadedError(`has ${this.#limit} requests in flight and ${this.#queueLimit} waiting`);
    if (last === undefined) throw error;
    this.#remove(last);
    this.#shares.onRefused('queue');
    last.reject(error);
  }

  #overloadedError(why: string): GatewayError {
    const event = `${why}; try again later, or raise its concurrency in the config`;
    return upstreamError('overloaded', this.#upstream, event);
  }

  #remove(waiter: Waiter): boolean {
    if (!this.#pool.stopWaiting(waiter)) return false;
    clearTimeout(waiter.timer);
    return true;
  }
}
