import { atMost } from '../exchange/at-most.ts';

/** A start that takes longer than this no longer keeps others waiting. */
const SHARE_MS = 5_000;

/** Lets a bounded number of upstreams start at once, in the order they came. */
export class StartQueue {
  readonly #limit: number;
  readonly #waiting: (() => void)[] = [];
  #running = 0;

  constructor(limit: number) {
    this.#limit = limit;
  }

  /** Begins when there is room, and settles as `start` does. */
  async run(start: () => Promise<void>): Promise<void> {
    if (this.#running < this.#limit) this.#running++;
    else await new Promise<void>((resolve) => this.#waiting.push(resolve));
    const starting = start();
    const settled = starting.catch(() => undefined);
    void atMost([settled], SHARE_MS).then(() => this.#release());
    await starting;
  }

  /** Gives the share to the next in line. */
  #release(): void {
    const next = this.#waiting.shift();
    if (next === undefined) this.#running--;
    else next();
  }
}
