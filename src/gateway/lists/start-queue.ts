import { resultWithin } from '../../deadline.ts';

/** A start counts against the limit for at most this long. */
const SHARE_MS = 5_000;

/** Starts a bounded number of upstreams at a time, in the order of arrival. */
export class StartQueue {
  readonly #limit: number;
  readonly #waiting: (() => void)[] = [];
  #running = 0;

  constructor(limit: number) {
    this.#limit = limit;
  }

  /** Runs `start` when the limit allows it, and settles as `start` does. */
  async run(start: () => Promise<void>): Promise<void> {
    if (this.#running < this.#limit) this.#running++;
    else await new Promise<void>((resolve) => this.#waiting.push(resolve));
    const starting = start();
    const settled = starting.catch(() => undefined);
    void resultWithin(settled, SHARE_MS).then(() => this.#release());
    await starting;
  }

  /** Gives the slot to the next waiting start. */
  #release(): void {
    const next = this.#waiting.shift();
    if (next === undefined) this.#running--;
    else next();
  }
}
