import { getOrMake } from '../map-entries.ts';

/** A cache that holds its values weakly: equal keys get the same value for as long as it is referenced elsewhere. */
export class WeakCache<T extends object> {
  readonly #values = new Map<string, WeakRef<T>>();
  /** The number of entries at which entries of collected values are removed. */
  #sweepAt = 64;

  get(key: string, make: () => T): T {
    const known = this.#values.get(key)?.deref();
    if (known !== undefined) return known;
    const value = make();
    this.#values.set(key, new WeakRef(value));
    if (this.#values.size >= this.#sweepAt) this.#sweep();
    return value;
  }

  #sweep(): void {
    for (const [key, value] of this.#values) if (value.deref() === undefined) this.#values.delete(key);
    this.#sweepAt = Math.max(64, 2 * this.#values.size);
  }
}

const ids = new WeakMap<object, number>();
let lastId = 0;

/** Returns a number that identifies the object; 0 for undefined. */
export function idOf(object: object | undefined): number {
  return object === undefined ? 0 : getOrMake(ids, object, () => ++lastId);
}

/** Returns a function that makes the result for each object once, and keeps it as long as the object. */
export function oncePer<Key extends object, Result extends object>(make: (key: Key) => Result): (key: Key) => Result {
  const results = new WeakMap<Key, Result>();
  return (key) => {
    return getOrMake(results, key, () => make(key));
  };
}
