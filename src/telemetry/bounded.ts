import { detach, type KeptText, KeptMap } from '../json/kept-text.ts';

/** Label value for all values beyond the bound. Published names never start with an underscore. */
export const OTHER = '_other';

/**
 * Limits the number of values of a label: passes the first `limit` distinct values, and replaces the others with {@link
 * OTHER}. Without it, peers could create any number of time series.
 */
export class Bounded {
  readonly #limit: number;
  readonly #seen = new KeptMap<KeptText>();

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

  /** Forgets a value that is not used any more, so that another takes its place. Returns its label; undefined if it has none of its own. */
  forget(value: string): string | undefined {
    const seen = this.#seen.get(value);
    this.#seen.delete(value);
    return seen;
  }
}
