import type { Level } from '../telemetry/metrics.ts';

/** Something a budget is spent on that nobody would miss. */
export interface Idle {
  /** Monotonic ms. */
  readonly usedMs: number;
  drop(): Promise<void>;
}

/** A number of processes that all stdio upstreams share. When it is spent, the one that has been idle the longest makes room. */
export class ProcessQuota {
  readonly limit: number;
  readonly #gauge: Level;
  readonly #sources = new Set<() => Idle | undefined>();
  #used = 0;

  constructor(limit: number, level: Level) {
    this.limit = limit;
    this.#gauge = level;
  }

  /** @param longestIdle what the spender could do without, if anything. */
  join(longestIdle: () => Idle | undefined): void {
    this.#sources.add(longestIdle);
  }

  /** Takes one; the function returned gives it back, once. Undefined when all are in use. */
  async acquire(): Promise<(() => void) | undefined> {
    while (this.#used >= this.limit) {
      let longest: Idle | undefined;
      for (const longestIdle of this.#sources) {
        const idle = longestIdle();
        if (idle !== undefined && (longest === undefined || idle.usedMs < longest.usedMs)) longest = idle;
      }
      if (longest === undefined) return undefined;
      await longest.drop();
    }
    this.#used++;
    this.#gauge.add();
    let isTaken = true;
    return () => {
      if (!isTaken) return;
      isTaken = false;
      this.#used--;
      this.#gauge.remove();
    };
  }
}
