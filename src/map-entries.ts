/**
 * Sets an entry as the latest one of a map, and removes the oldest one if there are more than `limit`. Returns whether it has removed one.
 */
export function setLatest<Key, Value>(map: Map<Key, Value>, key: Key, value: Value, limit: number): boolean {
  map.delete(key);
  map.set(key, value);
  if (map.size <= limit) return false;
  const [oldest = key] = map.keys();
  return map.delete(oldest);
}

/** Removes the oldest entries of a map, up to the first one that is not over. Cheap before each new entry, where all last about as long. */
export function removeOver<Key, Value>(map: Map<Key, Value>, isOver: (value: Value) => boolean): void {
  for (const [key, value] of map) {
    if (!isOver(value)) return;
    map.delete(key);
  }
}

/** A map of any kind. */
interface Entries<Key, Value> {
  get(key: Key): Value | undefined;
  set(key: Key, value: Value): unknown;
}

/** Returns the value of a key. If there is none, makes it first. Does what `Map.getOrInsertComputed` does, which Node 24 lacks. */
export function getOrMake<Key, Value>(map: Entries<Key, Value>, key: Key, make: () => NoInfer<Value>): Value {
  let value = map.get(key);
  if (value === undefined) map.set(key, (value = make()));
  return value;
}

/** Sums of bytes or counts, by key and together. A key whose sum is 0 takes no room. */
export class KeyedSums {
  readonly #byKey = new Map<string, number>();
  #total = 0;

  get total(): number {
    return this.#total;
  }

  of(key: string): number {
    return this.#byKey.get(key) ?? 0;
  }

  /** Returns the new sum of the key. @param amount negative to subtract what was added before. */
  add(key: string, amount: number): number {
    this.#total += amount;
    const sum = this.of(key) + amount;
    if (sum > 0) this.#byKey.set(key, sum);
    else this.#byKey.delete(key);
    return sum;
  }
}
