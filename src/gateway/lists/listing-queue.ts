import { type LimitName, LIMITS } from '../../limits.ts';

/** Listings of one upstream. */
interface Line {
  running: number;
  /** In the order of arrival. */
  readonly waiting: (() => void)[];
}

/**
 * Bounds the listings of private connections that run at once, in total and for each upstream. Upstreams that have waiting
 * listings take turns.
 */
export class ListingQueue {
  readonly #onLimit: (limit: LimitName) => void;
  /** By upstream, the one whose turn is next first. Upstreams without listings are not in it. */
  readonly #lines = new Map<string, Line>();
  #running = 0;

  /** @param onLimit is called for each listing that has to wait. */
  constructor(onLimit: (limit: LimitName) => void) {
    this.#onLimit = onLimit;
  }

  /** Runs a listing when it is its turn, and settles as the listing does. */
  async run(upstream: string, list: () => Promise<void>): Promise<void> {
    const line = this.#lines.get(upstream) ?? { running: 0, waiting: [] };
    this.#lines.set(upstream, line);
    const limit = this.#limitFor(line);
    if (limit === undefined) this.#begin(line);
    else {
      this.#onLimit(limit);
      await new Promise<void>((resolve) => line.waiting.push(resolve));
    }
    try {
      await list();
    } finally {
      this.#end(upstream, line);
    }
  }

  /** Returns the limit that a further listing has to wait for. */
  #limitFor({ running }: Line): LimitName | undefined {
    if (running >= LIMITS.privateListingsPerUpstream) return 'privateListingsPerUpstream';
    return this.#running >= LIMITS.privateListings ? 'privateListings' : undefined;
  }

  #begin(line: Line): void {
    line.running++;
    this.#running++;
  }

  #end(upstream: string, line: Line): void {
    line.running--;
    this.#running--;
    if (line.running === 0 && line.waiting.length === 0) this.#lines.delete(upstream);
    this.#beginNext();
  }

  #beginNext(): void {
    for (const [upstream, line] of this.#lines) {
      const next = line.waiting.length > 0 && this.#limitFor(line) === undefined ? line.waiting.shift() : undefined;
      if (next === undefined) continue;
      // Its next turn comes after those of all others.
      this.#lines.delete(upstream);
      this.#lines.set(upstream, line);
      this.#begin(line);
      next();
      return;
    }
  }
}
