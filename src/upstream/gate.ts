import { GatewayError } from '../errors.ts';

interface Waiter {
  readonly enter: () => void;
  readonly timer: NodeJS.Timeout;
}

/** A place in the line before a gate. */
export interface Place {
  /** Rejects with `overloaded` when it took too long. */
  readonly entered: Promise<void>;
  /** Leaves the line with this error. Without effect once inside. */
  giveUp(error: GatewayError): void;
}

/** Lets so many in at once; further ones wait in line, so long and no longer. Keeps one upstream's slowness its own. */
export class Gate {
  readonly #upstream: string;
  readonly #limit: number;
  readonly #queueLimit: number;
  readonly #queueMs: number;
  readonly #waiting: Waiter[] = [];
  #inside = 0;

  constructor(upstream: string, limit: number, queueLimit: number, queueMs: number) {
    this.#upstream = upstream;
    this.#limit = limit;
    this.#queueLimit = queueLimit;
    this.#queueMs = queueMs;
  }

  get hasRoom(): boolean {
    return this.#inside < this.#limit;
  }

  /**
   * Undefined when there is room at once, else a place in the line. Whoever entered must {@link leave}.
   *
   * @throws {GatewayError} `overloaded`
   */
  enter(): Place | undefined {
    if (this.hasRoom) {
      this.#inside++;
      return undefined;
    }
    const overloaded = (why: string) =>
      new GatewayError('overloaded', { upstream: this.#upstream, say: `upstream "${this.#upstream}" ${why}` });
    if (this.#waiting.length >= this.#queueLimit) {
      throw overloaded(`has ${this.#limit} requests under way and ${this.#queueLimit} waiting`);
    }
    const { promise: entered, resolve, reject } = Promise.withResolvers<void>();
    const waiter: Waiter = {
      enter: resolve,
      timer: setTimeout(() => {
        this.#strike(waiter);
        reject(overloaded(`had no room for another request within ${this.#queueMs} ms`));
      }, this.#queueMs),
    };
    this.#waiting.push(waiter);
    return {
      entered,
      giveUp: (error) => {
        if (!this.#strike(waiter)) return;
        clearTimeout(waiter.timer);
        reject(error);
      },
    };
  }

  leave(): void {
    const next = this.#waiting.shift();
    if (next === undefined) {
      this.#inside--;
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
