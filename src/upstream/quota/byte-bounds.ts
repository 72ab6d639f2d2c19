import { KeyedSums } from '../../map-entries.ts';
import { type LimitName, LIMITS } from '../../limits.ts';

/** Two bounds in bytes: on what belongs to one key, such as an upstream or a principal, and on all together. */
export interface BoundNames {
  readonly each: LimitName;
  readonly total: LimitName;
  /** True if a key may always have one entry, of any size that leaves room in the total. Default: false. */
  readonly allowsOne?: boolean;
}

/** Counts bytes that are kept, within a bound for each key and one for all together. */
export class ByteBounds {
  readonly #names: BoundNames;
  readonly #onLimit: (limit: LimitName) => void;
  readonly #sums = new KeyedSums();

  /** @param onLimit called each time that a bound is reached. */
  constructor(names: BoundNames, onLimit: (limit: LimitName) => void) {
    this.#names = names;
    this.#onLimit = onLimit;
  }

  /** Counts bytes until the returned function is called. Returns undefined if there is no room for them. */
  take(key: string, bytes: number): (() => void) | undefined {
    const { each, total, allowsOne = false } = this.#names;
    const held = this.#sums.of(key);
    const isTotal = this.#sums.total + bytes > LIMITS[total];
    if (isTotal || (held + bytes > LIMITS[each] && !(allowsOne && held === 0))) {
      this.#onLimit(isTotal ? total : each);
      return undefined;
    }
    this.#sums.add(key, bytes);
    let isTaken = true;
    return () => {
      if (isTaken) this.#sums.add(key, -bytes);
      isTaken = false;
    };
  }
}
