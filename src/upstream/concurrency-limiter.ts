import { GatewayError } from '../errors.ts';

interface Waiter {
  readonly enter: () => void;
  readonly timer: NodeJS.Timeout;
}

/** A place in the line before a gate. */
export interface QueueTicket {
  /** Rejects with `overloaded` when it took too long. */
  readonly admitted: Promise<void>;
  /** Leaves the line with this error. Without effect once inside. */
  giveUp(error: GatewayError): void;
}

/** Lets so many in at once; further ones wait in line, so long and no longer. Keeps one upstream's slowness its own. */
export class ConcurrencyLimiter {
  readonly #upstream: string;
  readonly #limit: number;
  readonly #queueLimit: number;
  readonly #queueMs: number;
  readonly #waiting: Waiter[] = [];
  #active = 0;

  constructor(upstream: string, limit: number, queueLimit: number, queueMs: number) {
    this.#upstream = upstream;
    this.#limit = limit;
    this.#queueLimit = queueLimit;
    this.#queueMs = queueMs;
  }

  get hasRoom(): boolean {
    return this.#active < this.#limit;
  }

  /**
   * Undefined when there is room at once, else a place in the line. Whoever entered must {@link release}.
   *
   * @throws {GatewayError} `overloaded`
   */
  acquire(): QueueTicket | undefined {
    if (this.hasRoom) {
      this.#active++;
      return undefined;
    }
    const overloaded = (why: string) =>
      new GatewayError('overloaded', { upstream: this.#upstream, message: `upstream "${this.#upstream}" ${why}` });
    if (this.#waiting.length >= this.#queueLimit) {
      throw overloaded(`has ${this.#limit} requests under transport and ${this.#queueLimit} waiting`);
    }
    const { promise: admitted, resolve, reject } = Promise.withResolvers<void>();
    const waiter: Waiter = {
      enter: resolve,
      timer: setTimeout(() => {
        this.#strike(waiter);
        reject(overloaded(`had no room for another request within ${this.#queueMs} ms`));
      }, this.#queueMs),
    };
    this.#waiting.push(waiter);
    return {
      admitted,
      giveUp: (error) => {
        if (!this.#strike(waiter)) return;
        clearTimeout(waiter.timer);
        reject(error);
      },
    };
  }

  release(): void {
    const next = this.#waiting.shift();
    if (next === undefined) {
      this.#active--;
      return;
    }
    clearTimeout(next.timer);
    next.enter();
  }

  /** Whether it still stood in the line. */
  #strike(waiter: Waiter): boolean {
    const at = this.#waiting.indexOf(waiter);
    if (at >= 0) this.#waiting.splice(at, 1);
    return at >= 0;
  }
}
