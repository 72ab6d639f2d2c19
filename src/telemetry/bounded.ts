import { detach, type Kept, KeptMap } from '../json/memo.ts';

/** What a label says instead of a value that is one too many. No name we publish starts with an underscore. */
export const OTHER = '_other';

/**
 * The first `limit` distinct values that come, and {@link OTHER} for the rest: what a peer can choose must not decide how
 * many time series there are.
 */
export class Bounded {
  readonly #limit: number;
  readonly #seen = new KeptMap<Kept>();

  constructor(limit: number) {
    this.#limit = limit;
  }

  label(value: string): string {
    const seen = this.#seen.get(value);
    if (seen !== undefined) return seen;
    if (this.#seen.size >= this.#limit) return OTHER;
    const own = detach(value);
    this.#seen.set(own, own);
    return own;
  }
}
